#include <tapeformer/autograd/kernels/cuda/attention/hopper/hopper.h>

#include <algorithm>

namespace tapeformer::kernels {
namespace {

#if defined(CUDART_VERSION)
/// The driver's function, loaded at run time.
auto encoder() {
  static const auto found = [] {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult result;
#if CUDART_VERSION >= 12050
    cuda::check(
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &result),
        "looking for cuTensorMapEncodeTiled");
#else
    cuda::check(cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &entry, cudaEnableDefault, &result),
                "looking for cuTensorMapEncodeTiled");
#endif
    if (entry == nullptr || result != cudaDriverEntryPointSuccess)
      throw DeviceError(
          "[cuda] the driver has no cuTensorMapEncodeTiled; try TAPEFORMER_ATTENTION=tensor_cores");
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(entry);
  }();
  return found;
}
#else
auto encoder() { return &cuTensorMapEncodeTiled; }
#endif

/// The distance of elements in bytes; `bytes` for a single one, whose stride may be anything.
std::uint64_t bytes_apart(Index stride, Index count, std::uint64_t bytes) {
  return count > 1 ? static_cast<std::uint64_t>(stride) * sizeof(BFloat16) : bytes;
}

/// With smaller widths half of the products are of zeros; for few queries other kernels are faster.
constexpr Index kLeastWidth = 40, kMostWidth = 256, kLeastQueries = 64;
/// Bits of kept weights of whole tiles take 512 MiB at most, twice in a backward pass.
constexpr Index kMostDropped = Index{1} << 32;

/// True if box_map() can describe it: addresses and strides are multiples of 16 bytes.
bool has_boxes(const BFloat16* x, const HeadStrides& strides, Index batch, Index rows, Index heads,
               Index width) {
  constexpr Index kUnit = 16 / sizeof(BFloat16), kMost = Index{1} << 31;
  const auto fits = [&](Index stride, Index count) {
    return count == 1 || (count > 0 && count < kMost && stride > 0 && stride % kUnit == 0 && stride < kMost);
  };
  return reinterpret_cast<std::uintptr_t>(x) % 16 == 0 && width % kUnit == 0 && fits(strides.row, rows) &&
         fits(strides.head, heads) && fits(strides.batch, batch);
}

}  // namespace

CUtensorMap box_map(const BFloat16* x, const HeadStrides& strides, Index batch, Index rows, Index heads,
                    Index width, int box_rows) {
  const auto size = [](Index count) { return static_cast<cuuint64_t>(count); };
  const cuuint64_t sizes[] = {size(width), size(rows), size(heads), size(batch)};
  const std::uint64_t of_row = bytes_apart(strides.row, rows, size(width) * sizeof(BFloat16));
  const std::uint64_t of_head = bytes_apart(strides.head, heads, of_row);
  const cuuint64_t apart[] = {of_row, of_head, bytes_apart(strides.batch, batch, of_head)};
  const cuuint32_t box[] = {kBoxColumns, static_cast<cuuint32_t>(box_rows), 1, 1}, ones[] = {1, 1, 1, 1};
  CUtensorMap map;
  const CUresult result =
      encoder()(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, const_cast<BFloat16*>(x), sizes, apart, box, ones,
                CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS)
    throw DeviceError("[cuda] describing a tensor to the copy engine failed with error " +
                      std::to_string(static_cast<int>(result)) + "; try TAPEFORMER_ATTENTION=tensor_cores");
  return map;
}

bool hopper_takes(Cuda on, const AttentionShape& s, const AttentionOperands<BFloat16>& x, const BFloat16* y) {
  const cudaDeviceProp& device = cuda::device_state(on.device).properties;
  if (device.major != 9 || device.minor != 0 || changes_pairs(s, x)) return false;
  if (x.bias != nullptr || s.mask != nullptr || s.key_mask != nullptr || !keeps_order(s.scale)) return false;
  const Index width = std::max(s.key_width, s.value_width), least = std::min(s.key_width, s.value_width);
  if (least < 8 || width < kLeastWidth || width > kMostWidth || s.queries < kLeastQueries) return false;
  return s.batch * s.heads * std::max(s.queries, s.keys) < std::numeric_limits<int>::max() &&
         (!s.drops || s.batch * s.heads * s.queries * s.keys <= kMostDropped) &&
         has_boxes(x.query, s.query, s.batch, s.queries, s.heads, s.key_width) &&
         has_boxes(x.key, s.key, s.batch, s.keys, s.groups, s.key_width) &&
         has_boxes(x.value, s.value, s.batch, s.keys, s.groups, s.value_width) &&
         has_boxes(y, output_strides(s), s.batch, s.queries, s.heads, s.value_width);
}

}  // namespace tapeformer::kernels
