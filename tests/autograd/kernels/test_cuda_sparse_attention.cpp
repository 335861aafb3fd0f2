#include <tapeformer/autograd/kernels/cuda/attention/sparse_mma.h>
#include <tapeformer/autograd/ops/attention/sparse_attention.h>
#include <tapeformer/tests/autograd/kernels/cuda_case.h>

#include <algorithm>

using namespace tapeformer;

namespace {

struct SparseSizesCase {
  Index heads, width, value_width, top_k;
};

/// Choices of the same keys in every row but for the first ones, which have none, one, 64 and 65.
Tensor choices_of(Index T, Index S, Index top_k) {
  const Tensor chosen = Tensor::empty({2, T, top_k}, DType::i32, Device::cpu());
  auto* const to = chosen.data<std::int32_t>();
  for (Index row = 0; row < 2 * T; ++row) {
    const Index counts[] = {0, 1, 64, 65}, count = row < 4 ? std::min(counts[row], top_k) : top_k;
    for (Index i = 0; i < top_k; ++i)
      to[row * top_k + i] =
          static_cast<std::int32_t>(i < count ? row / T * S + (S - top_k) / (1 + row % 2) + i : 2 * S);
  }
  return chosen;
}

}  // namespace

// Weights, their gradients, what a query adds to a key, and results are rounded to bf16, each by 2^-9 of its
// size at most; sums of a few hundred of them with random signs are as near.
TEST_CASE("attention to chosen latents on tensor cores is that of double") {
  constexpr double kMost = 0x1p-6;
  Generator random(test_seed(5));
  // Two tiles of heads and of keys; wide rows; heads whose gradients of keys come in two parts.
  for (const auto& [H, N, E, K] : {SparseSizesCase{20, 48, 32, 100}, {3, 208, 192, 70}, {70, 16, 16, 33}}) {
    const Index T = 4, S = 110;
    CAPTURE(H);
    const Tensor query = on_gpu(host_normal({2, T, H, N}, random).to(DType::bf16)),
                 latents = on_gpu(host_normal({2, S, N}, random).to(DType::bf16)),
                 seed = on_gpu(host_normal({2, T, H, E}, random).to(DType::bf16)), here = choices_of(T, S, K),
                 chosen = on_gpu(here);
    Tensor shares, expected_shares;
    const auto run = [&, E = E](const Tensor& choice, Tensor* to) {
      return [&, E, to](const std::vector<Tensor>& in) {
        return sparse_attention(in[0], in[1], choice, {E, 1 / std::sqrt(30.0), to});
      };
    };
    const std::vector<Tensor> expected = with_gradients(run(here, &expected_shares),
                                                        {readable(query), readable(latents)}, readable(seed)),
                              got = with_gradients(run(chosen, &shares), {query, latents}, seed);
    check_near(got, expected, kMost, rms_error);
    CHECK_BELOW(rms_error(readable(shares), readable(expected_shares)), kMost);

    const Tensor dquery = Tensor::empty_like(query), dlatents = Tensor::empty_like(latents);
    const kernels::SparseOperands x{{2, T, S, K, chosen.address<std::int32_t>()},
                                    {H, N, E, 1 / std::sqrt(30.0)},
                                    query.address<BFloat16>(),
                                    latents.address<BFloat16>(),
                                    seed.address<BFloat16>()};
    CHECK(kernels::sparse_mma_backward(kernels::Cuda{}, x, {dquery.address<BFloat16>(), false},
                                       {dlatents.address<BFloat16>(), false}, 3 * K * N));
    CHECK(same_values(dquery, got[1]));
    CHECK_BELOW(rms_error(readable(dlatents), readable(expected[2])), kMost);
  }
}

TEST_CASE("attention to chosen latents with scales of zero and below") {
  Generator random(test_seed(7));
  const Tensor query = on_gpu(host_normal({2, 4, 2, 16}, random).to(DType::bf16)),
               latents = on_gpu(host_normal({2, 110, 16}, random).to(DType::bf16)),
               here = choices_of(4, 110, 70), chosen = on_gpu(here);
  for (const double scale : {0.0, 1e-60, -0.2}) {
    CAPTURE(scale);
    const Tensor got = sparse_attention(query, latents, chosen, {16, scale}),
                 expected = sparse_attention(readable(query), readable(latents), here, {16, scale});
    CHECK_BELOW(rms_error(readable(got), expected), 0x1p-6);
  }
}

// The factors are bf16, exactly; what a query adds to a key is rounded to bf16.
TEST_CASE("an indexer on tensor cores is that of double, and chooses the same keys") {
  Generator random(test_seed(6));
  // Several queries in a tile, one in a tile, and one in two tiles.
  for (const auto& [H, D, no_values, K] : {SparseSizesCase{4, 32, 0, 66}, {16, 208, 0, 9}, {32, 16, 0, 33}}) {
    CAPTURE(H);
    const Index T = 90, S = 90;
    const Tensor query = on_gpu(host_normal({2, T, H, D}, random).to(DType::bf16)),
                 key = on_gpu(host_normal({2, S, D}, random).to(DType::bf16)),
                 weights = on_gpu(host_normal({2, T, H}, random).to(DType::bf16));
    AttentionMasks masks;
    masks.causal = true;
    const Tensor chosen = choose_keys({query, key, weights}, K, masks);
    const Tensor expected = choose_keys({readable(query), readable(key), readable(weights)}, K, masks);
    CHECK(same_values(chosen, expected));

    const auto run = [](const Tensor& choice) {
      return [choice](const std::vector<Tensor>& in) { return index_scores({in[0], in[1], in[2]}, choice); };
    };
    Tensor seed = host_normal(chosen.shape(), random);
    for (Index i = 0; i < seed.elements(); ++i)  // places without a key
      if (expected.data<std::int32_t>()[i] == 2 * S) seed.data<double>()[i] = 0;
    const std::vector<Tensor> exact = with_gradients(
                                  run(expected), {readable(query), readable(key), readable(weights)}, seed),
                              got = with_gradients(run(chosen), {query, key, weights},
                                                   on_gpu(seed.to(DType::f32)));
    CHECK_BELOW(relative_error(readable(got[0]), exact[0]), 0x1p-20);
    for (std::size_t i = 1; i < got.size(); ++i) {
      CAPTURE(i);
      CHECK_BELOW(rms_error(readable(got[i]), exact[i]), 0x1p-6);
    }
  }
}
