#pragma once

#include <tapeformer/autograd/dtype.h>
#include <tapeformer/nn/attention/attention_config.h>

namespace tapeformer {

/// The sizes of one call of an attention layer.
struct AttentionCall {
  Index batch = 1;          ///< B
  Index queries = 1;        ///< T
  Index keys = 0;           ///< S, of a memory; 0 for queries: self-attention
  Index cached = 0;         ///< tokens in the cache before: decoding, where only forward_flops are valid
  bool causal = false;      ///< aligned at the last query and the last key
  Index window = 0;         ///< keys that a causal query sees, its own included; 0 for all before it
  DType type = DType::f32;  ///< of activations and cache
};

/// The cost of one call of an attention layer: in training, unless something is cached; without masks, except
/// the causal one; with gradients of parameters and inputs. Dropout on the weights adds nothing.
struct AttentionCost {
  Index parameters = 0;  ///< trained values
  /// Matrix products only, 2 for each multiply-add, as a Profile counts them. In attention only visible pairs
  /// count, although tiles round them up. Sums, exponentials, tanh, norms and rotations are left out.
  Index forward_flops = 0, backward_flops = 0;
  Index activation_bytes = 0;       ///< kept for backward: TapeMemory's saved bytes without parameters
  Index cache_bytes_per_token = 0;  ///< of one row of the batch
  Index cache_bytes_per_row = 0;    ///< of a row's state and convolution inputs, for any length
};

/// Visible pairs of a query and a key, for one row of the batch and one head.
/// Math:    T S; causal: sum over t of max(0, t + 1 + S - T), of which a window W leaves at most W
Index visible_pair_count(const AttentionCall& call);

/// The cost of a layer that make_attention() makes; the formula is at each layer's add_cost().
/// Throws:  Error if sizes do not fit, or if the row of the kind has no add_cost
AttentionCost attention_cost(const AttentionConfig& config, const AttentionCall& call);

/// Adds up the costs of the parts of a layer. It counts in double, since products of sizes in a damaged file
/// may overflow integers.
class CostSum {
 public:
  explicit CostSum(const AttentionCall& of_call);
  const AttentionCall call;
  const double N, M, held;  ///< rows of queries, of keys, and of keys with those in the cache
  bool packed = false;      ///< queries, keys and values are still in the rows of one tensor

  void parameters(double count) { parameters_ += count; }
  /// A product with a matrix of `size` for each row; the backward pass has one for each factor's gradient.
  void product(double rows, double size) { multiply_adds(rows * size, 1, 2); }
  void projection(double rows, double inputs, double outputs, bool bias) {
    parameters(inputs * outputs + (bias ? outputs : 0));
    product(rows, inputs * outputs);
  }
  /// Adds the products over the widths of keys and of values for each visible pair, and the values that the
  /// fused operation keeps besides its inputs and output.
  void attention(double H, double D, double E, double backward_key_products = 3) {
    multiply_adds(visible_ * H * D, 1, backward_key_products);
    multiply_adds(visible_ * H * E, 1, 2);
    keeps_wide(N * H);
    if (call.causal) keeps_ids(2 * N);
  }
  /// Adds the multiply-adds of a choice, which has no gradient.
  void choice(double count) { multiply_adds(count, 1, 0); }
  /// The pairs of a query and a key, of one row of the batch and one head, for the next attention().
  void sees(Index pairs) { visible_ = static_cast<double>(call.batch * pairs); }
  /// sees() the pairs of each query and the keys of top_k blocks, and keeps the parts that these make.
  void choose_blocks(Index block, Index top_k, double H, double G);
  /// The choice of keys by an indexer, which has no backward pass. True if there are more keys than a query
  /// chooses; this leaves the pairs of each query and its own keys.
  bool choose_keys(const AttentionConfig& config);
  /// Adds the products over the widths of keys and of values for each pair left. Only the choice is kept.
  void attend_to_chosen(double H, double D, double E) {
    multiply_adds(visible_ * H * D, 1, 3);
    multiply_adds(visible_ * H * E, 1, 2);
  }
  void keeps(double count) { activation_bytes_ += count * element_; }
  /// Adds kept values of the wide type: f32 next to bf16.
  void keeps_wide(double count) { activation_bytes_ += count * wide_; }
  void keeps_ids(double count) { activation_bytes_ += count * static_cast<double>(bytes_of(DType::i32)); }
  /// Adds the cosines and sines that rotate heads, or parts of heads, of this width.
  void keeps_angles(const AttentionConfig& config, Index width);
  /// Adds a bias of each head's scores by distance: one tensor, however many pieces add to it. The
  /// gradient of a learned one takes a pass of its own over scores and weights.
  void keeps_distances(const AttentionConfig& config, bool is_learned);
  void caches(double count) { cache_bytes_ += count * element_; }
  /// Adds what a cache holds per row: a state in the wide type, and `count` values in the activations' type.
  void caches_row(double state, double count) { cached_row_ += state * wide_ + count * element_; }
  /// Sums beyond the range of an Index become its largest value.
  AttentionCost total() const;

 private:
  void multiply_adds(double count, double forward, double backward) {
    forward_flops_ += 2 * forward * count;
    backward_flops_ += 2 * backward * count;
  }

  bool has_distances_ = false, learns_distances_ = false;
  double visible_, element_, wide_, parameters_ = 0, forward_flops_ = 0, backward_flops_ = 0,
                                    activation_bytes_ = 0, cache_bytes_ = 0, cached_row_ = 0;
};

}  // namespace tapeformer
