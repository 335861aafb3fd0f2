#pragma once

#include <tapeformer/autograd/config/own_fields.h>
#include <tapeformer/autograd/ops/attention.h>
#include <tapeformer/autograd/ops/rotary.h>
#include <tapeformer/nn/attention/pieces/pieces.h>
#include <tapeformer/nn/positions.h>

namespace tapeformer {

/// How latent attention computes. naive: each head's keys and values are computed from the latents. absorbed:
/// queries attend to the latents themselves, which reads far less where few queries meet many keys, as in
/// decoding. automatic: absorbed if the cache holds tokens, else naive.
enum class LatentForm { automatic, naive, absorbed };
template <>
inline constexpr EnumNames kNames<LatentForm>{"form", {"automatic", "naive", "absorbed"}};

template <>
inline constexpr EnumNames kNames<RotaryLayout>{"rotary_layout", {"interleaved", "half_split"}};

/// The configuration of an attention layer of any kind: sizes, fields that several kinds share, and those of
/// the pieces of multi-head attention (pieces/pieces.h). A size of 0 means its default. A field that the kind
/// does not use must keep its default, except `bias` and `packed`, which are ignored.
struct AttentionConfig : AttentionPieces::Fields {
  /// The defaults of this kind, with this many heads.
  AttentionConfig(std::string kind_name = "mha", Index head_count = 1)
      : kind(std::move(kind_name)), heads(head_count) {}

  std::string kind;              ///< a name in attention_kinds()
  Index heads;                   ///< H
  Index groups = 0;              ///< G; 0 for heads, of mqa 1, of gqa their greatest divisor up to heads / 2
  Index width = 0;               ///< C, of the queries' input
  Index memory_width = 0;        ///< of the keys' and values' input; 0 for width
  Index value_memory_width = 0;  ///< of the values' input; 0 for memory_width
  Index output_width = 0;        ///< O, of the output; 0 for width
  Index key_width = 0;           ///< D, of a head's queries and keys; 0 for output_width / heads
  Index value_width = 0;         ///< E, of a head's values; 0 for output_width / heads
  Index latent_width = 0;        ///< d_c, of mla's keys and values; 0 for width / 2, at least 1
  Index query_latent_width = 0;  ///< d'_c, of mla's queries; 0 for queries straight from the input
  Index rotary_width = 0;        ///< d_R, of mla's rotary keys; 0 for half of key_width, even, at least 2
  double dropout = 0;            ///< on the attention weights
  double output_dropout = 0;     ///< on the output
  bool bias = true;              ///< of all projections; mla has none
  std::optional<bool> output_bias = {};  ///< of the output's projection; unset: as `bias`
  bool cross = false;           ///< cross-attention: no rotary positions, the memory projected separately
  bool rotary = false;          ///< rotary positions (RoPE) on queries and keys, unless `cross`
  RotaryConfig rotations = {};  ///< base, scaling and layout of the rotary positions
  bool packed = true;           ///< mha without `cross` has one matrix for queries, keys and values
  bool sequence_first = false;  ///< inputs and output are [T, B, C]; masks and weights stay as they are
  bool norm = true;             ///< mla has RMS norms on the latents
  Index index_heads = 0;        ///< of mla's indexer; 0 for a fourth of heads, at least 1
  Index index_width = 0;        ///< of its queries and keys; 0 for key_width, at least rotary_width
  Index index_top_k = 0;        ///< K, keys of a query, which the indexer chooses; 0 for all keys
  double index_loss = 1;        ///< the weight of the indexer's loss
  RotaryLayout index_rotary_layout = RotaryLayout::half_split;  ///< of its rotary components
  double score_scale = 0;           ///< of the scores; 0 for 1 / sqrt(D), of mla 1 / sqrt(D + d_R)
  bool shared_key_rotation = true;  ///< the part of mla's keys that heads share is rotated by positions
  bool shared_keys = false;         ///< uses only the keys and values in AttentionContext::shared
  double lambda_initial = 0.8;      ///< initial lambda of differential attention
  bool head_norm_gain = true;       ///< a gain in the norms of differential attention's heads
  double head_norm_epsilon = 1e-5;  ///< their epsilon
  LatentForm form = LatentForm::automatic;  ///< of mla
  OwnValues own = {};                       ///< values of the fields that the kind's row of the table adds

  /// Adds the part of a model's positions that is in attention: rotary positions or a relative bias. Without
  /// positions mla has no rotary keys, or keeps them without shared_key_rotation.
  /// Throws: Error for positions that the kind cannot have, or a rotary_width without rotary positions
  void add_positions(PositionKind positions);
  /// Throws: Error that names the fields that do not fit the kind or each other.
  void check() const { resolved(); }
  /// A copy with defaults in place of zeros, and without the features that the kind or `cross` does not use.
  /// It is for reading; make_attention() takes the original config.
  /// Throws: as check()
  AttentionConfig resolved() const;
  /// A copy of kind `name`. Fields of this kind that `name` does not use are reset to their defaults.
  AttentionConfig of_kind(const std::string& name) const;
  /// G of a resolved config: the number of key and value heads.
  Index key_heads() const { return groups > 0 ? groups : heads; }

  /// True if an indexer has a loss.
  bool has_index_loss() const { return index_top_k > 0 && index_loss > 0; }

  /// A heading of options in --help that models share.
  static constexpr const char* kMultiHeadPart = "multi-head attention (mha, gqa, mqa)";
  /// Another heading that models share.
  static constexpr const char* kPositionsPart = "positions and windows";
  /// The fields that are also a model's. The help of "attention" lists the kinds that have all abilities of
  /// `can` and none of `cannot`.
  void describe_in_models(const FieldVisitor& field, unsigned can = 0, unsigned cannot = 0);
  /// The other fields. A model has those that its own description names, and decides the rest.
  void describe_in_layers(const FieldVisitor& field);
  void describe(const FieldVisitor& field) { describe_in_models(field), describe_in_layers(field); }
};

/// Checks the attention in a model's config, which describes these fields: the model sets the others, which
/// are not in config.json.
/// Throws: Error naming one of the others that is not at its default
void check_embedded(const char* model, const FieldList& fields, const AttentionConfig& attention);

}  // namespace tapeformer
