#include <tapeformer/autograd/bfloat16.h>
#include <tapeformer/autograd/kernels/cpu/bf16_product.h>
#include <tapeformer/autograd/kernels/cpu/parallel.h>

#if defined(TAPEFORMER_ONEDNN)
#include <dnnl.hpp>
#endif
#if defined(__AVX512BF16__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <array>
#include <functional>
#include <map>

namespace tapeformer::kernels {
namespace {

/// Rounds `rows` rows of `columns` values to the nearest, ties to even.
void round_rows(Index rows, Index columns, const float* from, Index from_lead, BFloat16* to, Index to_lead) {
  for (Index row = 0; row < rows; ++row, from += from_lead, to += to_lead) {
    Index i = 0;
#if defined(__AVX512BF16__)
    for (; i + 32 <= columns; i += 32) {
      const __m512bh pair = _mm512_cvtne2ps_pbh(_mm512_loadu_ps(from + i + 16), _mm512_loadu_ps(from + i));
      std::memcpy(to + i, &pair, sizeof pair);
    }
#endif
    for (; i < columns; ++i) to[i] = BFloat16(from[i]);
  }
}

/// A factor as it lies in memory.
struct Factor {
  const float* data;
  Index size, depth;  // of the result's axis and of the sum
  bool by_depth;      // [depth, size] rather than [size, depth]
  Index lead;

  Index rows() const { return by_depth ? depth : size; }
  Index columns() const { return by_depth ? size : depth; }
};

/// A part of a factor in bf16, stored as the factor.
struct Rounded {
  BFloat16* data;
  bool by_depth;
  Index lead;
};

/// The part of `factor` from (at_size, at_depth) on, of the sizes `size` and `depth`.
Factor part_of(const Factor& factor, Index at_size, Index size, Index at_depth, Index depth) {
  Factor part = factor;
  part.data += factor.by_depth ? at_depth * factor.lead + at_size : at_size * factor.lead + at_depth;
  part.size = size, part.depth = depth;
  return part;
}

#if defined(TAPEFORMER_ONEDNN)
dnnl::engine& engine() {
  static dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}

using Isa = dnnl::cpu_isa;

/// True if oneDNN computes here with these instructions.
bool has_isa(Isa isa) {
  const auto bits = [](Isa x) { return static_cast<unsigned>(x); };
  return (bits(dnnl::get_effective_cpu_isa()) & bits(isa)) == bits(isa);
}

/// A product of oneDNN with its arguments; empty where the processor has no instructions for it.
class Product {
 public:
  Product(Index m, Index n, Index k, const Rounded& a, const Rounded& b, Index ldc, bool add) {
    using dnnl::memory;
    using Type = memory::data_type;
    const memory::desc from_a({m, k}, Type::bf16, strides(a.by_depth, a.lead)),
        from_b({k, n}, Type::bf16, strides(!b.by_depth, b.lead)), to({m, n}, Type::f32, strides(false, ldc));
    dnnl::primitive_attr attributes;
    dnnl::post_ops sums;
    if (add) sums.append_sum(1);
    attributes.set_post_ops(sums);
#if DNNL_VERSION_MAJOR < 3
    const dnnl::matmul::primitive_desc made(dnnl::matmul::desc(from_a, from_b, to), attributes, engine(),
                                            true);
#else
    const dnnl::matmul::primitive_desc made(engine(), from_a, from_b, to, attributes, true);
#endif
    if (!made) return;
    product_ = dnnl::matmul(made);
    stream_ = dnnl::stream(engine());
    arguments_ = {memory(from_a, engine(), nullptr), memory(from_b, engine(), nullptr),
                  memory(to, engine(), nullptr)};
  }

  /// False, and nothing is done, if the product is empty.
  bool run(const BFloat16* a, const BFloat16* b, float* c) {
    if (!product_) return false;
    const void* data[] = {a, b, c};
    const int names[] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST};
    dnnl_exec_arg_t given[3];
    for (int i = 0; i < 3; ++i) {
      arguments_[i].set_data_handle(const_cast<void*>(data[i]));
      given[i] = {names[i], arguments_[i].get()};
    }
    dnnl::error::wrap_c_api(dnnl_primitive_execute(product_.get(), stream_.get(), 3, given),
                            "[matmul] oneDNN could not compute a product in bf16");
    return true;
  }

 private:
  static dnnl::memory::dims strides(bool transposed, Index lead) {
    return transposed ? dnnl::memory::dims{1, lead} : dnnl::memory::dims{lead, 1};
  }

  dnnl::matmul product_;
  dnnl::stream stream_;
  std::array<dnnl::memory, 3> arguments_;
};

/// This thread's product of these sizes. A product takes some 100 KB, so those of all sizes are not kept for
/// good: batches of many lengths have many. oneDNN itself keeps the last ones of all threads.
Product& product_of(Index m, Index n, Index k, const Rounded& a, const Rounded& b, Index ldc, bool add) {
  constexpr std::size_t kMostKnown = 256;
  thread_local std::map<std::array<Index, 9>, Product> known;
  const std::array<Index, 9> key = {m, n, k, a.by_depth, a.lead, b.by_depth, b.lead, ldc, add};
  const auto found = known.find(key);
  if (found != known.end()) return found->second;
  if (known.size() == kMostKnown) known.clear();
  return known.emplace(key, Product(m, n, k, a, b, ldc, add)).first->second;
}
#else
enum class Isa { avx512_core_bf16, avx512_core_amx };
bool has_isa(Isa) { return false; }
#endif

/// c [m, n] = a b, plus c if `add`.
void product(Index m, Index n, Index k, const Rounded& a, const Rounded& b, float* c, Index ldc, bool add) {
#if defined(TAPEFORMER_ONEDNN)
  if (product_of(m, n, k, a, b, ldc, add).run(a.data, b.data, c)) return;
#endif
  const auto at = [](const Rounded& x, Index i, Index depth) {
    return static_cast<float>(x.data[x.by_depth ? depth * x.lead + i : i * x.lead + depth]);
  };
  for (Index i = 0; i < m; ++i) {
    for (Index j = 0; j < n; ++j) {
      float sum = add ? c[i * ldc + j] : 0;
      for (Index x = 0; x < k; ++x) sum += at(a, i, x) * at(b, j, x);
      c[i * ldc + j] = sum;
    }
  }
}

}  // namespace

bool is_bf16_product(const Gemm& s) {
  constexpr Index kLeast = 32;  // below, rounding costs what the product gains
  return s.rounds && s.batch.elements() == 1 && s.scale == 1 && std::min({s.m, s.n, s.k}) >= kLeast;
}

// The factor with the shorter side in the result, or b if `columns` would take too much, is rounded first, by
// all threads; the other one block by block, just before its product, which finds it in the L2 cache. On the
// tiles of AMX oneDNN takes five times as long for a result with gaps between its rows, as a block of columns
// has, or for columns that do not fill tiles.
void bf16_gemm(const Gemm& s, const float* a, const float* b, Write<float> c) {
  constexpr Index kBlock = 256, kDepth = 1024, kMostRows = 4096;
  const Factor of_a{a, s.m, s.k, s.transpose_a, s.lda}, of_b{b, s.n, s.k, !s.transpose_b, s.ldb};
  const bool tiles = has_isa(Isa::avx512_core_amx), blocks_a = s.m >= s.n || (tiles && s.m > kMostRows),
             dense = tiles && !blocks_a;
  const Factor &whole = blocks_a ? of_b : of_a, &other = blocks_a ? of_a : of_b;

  struct Whole {};
  const Rounded kept{thread_memory<Whole, BFloat16>(whole.rows() * whole.columns()), whole.by_depth,
                     whole.columns()};
  parallel_ranges(whole.rows(), whole.columns(), [&](Index from, Index to) {
    round_rows(to - from, whole.columns(), whole.data + from * whole.lead, whole.lead,
               kept.data + from * kept.lead, kept.lead);
  });

  const Index threads = omp_in_parallel() ? 1 : omp_get_max_threads();
  const Index share = (other.size + threads - 1) / threads, parts = (share + kBlock - 1) / kBlock;
  const Index unit = tiles ? 32 : 1, block = (share + unit * parts - 1) / (unit * parts) * unit,
              blocks = (other.size + block - 1) / block;
  parallel_ranges(blocks, block * whole.size * s.k / 8, [&](Index first, Index last) {
    struct Block {};
    BFloat16* memory = thread_memory<Block, BFloat16>(block * std::min(s.k, kDepth));
    struct Columns {};
    float* const columns = dense ? thread_memory<Columns, float>(s.m * block) : nullptr;
    const OneThread one;
    for (Index at = first * block; at < std::min(other.size, last * block); at += block) {
      const Index size = std::min(block, other.size - at);
      for (Index k = 0; k < s.k; k += kDepth) {
        const Index depth = std::min(kDepth, s.k - k);
        const Factor part = part_of(other, at, size, k, depth);
        const Rounded rounded{memory, part.by_depth, part.columns()};
        round_rows(part.rows(), part.columns(), part.data, part.lead, memory, rounded.lead);
        const Rounded of_kept{kept.data + (kept.by_depth ? k * kept.lead : k), kept.by_depth, kept.lead};
        if (blocks_a)
          product(size, s.n, depth, rounded, of_kept, c.to + at * s.ldc, s.ldc, c.add || k > 0);
        else if (dense)
          product(s.m, size, depth, of_kept, rounded, columns, size, k > 0);
        else
          product(s.m, size, depth, of_kept, rounded, c.to + at, s.ldc, c.add || k > 0);
      }
      for (Index i = 0; dense && i < s.m; ++i) {
        const float* from = columns + i * size;
        float* line = c.to + i * s.ldc + at;
        if (c.add)
          std::transform(from, from + size, line, line, std::plus<float>());
        else
          std::copy_n(from, size, line);
      }
    }
  });
}

bool has_bf16_products() { return has_isa(Isa::avx512_core_bf16); }

}  // namespace tapeformer::kernels
