#include <tapeformer/autograd/config/json.h>
#include <tapeformer/autograd/config/yaml.h>
#include <tapeformer/autograd/error.h>

#include <utility>

namespace tapeformer {
namespace {

/// Deep nesting and many names take quadratic time.
constexpr std::size_t kMostBytes = 1 << 16;

}  // namespace

YamlDocument::YamlDocument(const std::string& path, std::string text) : text_(std::move(text)) {
  yaml_parser_initialize(&parser_);
  yaml_parser_set_input_string(&parser_, reinterpret_cast<const unsigned char*>(text_.data()), text_.size());
  if (yaml_parser_load(&parser_, &document_) == 0) {
    const std::string problem = parser_.problem != nullptr ? parser_.problem : "out of memory";
    const std::size_t line =
        parser_.error == YAML_READER_ERROR ? parser_.mark.line : parser_.problem_mark.line;
    yaml_parser_delete(&parser_);
    throw DataError(path, static_cast<std::int64_t>(line) + 1, "is not YAML: " + problem);
  }
}

YamlDocument::~YamlDocument() {
  yaml_document_delete(&document_);
  yaml_parser_delete(&parser_);
}

std::string text_of(const yaml_node_t& node) {
  if (node.type != YAML_SCALAR_NODE) return {};
  return {reinterpret_cast<const char*>(node.data.scalar.value), node.data.scalar.length};
}

nlohmann::ordered_json parse_yaml(const std::string& path, std::string text) {
  using Json = nlohmann::ordered_json;
  if (text.size() > kMostBytes) throw DataError(path, 0, "is too long for options");
  YamlDocument document(path, std::move(text));
  const auto scalar = [&](const yaml_node_t& node) -> Json {
    if (node.type != YAML_SCALAR_NODE)
      throw DataError(path, static_cast<std::int64_t>(node.start_mark.line) + 1, "is not a value");
    const std::string value = text_of(node);
    if (node.data.scalar.style != YAML_PLAIN_SCALAR_STYLE) return value;
    try {
      return parse_json(value);
    } catch (const CheckpointError&) {
      return value;
    }
  };
  const yaml_node_t* const root = document.root();
  if (root == nullptr || root->type != YAML_MAPPING_NODE)
    throw DataError(path, 0, "is not a mapping of names to values");
  Json object = Json::object();
  const auto& pairs = root->data.mapping.pairs;
  for (const yaml_node_pair_t* pair = pairs.start; pair != pairs.top; ++pair) {
    const yaml_node_t &key = document.node(pair->key), &value = document.node(pair->value);
    const std::string name = text_of(key);
    const auto line = static_cast<std::int64_t>(key.start_mark.line) + 1;
    if (key.type != YAML_SCALAR_NODE) throw DataError(path, line, "is not a name");
    if (object.contains(name)) throw DataError(path, line, "repeats a name");
    if (value.type == YAML_SEQUENCE_NODE) {
      Json& list = object[name] = Json::array();
      const auto& items = value.data.sequence.items;
      for (const yaml_node_item_t* item = items.start; item != items.top; ++item)
        list.push_back(scalar(document.node(*item)));
    } else {
      object[name] = scalar(value);
    }
  }
  return object;
}

}  // namespace tapeformer
