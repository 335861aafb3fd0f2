#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/text/json.h>
#include <tapeformer/autograd/text/number_of.h>
#include <tapeformer/data/parallel_corpus.h>
#include <tapeformer/data/tokenizers/text_vocabulary.h>
#include <tapeformer/data/tokenizers/translation_tokenizer_kinds.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

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

/// A key of YAML as Marian writes them, on one line. Throws: DataError
std::string yaml_key(std::string_view key, const std::string& path, Index line) {
  const char quote = key.empty() ? ' ' : key.front();
  if (quote != '"' && quote != '\'') return std::string(key);
  if (key.size() < 2 || key.back() != quote) throw DataError(path, line, "has a quote without its other");
  if (quote == '"') {
    try {
      return parse_json(key, "it").get<std::string>();  // the escapes of both, but for \x, \e and their like
    } catch (const Error& error) {
      throw DataError(path, line, std::string("has a key that cannot be read: ") + error.what());
    } catch (const nlohmann::json::exception&) {
      throw DataError(path, line, "has a key with an escape that JSON does not know");
    }
  }
  std::string text(key.substr(1, key.size() - 2));
  for (std::size_t at = text.find("''"); at != std::string::npos; at = text.find("''", at + 1))
    text.erase(at, 1);
  return text;
}

std::vector<std::string> read_yaml(const std::string& path, const std::vector<std::string>& lines) {
  std::vector<std::string> pieces(lines.size());
  std::vector<bool> given(lines.size());
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto line = static_cast<Index>(i + 1);
    const std::size_t colon = lines[i].rfind(": ");
    const std::string_view id =
        colon == std::string::npos ? "" : std::string_view(lines[i]).substr(colon + 2);
    if (!is_number(id)) throw DataError(path, line, "is not `piece: id`");
    const auto at = static_cast<std::size_t>(std::stoull(std::string(id)));
    if (at >= lines.size() || given[at]) {
      throw DataError(path, line,
                      "has the id " + std::string(id) + ", but the ids of " +
                          number_of(lines.size(), "line") + " are each of 0 to " +
                          std::to_string(lines.size() - 1) + " once");
    }
    given[at] = true;
    pieces[at] = yaml_key(std::string_view(lines[i]).substr(0, colon), path, line);
  }
  return pieces;
}

/// Lines `piece count`, or of a piece alone.
std::vector<std::string> read_list(const std::string& path, const std::vector<std::string>& lines) {
  std::vector<std::string> pieces;
  const bool counts = lines.front().find(' ') != std::string::npos;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::size_t space = lines[i].find_first_of(" \t");
    const bool fits = counts ? space != std::string::npos && lines[i][space] == ' ' && space > 0 &&
                                   is_number(std::string_view(lines[i]).substr(space + 1))
                             : space == std::string::npos && !lines[i].empty();
    if (!fits) {
      throw DataError(path, static_cast<Index>(i + 1),
                      counts
                          ? "is not `piece count`, as the first line is"
                          : "is not one piece, as the first line is; try the .model file of a SentencePiece "
                            "vocabulary");
    }
    pieces.push_back(lines[i].substr(0, space));
  }
  return pieces;
}

}  // namespace

bool is_text_vocabulary(const std::string& path) {
  const std::string ending = std::filesystem::path(path).extension().string();
  return ending == ".yml" || ending == ".yaml" || ending == ".txt" || ending == ".vocab";
}

std::vector<std::string> read_text_vocabulary(const std::string& path) {
  const std::vector<std::string> lines = read_lines(path);
  const std::string ending = std::filesystem::path(path).extension().string();
  const bool yaml = ending == ".yml" || ending == ".yaml";
  std::vector<std::string> pieces = yaml ? read_yaml(path, lines) : read_list(path, lines);
  pieces.erase(std::remove_if(pieces.begin(), pieces.end(), is_special), pieces.end());
  if (pieces.empty()) throw DataError(path, 0, "holds no pieces");
  return pieces;
}

std::unique_ptr<TranslationTokenizer> load_text_vocabulary(const std::string& path) {
  try {
    return make_piece_tokenizer(TokenizerKind::space, read_text_vocabulary(path));
  } catch (const DataError& error) {
    const std::string what = error.what();
    throw what.find(path) == 0 ? error : DataError(path, 0, what);
  }
}

}  // namespace tapeformer
