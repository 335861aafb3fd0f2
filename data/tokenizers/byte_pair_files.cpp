#include <tapeformer/autograd/format.h>
#include <tapeformer/autograd/system/file.h>
#include <tapeformer/data/tokenizers/byte_pair.h>
#include <tapeformer/data/tokenizers/json/read_json.h>
#include <tapeformer/data/tokenizers/tokenizer_file.h>

#include <algorithm>
#include <numeric>
#include <sstream>
#include <unordered_map>

namespace tapeformer {
namespace {

using nlohmann::json;
using Ids = std::unordered_map<std::string, std::int32_t>;

bool can_be_seen(unsigned char byte) { return (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte != 0xad); }

/// Tokens and their ids, which must be 0, 1, ... without gaps.
Ids parse_vocabulary(const std::string& text, const std::string& name) {
  const char* const problem = "is not a JSON object of tokens and their ids";
  const json object = reading_json(name, problem, [&] { return parse_json<json>(text, "it"); });
  if (!object.is_object()) throw DataError(name, 0, problem);
  const auto size = static_cast<std::int64_t>(object.size());
  std::vector<bool> taken(object.size());
  Ids ids;
  ids.reserve(object.size());
  for (const auto& [token, value] : object.items()) {
    const auto id = value.is_number_integer() ? value.get<std::int64_t>() : -1;
    if (id < 0 || id >= size || taken[static_cast<std::size_t>(id)])
      throw DataError(name, 0,
                      format("has {}, so their ids must be 0 to {}, each once; \"{}\" has {}",
                             number_of(size, "token"), size - 1, token, value.dump()));
    taken[static_cast<std::size_t>(id)] = true;
    ids.emplace(token, static_cast<std::int32_t>(id));
  }
  return ids;
}

}  // namespace

std::string byte_pair_characters(std::string_view bytes) {
  static const std::array<std::string, 256> characters = [] {
    std::array<std::string, 256> all;
    unsigned next = 0x100;
    for (unsigned i = 0; i < 256; ++i) {
      const unsigned point = can_be_seen(static_cast<unsigned char>(i)) ? i : next++;
      if (point >= 0x80) all[i] = static_cast<char>(0xc0 | (point >> 6));
      all[i] += static_cast<char>(point < 0x80 ? point : 0x80 | (point & 0x3f));
    }
    return all;
  }();
  std::string result;
  for (const char byte : bytes) result += characters[static_cast<unsigned char>(byte)];
  return result;
}

std::array<unsigned char, 256> byte_pair_order() {
  std::array<unsigned char, 256> order;
  std::iota(order.begin(), order.end(), static_cast<unsigned char>(0));
  std::stable_partition(order.begin(), order.end(), can_be_seen);
  return order;
}

BytePairVocabulary parse_byte_pair_files(const std::string& vocabulary, const std::string& vocabulary_name,
                                         const std::string& merges, const std::string& merges_name) {
  const Ids ids = parse_vocabulary(vocabulary, vocabulary_name);
  std::vector<bool> made(ids.size());  // whether a token is a byte or the result of an earlier merge
  BytePairVocabulary result;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const std::string character = byte_pair_characters(std::string(1, static_cast<char>(byte)));
    const auto found = ids.find(character);
    if (found == ids.end())
      throw DataError(vocabulary_name, 0, format("has no token for byte {}, \"{}\"", byte, character));
    result.bytes[byte] = found->second;
    made[static_cast<std::size_t>(found->second)] = true;
  }
  std::istringstream lines(merges);
  std::string merge;
  for (std::int64_t line = 1; std::getline(lines, merge); ++line) {
    if (!merge.empty() && merge.back() == '\r') merge.pop_back();
    if (merge.empty() || (line == 1 && merge.compare(0, 8, "#version") == 0)) continue;
    const std::size_t space = merge.find(' ');
    if (space == std::string::npos || space != merge.rfind(' '))
      throw DataError(merges_name, line,
                      format("a merge must be two tokens with a space between them; got \"{}\"", merge));
    const std::string left = merge.substr(0, space), right = merge.substr(space + 1);
    const auto id_of = [&](const std::string& part) {
      const auto found = ids.find(part);
      if (found == ids.end() || !made[static_cast<std::size_t>(found->second)])
        throw DataError(merges_name, line,
                        format("\"{}\" is not a byte, and no earlier line makes it", part));
      return found->second;
    };
    const std::int32_t left_id = id_of(left), right_id = id_of(right);
    const auto whole = ids.find(left + right);
    if (whole == ids.end())
      throw DataError(merges_name, line,
                      format("makes \"{}\", which {} does not have", left + right, vocabulary_name));
    made[static_cast<std::size_t>(whole->second)] = true;
    result.merges.push_back({left_id, right_id, whole->second});
  }
  for (const auto& [token, id] : ids) {
    if (!made[static_cast<std::size_t>(id)]) result.controls.emplace_back(id, token);
  }
  std::sort(result.controls.begin(), result.controls.end());
  return result;
}

std::unique_ptr<Tokenizer> load_byte_pair_tokenizer(const std::string& vocabulary_path,
                                                    const std::string& merges_path) {
  const std::string vocabulary = read_file(vocabulary_path), merges = read_file(merges_path);
  if (merges.empty()) throw DataError(merges_path, 0, "is empty");
  return std::make_unique<BytePairTokenizer>(
      parse_byte_pair_files(vocabulary, vocabulary_path, merges, merges_path));
}

std::string BytePairTokenizer::piece(std::int32_t id) const {
  const std::string bytes = bytes_of(id);
  const auto& controls = vocabulary_.controls;
  const auto control = std::lower_bound(controls.begin(), controls.end(), std::pair(id, std::string()));
  const bool is_control = control != controls.end() && control->first == id;
  return is_control ? control->second : byte_pair_characters(bytes);
}

BytePairFiles BytePairTokenizer::files() const {
  BytePairFiles files;
  for (std::int32_t id = 0; id < vocabulary_size(); ++id)
    files.vocabulary +=
        (id == 0 ? "{" : ", ") + json(piece(id)).dump(-1, ' ', true) + ": " + std::to_string(id);
  files.vocabulary += "}\n";
  files.merges = "#version: 0.2\n";
  for (const BytePairMerge& merge : merges_.list())
    files.merges += piece(merge.left) + " " + piece(merge.right) + "\n";
  return files;
}

BytePairFiles byte_pair_files(const Tokenizer& tokenizer) {
  const auto* byte_pair = dynamic_cast<const BytePairTokenizer*>(&tokenizer.plain());
  if (byte_pair) return byte_pair->files();
  throw DataError(format("[tokenizer] only a bpe tokenizer has merges; got kind {}", tokenizer.kind()));
}

std::string BytePairTokenizer::serialize() const {
  const BytePairFiles both = files();
  return write_tokenizer_file(kind(), both.vocabulary + both.merges);
}

TokenizerKind text_byte_pairs() {
  const auto read = [](const std::string& payload, const std::string& name) {
    const auto [vocabulary, merges] = split_first_line(payload);
    return std::make_unique<BytePairTokenizer>(
        parse_byte_pair_files(std::string(vocabulary), name, std::string(merges), name));
  };
  return {"bpe", "bpe", train_byte_pair_tokenizer, read, 257, true};
}

}  // namespace tapeformer
