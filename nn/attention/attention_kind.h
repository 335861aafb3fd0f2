#pragma once

#include <tapeformer/autograd/random.h>
#include <tapeformer/nn/attention/attention.h>
#include <tapeformer/nn/attention/attention_config.h>
#include <tapeformer/nn/attention/cost.h>

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace tapeformer {

enum AttentionAbility : unsigned {
  kCanRotate = 1,         ///< takes rotary positions
  kCanCache = 2,          ///< keeps keys and values of earlier calls in a KvCache
  kCanModelLanguage = 4,  ///< may be a DecoderOnly's
  kCanExport = 8,         ///< has the parameters of multi-head attention: transformers' Llama can express it
};

/// One way of several in which a kind computes the same.
struct AttentionForm {
  std::string name;  ///< "absorbed"
  std::function<void(AttentionConfig&)> choose;
};

/// All that models, programs and tests know of a kind of attention.
struct AttentionKind {
  std::string name;   ///< in config.json and --attention: "mha"
  std::string title;  ///< "multi-head"
  std::function<std::unique_ptr<Attention>(const AttentionConfig&, Generator&)> make;
  std::vector<std::string> fields =
      {};  ///< of AttentionConfig, that this kind has a use for and not all have
  unsigned can = kCanCache | kCanModelLanguage;  ///< AttentionAbility, or'ed
  /// The kind's own part of AttentionConfig::resolved(), after what all kinds share. Throws: Error
  std::function<void(AttentionConfig&)> complete = {};
  /// Of a resolved config; a kind without one is not covered by attention_cost().
  std::function<AttentionCost(const AttentionConfig&, const AttentionCall&)> cost = {};
  std::vector<AttentionForm> forms = {};

  bool uses(const std::string& field) const;
};

/// Ours, and those that a program has registered.
const std::deque<AttentionKind>& attention_kinds();
/// Makes a kind known to models and programs. Call it before models are made, from one thread.
/// Throws: Error if the name is taken
void register_attention_kind(AttentionKind kind);
/// Throws: Error listing the names there are
const AttentionKind& attention_kind(const std::string& name);
/// "mha, gqa": the kinds that `which` is true of.
std::string kind_names(const std::function<bool(const AttentionKind&)>& which);

/// Throws: as AttentionConfig::check()
std::unique_ptr<Attention> make_attention(const AttentionConfig& config, Generator& random);

}  // namespace tapeformer
