#pragma once

#include <yaml.h>

#include <nlohmann/json_fwd.hpp>
#include <string>

// Other programs' YAML, by libyaml; for sources only.
namespace tapeformer {

/// The first document of a YAML text.
class YamlDocument {
 public:
  /// Throws:  DataError naming `path` and the line if the text is not YAML
  YamlDocument(const std::string& path, std::string text);
  ~YamlDocument();
  YamlDocument(const YamlDocument&) = delete;
  YamlDocument& operator=(const YamlDocument&) = delete;

  /// nullptr for a text without content.
  const yaml_node_t* root() { return yaml_document_get_root_node(&document_); }
  const yaml_node_t& node(int number) { return *yaml_document_get_node(&document_, number); }

 private:
  const std::string text_;
  yaml_parser_t parser_{};
  yaml_document_t document_{};
};

/// The text of a scalar; "" for any other node.
std::string text_of(const yaml_node_t& node);

/// A mapping of names to scalars and lists of scalars as an object. Unquoted scalars that are valid JSON
/// become numbers, flags or null, all others texts.
/// Throws:  DataError as above, and for any other YAML, a name that comes twice, or over 64 KiB
nlohmann::ordered_json parse_yaml(const std::string& path, std::string text);

}  // namespace tapeformer
