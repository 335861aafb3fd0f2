#include <tapeformer/autograd/bfloat16.h>
#include <tapeformer/autograd/communication/rank_sums.h>

#include <algorithm>
#include <array>

namespace tapeformer {
namespace {

template <class T, class Sum>
void add_ranks(const void* from_all, int ranks, Index count, void* to_all) {
  const T* const from = static_cast<const T*>(from_all);
  T* const to = static_cast<T*>(to_all);
  constexpr Index kBlock = 1024;
  std::array<Sum, kBlock> sums;
  for (Index begin = 0; begin < count; begin += kBlock) {
    const Index here = std::min(kBlock, count - begin);
    for (int rank = 0; rank < ranks; ++rank) {
      const T* const own = from + rank * count + begin;
      for (Index i = 0; i < here; ++i) {
        const auto at = static_cast<std::size_t>(i);
        sums[at] = rank == 0 ? static_cast<Sum>(own[i]) : sums[at] + static_cast<Sum>(own[i]);
      }
    }
    for (Index i = 0; i < here; ++i) to[begin + i] = static_cast<T>(sums[static_cast<std::size_t>(i)]);
  }
}

}  // namespace

void add_ranks(DType type, const void* from, int ranks, Index count, void* to) {
  if (type == DType::f64) return add_ranks<double, double>(from, ranks, count, to);
  if (type == DType::f32) return add_ranks<float, float>(from, ranks, count, to);
  add_ranks<BFloat16, float>(from, ranks, count, to);
}

}  // namespace tapeformer
