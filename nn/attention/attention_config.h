#pragma once

#include <tapeformer/autograd/random.h>
#include <tapeformer/nn/attention/latent.h>

#include <memory>
#include <string>

namespace tapeformer {

enum class AttentionKind { multi_head, grouped_query, multi_query, latent, additive };
/// "mha", "gqa", "mqa", "mla" or "additive".
const char* name_of(AttentionKind kind);
/// Throws: Error listing the names there are.
AttentionKind attention_kind(const std::string& name);

/// An attention layer of any kind; 0 leaves a size to the kind's own default. Latent attention norms its
/// latents, and has no biases.
struct AttentionConfig {
  AttentionKind kind = AttentionKind::multi_head;
  Index width = 0;               ///< C, of the queries' input
  Index heads = 1;               ///< H
  Index groups = 0;              ///< G, of grouped_query; 0 for the greatest divisor of heads up to heads / 2
  Index memory_width = 0;        ///< of the keys' and values' input; 0 for width
  Index output_width = 0;        ///< O, of the output; 0 for width
  Index key_width = 0;           ///< D, of a head's queries and keys; 0 for output_width / heads
  Index value_width = 0;         ///< E, of a head's values; 0 for output_width / heads
  Index latent_width = 0;        ///< of latent's compressed keys and values; 0 for width / 2, at least 1
  Index query_latent_width = 0;  ///< of latent's compressed queries; 0 for queries straight from the input
  Index rotary_width = 0;  ///< of latent's rotary part of a key; 0 for key_width / 2, even and at least 2
  double dropout = 0;      ///< on the attention weights
  bool bias = true;
  bool cross = false;   ///< reads a memory: no rotary positions (latent neither), no packed projection
  bool rotary = false;  ///< turn queries and keys by their positions (grouped_query, multi_query, multi_head)
  RotaryConfig rotations = {};  ///< how, where they are turned
  bool packed = true;           ///< multi_head projects to queries, keys and values by one matrix

  /// Throws: Error naming the sizes that do not fit the kind or each other.
  void check() const;
  /// Heads with keys and values of their own: groups, 1 of multi_query, else all.
  Index key_heads() const;
  /// With the kind's defaults in place of zeros, and off what the kind or cross leaves out. latent_width is
  /// left to LatentConfig::resolved().
  /// Throws: as check()
  AttentionConfig resolved() const;
};

/// Of a latent layer. Throws: as check()
LatentConfig latent_config(const AttentionConfig& config);

/// Throws: as check()
std::unique_ptr<Attention> make_attention(const AttentionConfig& config, Generator& random);

}  // namespace tapeformer
