#pragma once

#include <tapeformer/autograd/random.h>
#include <tapeformer/nn/attention/attention.h>
#include <tapeformer/nn/attention/attention_config.h>
#include <tapeformer/nn/attention/cost.h>

#include <deque>

namespace tapeformer {

/// Abilities of a kind, joined by |.
enum AttentionAbility : unsigned {
  kCanRotate = 1,         ///< takes rotary positions
  kCanCache = 2,          ///< keeps keys and values of earlier calls in a KvCache
  kCanModelLanguage = 4,  ///< may be in a DecoderOnly
  kCanExport = 8,         ///< has the parameters of multi-head attention: transformers' Llama can express it
  /// Keeps a state of constant size in place of keys. So it is causal, knows the order of tokens without
  /// positions, and has no attention weights.
  kHasState = 16,
  kOnlyCausal = 32,  ///< takes no mask but the causal one, and attends to no other memory
};

/// One of several equivalent ways to compute a kind.
struct AttentionForm {
  std::string name;                              ///< "absorbed"
  std::function<void(AttentionConfig&)> choose;  ///< sets the fields that choose this form
};

/// Everything that models, programs and tests know about a kind of attention.
struct AttentionKind {
  std::string name;   ///< in config.json and --attention: "mha"
  std::string title;  ///< "multi-head"
  /// Makes a layer. Gets the user's config: call its resolved() before reading defaults or `own`.
  std::function<std::unique_ptr<Attention>(const AttentionConfig&, Generator&)> make;
  /// The fields of AttentionConfig that this kind uses, among those that only some kinds use.
  std::vector<std::string> fields = {};
  /// AttentionAbility flags. Without kCanCache, context.cache is never set, decoding computes the whole
  /// context at every step, and cache_widths() returns {}.
  unsigned can = kCanCache | kCanModelLanguage;
  /// The kind's part of AttentionConfig::resolved(), after the common one. Throws: Error
  std::function<void(AttentionConfig&)> complete = {};
  /// Adds the cost for a resolved config. Without it attention_cost() refuses the kind.
  std::function<void(const AttentionConfig&, CostSum&)> add_cost = {};
  std::vector<AttentionForm> forms = {};  ///< empty if there is only one
  /// Fields that this kind adds to AttentionConfig, which holds their values in `own`. In models, files and
  /// options they are like built-in ones.
  std::vector<OwnField> own = {};

  /// True if `field` is in `fields` or `own`.
  bool uses(const std::string& field) const;
};

/// The built-in kinds, and those that a program has registered.
const std::deque<AttentionKind>& attention_kinds();
/// Adds a kind for models and programs to use. Call it from one thread, before models are made.
/// Throws: Error if the name is taken
void register_attention_kind(AttentionKind kind);
/// Removes the kind that was registered last, once no model uses it.
void unregister_attention_kind();
/// The kind of that name. Throws: Error that lists the known names
const AttentionKind& attention_kind(const std::string& name);
/// "mha (multi-head), gqa (grouped-query)": the kinds with all abilities in `can` and none in `cannot`.
std::string kind_titles(unsigned can, unsigned cannot = 0);
/// The names of the kinds for which `which` holds: "mha, gqa".
std::string kind_names(const std::function<bool(const AttentionKind&)>& which);

/// Makes a layer of any kind. Throws: as AttentionConfig::check()
std::unique_ptr<Attention> make_attention(const AttentionConfig& config, Generator& random);

}  // namespace tapeformer
