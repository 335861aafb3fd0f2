#pragma once

#include <tapeformer/nn/formats/strict_json.h>
#include <tapeformer/nn/transformer/decoder_only_config.h>

#include <initializer_list>
#include <set>
#include <string>

// The map between the config.json of a family of models and our configuration; for sources only.
namespace tapeformer {

/// The argument of a family's description, which states each field once, reads it from a file, writes it
/// into one, or fits the model to the family, which changes as little as lets the family express it.
class ConfigMap {
 public:
  using Json = nlohmann::ordered_json;
  using Describe = void (*)(ConfigMap& map);

  static DecoderOnlyConfig read(Describe describe, JsonFields& file);
  static void write(Describe describe, const DecoderOnlyConfig& model, Json& file);
  /// A field that the family does not have takes its default.
  static DecoderOnlyConfig fit(Describe describe, const DecoderOnlyConfig& model);

  /// A size, a number, a share below 1 or a flag under another name; required unless it has a default.
  void field(const char* theirs, const char* ours, const Json& otherwise = nullptr);
  /// A field that has this value in all models of the family.
  void fixed(const char* ours, const FieldValue& value);
  /// Fields that the family has in another form, or does not compute with; "rotary_*" for all that begin so.
  void has(std::initializer_list<const char*> ours) { ours_.insert(ours.begin(), ours.end()); }
  /// A field of the file that is refused with any other value, and not written.
  void demand(const char* theirs, const Json& value);
  /// Fields of the file that change nothing.
  void ignore(std::initializer_list<const char*> theirs);
  /// The activation of feed-forward networks that all are gated, or all are not.
  void activation(const char* theirs, const char* otherwise, bool gated);
  /// The hidden width of feed-forward networks: required unless it is `times` the width.
  void hidden_width(const char* theirs, Index times = 0);

  /// For a field in a form of its own: one of the three that follow says what is done with `model`.
  DecoderOnlyConfig model;
  JsonFields* reads = nullptr;  ///< the file that is read
  Json* writes = nullptr;       ///< the file that is written
  bool fits = false;

 private:
  explicit ConfigMap(const DecoderOnlyConfig& config) : model(config), list_(fields_of(model)) {}
  ConfigMap(const ConfigMap&) = delete;
  ConfigField& ours(const std::string& name);
  bool has_field(const std::string& name) const;

  FieldList list_;
  std::set<std::string> ours_;  // decided by the description
};

}  // namespace tapeformer
