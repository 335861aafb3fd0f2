#include <tapeformer/autograd/error.h>
#include <tapeformer/nn/attention/attention_kind.h>
#include <tapeformer/nn/attention/cost.h>
#include <tapeformer/nn/attention/heads.h>

#include <algorithm>
#include <limits>

namespace tapeformer {

Index visible_pair_count(const AttentionCall& call) {
  const Index T = call.queries, S = or_else(call.keys, T) + call.cached;
  if (!call.causal) return T * S;
  const Index seeing = std::min(T, S);  // the last of them sees all keys, the one before one key less, ...
  const Index all = seeing * S - seeing * (seeing - 1) / 2;
  if (call.window <= 0) return all;
  const Index cut = std::min(seeing, std::max<Index>(S - call.window, 0));  // these see more than the window
  return all - (cut * (S - call.window) - cut * (cut - 1) / 2);
}

AttentionCost attention_cost(const AttentionConfig& config, const AttentionCall& call) {
  const AttentionKind& kind = attention_kind(config.kind);
  if (!kind.add_cost) throw Error("[attention] the cost of " + kind.name + " is not known");
  CostSum sum(call);
  kind.add_cost(config.resolved(), sum);
  return sum.total();
}

CostSum::CostSum(const AttentionCall& of_call)
    : call(of_call),
      N(static_cast<double>(call.batch * call.queries)),
      M(static_cast<double>(call.batch * or_else(call.keys, call.queries))),
      held(M + static_cast<double>(call.batch * call.cached)),
      visible_(static_cast<double>(call.batch * visible_pair_count(call))),
      element_(static_cast<double>(bytes_of(call.type))),
      wide_(static_cast<double>(bytes_of(wide(call.type)))) {}

void CostSum::keeps_angles(const AttentionConfig& config, Index width) {
  keeps_wide(static_cast<double>(call.queries * or_else(config.rotations.width, width)));
}

void CostSum::keeps_distances(const AttentionConfig& config, bool is_learned) {
  const double H = config.heads, distances = 2 * std::max(call.queries, call.keys) - 1;
  if (!has_distances_) {
    keeps_wide(H * distances);
    keeps_ids(N);
  }
  if (is_learned && !learns_distances_)
    multiply_adds(visible_ * H * (config.key_width + config.value_width), 0, 1);
  has_distances_ = true;
  learns_distances_ = learns_distances_ || is_learned;
}

void CostSum::choose_blocks(Index block, Index top_k, double H, double G) {
  const Index T = call.queries, S = T + call.cached;
  Index pairs = 0;
  for (Index t = 0; t < T; ++t) {
    const Index position = t + S - T, to = call.causal ? position + 1 : S,
                from = call.causal && call.window > 0 ? std::max<Index>(0, to - call.window) : 0,
                own = position / block, first = (from + block - 1) / block, end = to / block;
    const Index others = std::max<Index>(0, end - first) - (first <= own && own < end ? 1 : 0);
    pairs +=
        std::min(to, (own + 1) * block) - std::max(from, own * block) + std::min(others, top_k - 1) * block;
  }
  sees(pairs);
  const double B = call.batch;
  const Index blocks = (S + block - 1) / block;
  keeps_ids(5 * N * H * static_cast<double>(std::min(top_k, blocks)) + B * G * static_cast<double>(blocks) +
            1);
  if (call.causal) keeps_ids(-2 * N);  // whose ranges the parts have taken in
}

bool CostSum::choose_keys(const AttentionConfig& config) {
  const Index T = call.queries, S = T + call.cached, K = config.index_top_k;
  const double inputs = or_else(config.query_latent_width, config.width), C = config.width,
               H = config.index_heads, D = config.index_width;
  parameters(inputs * H * D + C * (D + H) + 2 * D);
  caches(D);
  if (S <= K) {
    choice(M * C * D);  // for the cache
    return false;
  }
  choice(N * H * (inputs * D + C) + M * C * D + visible_ * H * D);
  Index pairs = 0;
  for (Index t = 0; t < T; ++t) {
    const Index seen = call.causal ? S - T + t + 1 : S;
    pairs += std::min(K, call.causal && call.window > 0 ? std::min(seen, call.window) : seen);
  }
  sees(pairs);
  keeps_ids(N * static_cast<double>(K));
  return true;
}

AttentionCost CostSum::total() const {
  const auto whole = [](double sum) {
    constexpr Index kMost = std::numeric_limits<Index>::max();
    return sum < static_cast<double>(kMost) ? static_cast<Index>(sum) : kMost;
  };
  return {whole(parameters_),       whole(forward_flops_), whole(backward_flops_),
          whole(activation_bytes_), whole(cache_bytes_),   whole(cached_row_)};
}

}  // namespace tapeformer
