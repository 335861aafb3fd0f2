#include <tapeformer/autograd/config/yaml.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/autograd/system/file.h>
#include <tapeformer/data/parallel_corpus.h>
#include <tapeformer/data/tokenizers/pieces.h>
#include <tapeformer/data/tokenizers/text_vocabulary.h>

#include <algorithm>
#include <filesystem>

namespace tapeformer {
namespace {

bool is_number(std::string_view text) {
  return !text.empty() && text.size() <= 18 &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

bool is_special(const std::string& piece) {
  static constexpr const char* kNames[] = {"<s>", "</s>", "<pad>", "<unk>"};
  return std::any_of(std::begin(kNames), std::end(kNames), [&](const char* name) { return piece == name; });
}

/// Lines `piece count`, or `piece`.
std::vector<std::string> read_list(const std::string& path, const std::vector<std::string>& lines) {
  std::vector<std::string> pieces;
  const bool counts = lines.front().find(' ') != std::string::npos;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::size_t space = lines[i].find_first_of(" \t");
    const bool fits = counts ? space != std::string::npos && lines[i][space] == ' ' && space > 0 &&
                                   is_number(std::string_view(lines[i]).substr(space + 1))
                             : space == std::string::npos && !lines[i].empty();
    if (!fits)
      throw DataError(path, static_cast<Index>(i + 1),
                      counts
                          ? "is not `piece count`, as the first line is"
                          : "is not one piece, as the first line is; try the .model file of a SentencePiece "
                            "vocabulary");
    pieces.push_back(lines[i].substr(0, space));
  }
  return pieces;
}

}  // namespace

bool is_text_vocabulary(const std::string& path) {
  const std::string ending = std::filesystem::path(path).extension().string();
  return ending == ".yml" || ending == ".yaml" || ending == ".txt" || ending == ".vocab";
}

std::vector<std::string> read_yaml_vocabulary(const std::string& path) {
  YamlDocument file(path, read_file(path));
  const yaml_node_t* root = file.root();
  if (root == nullptr) throw DataError(path, 0, "is empty");
  if (root->type != YAML_MAPPING_NODE) throw DataError(path, 0, "is not a list of `piece: id`");
  const auto& pairs = root->data.mapping.pairs;
  const auto count = static_cast<std::size_t>(pairs.top - pairs.start);
  std::vector<std::string> pieces(count);
  std::vector<bool> given(count);
  for (const yaml_node_pair_t* pair = pairs.start; pair != pairs.top; ++pair) {
    const yaml_node_t &key = file.node(pair->key), &value = file.node(pair->value);
    const auto line = static_cast<Index>(key.start_mark.line) + 1;
    const std::string id = text_of(value);
    if (key.type != YAML_SCALAR_NODE || !is_number(id)) throw DataError(path, line, "is not `piece: id`");
    const auto at = static_cast<std::size_t>(std::stoull(id));
    if (at >= count || given[at])
      throw DataError(path, line,
                      "has the id " + id + ", but the ids of " + number_of(count, "piece") +
                          " must be 0 to " + std::to_string(count - 1) + ", each once");
    given[at] = true;
    pieces[at] = text_of(key);
  }
  return pieces;
}

std::vector<std::string> read_text_vocabulary(const std::string& path) {
  const std::string ending = std::filesystem::path(path).extension().string();
  const bool yaml = ending == ".yml" || ending == ".yaml";
  std::vector<std::string> pieces = yaml ? read_yaml_vocabulary(path) : read_list(path, read_lines(path));
  pieces.erase(std::remove_if(pieces.begin(), pieces.end(), is_special), pieces.end());
  if (pieces.empty()) throw DataError(path, 0, "holds no pieces");
  return pieces;
}

std::unique_ptr<Tokenizer> load_text_vocabulary(const std::string& path) {
  return make_space_tokenizer(read_text_vocabulary(path), path);
}

}  // namespace tapeformer
