#pragma once

#include <tapeformer/nn/attention/attention_kind.h>
#include <tapeformer/nn/experts.h>
#include <tapeformer/nn/norm.h>
#include <tapeformer/nn/transformer/residual.h>

namespace tapeformer {

/// The configuration that layers of encoders and of decoders share.
struct TransformerLayerConfig {
  AttentionConfig attention{"mha", 8};           ///< its width and dropout are those below
  Index width = 256;                             ///< C
  Index feed_forward = 0;                        ///< F; 0 for 4 * width
  Unary activation = Unary::relu;                ///< of the feed-forward networks
  bool gated = false;                            ///< feed-forward networks are gated
  bool feed_forward_bias = true;                 ///< of both their projections
  ExpertsConfig experts = {};                    ///< of the feed-forward networks, of F each
  double dropout = 0;                            ///< on attention weights, activations and sublayers' outputs
  std::optional<double> attention_dropout = {};  ///< on attention weights instead
  std::optional<double> feed_forward_dropout = {};  ///< on activations instead
  NormKind norm = NormKind::layer;                  ///< of every sublayer
  bool norm_first = true;  ///< pre-norm: x + f(norm(x)); else post-norm: norm(x + f(x))
  double epsilon = 1e-5;   ///< of the norms

  /// F, with 0 replaced by its default.
  Index hidden_width() const { return feed_forward > 0 ? feed_forward : 4 * width; }
  /// Configuration of the self-attention, or of the cross-attention.
  AttentionConfig attention_config(bool cross) const;
  /// Configuration of the norms.
  NormConfig norm_config() const { return {norm, width, epsilon, true}; }

  void describe(const FieldVisitor& field);
};

/// Options of one call of a layer; only decoders have a memory.
struct TransformerLayerContext {
  Tensor key_mask = {};             ///< bool [B, T], true = token; undefined: all are tokens
  Tensor memory_mask = {};          ///< bool [B, S], likewise for the memory
  KvCache* self_cache = nullptr;    ///< keys and values of earlier tokens; the input's are appended
  KvCache* cross_cache = nullptr;   ///< keys and values of the memory, filled by the first call
  Tensor* cross_weights = nullptr;  ///< receives the weights [B, H, T, S] of the attention to the memory
  RotaryAngles angles = {};         ///< for self-attention, shared by a stack of layers; see AttentionContext
  LayerRecord* record = nullptr;    ///< routers of experts and indexers add to it
};

/// Which side of an EncoderDecoder a layer belongs to.
enum class TransformerSide { encoder, decoder };

/// Self-attention and a feed-forward network, each with residual and norm. In a decoder the self-attention is
/// causal, and attention to the encoder's output follows it.
/// Shapes:  x [B, T, C], memory [B, S, C] -> [B, T, C]
/// Source:  Vaswani et al. 2017, arXiv:1706.03762, section 3.1; pre-norm: Xiong et al. 2020, arXiv:2002.04745
class TransformerLayer : public Module {
 public:
  TransformerLayer(const TransformerLayerConfig& config, Generator& random,
                   TransformerSide side = TransformerSide::encoder);

  Tensor operator()(const Tensor& x, const Tensor& memory = {},
                    const TransformerLayerContext& context = {}) const;
  /// The layer inside a stack: the last residual sum may be left to the next layer's norm, which fuses it.
  void operator()(ResidualStream& stream, const Tensor& memory, const TransformerLayerContext& context) const;
  void visit(ParameterVisitor& visitor) override;
  /// The rotary angles of x's tokens, the same for every layer of a stack.
  RotaryAngles angles(const Tensor& x, const TransformerLayerContext& context) const;
  /// Widths of the self-attention's cache.
  CacheWidths self_cache_widths() const { return self_attention_->cache_widths(); }
  /// Widths of the cross-attention's cache.
  CacheWidths cross_cache_widths() const { return cross_attention_->cache_widths(); }

 private:
  NormPlace norm_place_;
  std::unique_ptr<Attention> self_attention_, cross_attention_;  // the second in decoders alone
  FeedForwardNetwork feed_forward_;
  Norm self_attention_norm_, cross_attention_norm_, feed_forward_norm_;
  Dropout dropout_;
};

}  // namespace tapeformer
