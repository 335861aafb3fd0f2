#pragma once

#include <tapeformer/nn/formats/strict_json.h>
#include <tapeformer/nn/transformer/decoder_only_config.h>
#include <tapeformer/nn/transformer/encoder_decoder_config.h>

#include <initializer_list>
#include <set>
#include <string>

// The map between a model family's config.json and our configuration; for sources only.
namespace tapeformer {

/// The argument of a family's description, which states each field once. It reads the fields from a file,
/// writes them into one, or fits the model to the family, with the fewest changes that let it express the
/// model.
class FieldMap {
 public:
  using Json = nlohmann::ordered_json;

  /// A size, a number, a share below 1 or a flag under another name; required unless it has a default.
  void field(const char* theirs, const char* ours, const Json& otherwise = nullptr);
  /// A size that may be 0 in our configuration, which means `resolved`; required unless it has a default.
  void size(const char* theirs, const char* ours, Index resolved, Index otherwise = 0);
  /// A field that has this value in all models of the family.
  void fixed(const char* ours, const FieldValue& value);
  /// Fields that the family has in another form, or does not use; "rotary_*" for all that begin so.
  void has(std::initializer_list<const char*> ours) { ours_.insert(ours.begin(), ours.end()); }
  /// A field of the file that must have this value or be missing, and is not written.
  void demand(const char* theirs, const Json& value);
  /// Fields of the file that have no effect.
  void ignore(std::initializer_list<const char*> theirs);
  /// The activation of feed-forward networks, which are all gated or all not.
  void activation(const char* theirs, const char* otherwise, bool gated);

  // For a field in a form of its own: one of the three says what the map does with the model.
  JsonFields* reads = nullptr;  ///< the file that is read
  Json* writes = nullptr;       ///< the file that is written
  bool fits = false;

 protected:
  FieldMap() = default;
  FieldMap(const FieldMap&) = delete;
  /// nullptr if our configuration has no such field.
  ConfigField* find(const std::string& name);
  ConfigField& ours(const std::string& name) { return *find(name); }
  bool has_field(const std::string& name) const;

  FieldList list_;

 private:
  std::set<std::string> ours_;  // those that the description sets
};

/// The map of a family of DecoderOnly or EncoderDecoder models.
template <class Config>
class ConfigMapOf : public FieldMap {
 public:
  using Describe = void (*)(ConfigMapOf& map);

  static Config read(Describe describe, JsonFields& file);
  static void write(Describe describe, const Config& model, Json& file);
  /// A field that the family lacks takes its default.
  static Config fit(Describe describe, const Config& model);

  Config model;

 private:
  explicit ConfigMapOf(const Config& config) : model(config) { list_ = fields_of(model); }
};
/// The map of a language model.
using ConfigMap = ConfigMapOf<DecoderOnlyConfig>;
/// The map of a translation model.
using TranslationMap = ConfigMapOf<EncoderDecoderConfig>;

}  // namespace tapeformer
