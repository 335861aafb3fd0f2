#include <tapeformer/nn/attention/cost.h>

#include <algorithm>

namespace tapeformer {
namespace {

/// Adds up what the parts of a layer take.
class Bill {
 public:
  explicit Bill(const AttentionCall& call)
      : N(call.batch * call.queries),
        M(call.batch * or_else(call.keys, call.queries)),
        held(M + call.batch * call.cached),
        visible_(call.batch * visible_pair_count(call)),
        element_(bytes_of(call.type)) {
    if (call.causal) cost_.activation_bytes += 2 * bytes_of(DType::i32) * N;
  }
  const Index N, M, held;  // rows of queries, of keys, and of keys with those in the cache

  void parameters(Index count) { cost_.parameters += count; }
  /// A product with a matrix of `size` for each row; the backward pass has one for each factor's gradient.
  void product(Index rows, Index size) { multiply_adds(rows * size, 1, 2); }
  void projection(Index rows, Index inputs, Index outputs, bool bias) {
    parameters(inputs * outputs + (bias ? outputs : 0));
    product(rows, inputs * outputs);
  }
  /// The products of keys' width and of values' width for each visible pair.
  void attention(Index H, Index D, Index E, Index backward_key_products = 3) {
    multiply_adds(visible_ * H * D, 1, backward_key_products);
    multiply_adds(visible_ * H * E, 1, 2);
    keeps(N * H);
  }
  void keeps(Index numbers) { cost_.activation_bytes += numbers * element_; }
  void caches(Index numbers) { cost_.cache_bytes_per_token += numbers * element_; }
  const AttentionCost& total() const { return cost_; }

 private:
  void multiply_adds(Index count, Index forward, Index backward) {
    cost_.forward_flops += 2 * forward * count;
    cost_.backward_flops += 2 * backward * count;
  }

  Index visible_, element_;
  AttentionCost cost_;
};

}  // namespace

Index visible_pair_count(const AttentionCall& call) {
  const Index T = call.queries, S = or_else(call.keys, T) + call.cached;
  if (!call.causal) return T * S;
  const Index seeing = std::min(T, S);  // the last of them sees all keys, the one before all but one, ...
  return seeing * S - seeing * (seeing - 1) / 2;
}

AttentionCost attention_cost(const AttentionConfig& given, const AttentionCall& call) {
  if (given.kind == AttentionKind::latent) return attention_cost(latent_config(given), call);
  const AttentionConfig config = given.resolved();
  const Index C = config.width, H = config.heads, G = config.key_heads();
  const Index D = config.key_width, E = config.value_width, memory = config.memory_width;
  const bool additive = config.kind == AttentionKind::additive;
  Bill bill(call);
  const Index N = bill.N, M = bill.M;

  bill.projection(N, C, H * D, config.bias);
  bill.projection(M, memory, G * D, config.bias && !additive);
  bill.projection(M, memory, G * E, config.bias);
  bill.projection(N, H * E, config.output_width, config.bias);
  if (additive) bill.parameters(H * D);
  bill.attention(H, D, E, additive ? 4 : 3);

  bill.keeps(N * (C + H * D + H * E) + M * G * (D + E));
  if (call.keys > 0) bill.keeps(M * memory);
  if (config.rotary) bill.keeps(call.queries * D);
  bill.caches(G * (D + E));
  return bill.total();
}

AttentionCost attention_cost(const LatentConfig& given, const AttentionCall& call) {
  const LatentConfig config = given.resolved();
  const Index C = config.width, H = config.heads, R = config.rotary_width;
  const Index D = config.key_width, E = config.value_width, memory = config.memory_width;
  const Index L = config.latent_width, I = or_else(config.query_latent_width, C);
  const bool has_query_latents = config.query_latent_width > 0;
  Bill bill(call);
  const Index N = bill.N, M = bill.M;

  const auto latents = [&](Index rows, Index inputs, Index width) {
    bill.projection(rows, inputs, width, false);
    bill.keeps(rows * width);
    if (!config.norm) return;
    bill.parameters(width);
    bill.keeps(rows * width + rows);
  };
  if (has_query_latents) latents(N, C, I);
  latents(M, memory, L);
  bill.projection(N, I, H * (D + R), false);
  bill.projection(M, C, R, false);
  bill.projection(N, H * E, config.output_width, false);
  bill.parameters(L * H * (D + E));
  bill.keeps(N * C + (call.keys > 0 ? M * memory : 0) + call.queries * R);

  const bool decodes = config.form == LatentForm::automatic && call.cached > 0;
  if (config.form == LatentForm::absorbed || decodes) {
    bill.product(N, H * L * (D + E));
    bill.attention(H, L + R, L + R);
    bill.keeps(M * R + 2 * N * H * (L + R) + N * H * (D + E) + (R > 0 ? N * H * L : 0));
  } else {
    bill.product(bill.held, H * L * (D + E));
    bill.attention(H, D + R, E);
    bill.keeps((N + M) * H * (D + R + E));
  }
  bill.caches(L + R);
  return bill.total();
}

}  // namespace tapeformer
