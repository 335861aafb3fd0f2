#pragma once

#include <tapeformer/autograd/ops/attention/sparse_attention.h>
#include <tapeformer/tests/bench/operation.h>

#include <algorithm>

namespace tapeformer {

/// Causal latent attention of H heads of width D + R and values of width D, or with K < T to the K keys that
/// an indexer of H' heads of width D' chooses, on latents of width L + R, with the indexer's loss.
/// Projections are left out.
inline Operation latent_attention_operation(Pass which) {
  return {"B H T D R L K H' D'", [=](const Sizes& n, DType type) {
            const Index B = n[0], H = n[1], T = n[2], D = n[3], R = n[4], L = n[5], K = n[6];
            const auto tensor = [&](Index heads, Index width) {
              return random_tensor({B, T, heads, width}, type);
            };
            double pairs = 0;
            for (Index t = 0; t < T; ++t) pairs += static_cast<double>(std::min(t + 1, K));
            const double rows = static_cast<double>(B * H) * pairs;
            const auto work = [&](double width, const Function& f, const std::vector<Tensor>& of) {
              return Work{2 * rows * width, 0, pass(which, f, of)};
            };
            const bool is_forward = which == Pass::forward;
            if (K >= T) {
              const std::vector<Tensor> in{tensor(H, D + R), tensor(H, D + R), tensor(H, D)};
              AttentionOptions options;
              options.causal = true;
              const Function f = [=] { return scaled_dot_product_attention(in[0], in[1], in[2], options); };
              return work(static_cast<double>(is_forward ? 2 * D + R : 5 * D + 3 * R), f, in);
            }
            const Tensor query = tensor(H, L + R), latents = random_tensor({B, T, L + R}, type);
            const IndexHeads index{tensor(n[7], n[8]), random_tensor({B, T, n[8]}, type),
                                   random_tensor({B, T, n[7]}, type)};
            const Function f = [=] {
              AttentionMasks masks;
              masks.causal = true;
              const Tensor chosen = choose_keys(index, K, masks);
              Tensor shares;
              const Tensor y = sparse_attention(query, latents, chosen, {L, 0.1, &shares, nullptr});
              const Tensor loss = sum(shares * log_softmax(index_scores(index, chosen)));
              return y + cast(loss, y.dtype());
            };
            return work(static_cast<double>(is_forward ? 2 * L + R : 5 * L + 3 * R), f,
                        {query, latents, index.query, index.key, index.weights});
          }};
}

}  // namespace tapeformer
