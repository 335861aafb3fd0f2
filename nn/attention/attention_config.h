#pragma once

#include <tapeformer/autograd/ops/rotary.h>

#include <optional>
#include <string>
#include <vector>

namespace tapeformer {

/// How latent attention computes. naive: each head's keys and values are computed from the latents. absorbed:
/// queries attend to the latents themselves, which reads far less where few queries meet many keys, as in
/// decoding. automatic: absorbed once a cache holds something, else naive.
enum class LatentForm { automatic, naive, absorbed };

/// The configuration of an attention layer of any kind. A size of 0 means its default. A field that the kind
/// does not use must keep its default; only `bias` and `packed` are ignored instead.
struct AttentionConfig {
  std::string kind = "mha";      ///< a name in attention_kinds()
  Index heads = 1;               ///< H
  Index groups = 0;              ///< G, of gqa; 0 for the greatest divisor of heads up to heads / 2
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
  LatentForm form = LatentForm::automatic;  ///< of mla

  /// Throws: Error that names the fields that do not fit the kind or each other.
  void check() const { resolved(); }
  /// A copy with defaults in place of zeros, and with what the kind or `cross` does not use switched off. It
  /// is for reading; make_attention() takes the config as it was given.
  /// Throws: as check()
  AttentionConfig resolved() const;
  /// The same for the kind `name`, whatever `kind` is.
  AttentionConfig resolved_as(const char* name) const;
  /// G of a resolved config: the number of key and value heads.
  Index key_heads() const { return groups > 0 ? groups : heads; }
};

/// Checks the attention that a model embeds: only kind, heads, rotations and the fields in `kept` may be set.
/// The model decides the rest, and its config.json has no place for it.
/// Throws: Error that names another field that is not at its default
void check_embedded(const char* model, const AttentionConfig& config, const std::vector<std::string>& kept);

}  // namespace tapeformer
