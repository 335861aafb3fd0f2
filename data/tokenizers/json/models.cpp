#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/data/tokenizers/json/parts.h>
#include <tapeformer/data/tokenizers/json/read_json.h>
#include <tapeformer/data/tokenizers/utf8.h>

#include <algorithm>
#include <iterator>
#include <limits>

namespace tapeformer::tokenizer_json {
namespace {

/// SentencePiece's unigram model: pieces with scores, the logarithms of their probabilities.
class UnigramModel : public Model {
 public:
  explicit UnigramModel(const Json& part) {
    std::int32_t id = 0;
    double least = 0;
    for (const Json& entry : part.at("vocab")) {
      const auto piece = entry.at(0).get<std::string>();
      const double score = entry.at(1).get<double>();
      least = id == 0 ? score : std::min(least, score);
      vocabulary_[piece] = id++;  // of equal pieces the last counts, as in the tokenizers package
      scores_.push_back(score);
      longest_ = std::max(longest_, piece.size());
    }
    unknown_ = part.value("unk_id", Json()).is_null() ? -1 : token_id(part.at("unk_id"));
    if (unknown_ >= id) throw UnsupportedPart{"an unk_id outside the vocabulary"};
    unknown_score_ = least - kUnknownPenalty;
    if (part.value("byte_fallback", false)) fall_back_to_bytes();
  }

  /// Chooses the pieces with the highest sum of scores.
  void encode(const std::string& text, std::vector<std::int32_t>& ids) const override {
    struct Node {
      double score = -std::numeric_limits<double>::infinity();
      std::size_t begin = 0;
      std::int32_t id = -1;
      bool is_reached = false;
    };
    std::vector<Node> best(text.size() + 1);
    best[0] = {0, 0, -1, true};
    for (std::size_t begin = 0, length; begin < text.size(); begin += length) {
      length = code_point_length(std::string_view(text).substr(begin));
      const auto reach = [&](std::size_t end, double score, std::int32_t id) {
        const double sum = best[begin].score + score;
        if (!best[end].is_reached || sum > best[end].score) best[end] = {sum, begin, id, true};
      };
      bool has_character = false;
      for (std::size_t end = begin + length; end <= text.size() && end - begin <= longest_;) {
        const auto found = vocabulary_.find(text.substr(begin, end - begin));
        if (found != vocabulary_.end()) {
          reach(end, scores_[static_cast<std::size_t>(found->second)], found->second);
          has_character = has_character || end == begin + length;
        }
        if (end == text.size()) break;
        end += code_point_length(std::string_view(text).substr(end));
      }
      if (!has_character) reach(begin + length, unknown_score_, -1);
    }
    std::vector<std::pair<std::size_t, std::size_t>>
        parts;  // start and end of each, the last part first; neighbouring unknown parts are joined
    bool after_unknown = false;
    for (std::size_t end = text.size(); end > 0; end = best[end].begin) {
      const bool is_unknown = best[end].id < 0 || best[end].id == unknown_;
      if (is_unknown && after_unknown)
        parts.back().first = best[end].begin;
      else
        parts.emplace_back(best[end].begin, end);
      after_unknown = is_unknown;
    }
    for (auto part = parts.rbegin(); part != parts.rend(); ++part)
      append(text.substr(part->first, part->second - part->first), ids);
  }

 private:
  static constexpr double kUnknownPenalty = 10;

  void append(const std::string& piece, std::vector<std::int32_t>& ids) const {
    const auto found = vocabulary_.find(piece);
    if (found != vocabulary_.end()) return ids.push_back(found->second);
    if (append_bytes(piece, ids)) return;
    if (unknown_ < 0)
      throw DataError("[tokenizer] the tokenizer.json has neither a piece for \"" + piece +
                      "\" nor an unk_id");
    ids.push_back(unknown_);
  }

  std::vector<double> scores_;
  std::int32_t unknown_ = -1;
  double unknown_score_ = 0;
  std::size_t longest_ = 0;
};

/// BERT's WordPiece: takes the longest piece, from left to right.
class WordPieceModel : public Model {
 public:
  explicit WordPieceModel(const Json& part)
      : prefix_(part.value("continuing_subword_prefix", "##")),
        most_(part.value("max_input_chars_per_word", std::size_t{100})) {
    for (const auto& [piece, id] : part.at("vocab").items()) {
      vocabulary_.emplace(piece, token_id(id));
      longest_ = std::max(longest_, piece.size());
    }
    const auto unknown = vocabulary_.find(part.value("unk_token", "[UNK]"));
    if (unknown == vocabulary_.end()) throw UnsupportedPart{"an unk_token that is not in the vocabulary"};
    unknown_ = unknown->second;
  }

  void encode(const std::string& word, std::vector<std::int32_t>& ids) const override {
    const std::size_t before = ids.size();
    const auto give_up = [&] {
      ids.resize(before);
      ids.push_back(unknown_);
    };
    if (split_code_points(word).size() > most_) return give_up();
    for (std::size_t begin = 0; begin < word.size();) {
      std::size_t end = std::min(word.size(), begin + longest_);
      while (end < word.size() && (word[end] & 0xc0) == 0x80) ++end;
      auto found = vocabulary_.end();
      for (; end > begin; --end) {
        if (end < word.size() && (word[end] & 0xc0) == 0x80) continue;  // within a character
        found = vocabulary_.find((begin > 0 ? prefix_ : "") + word.substr(begin, end - begin));
        if (found != vocabulary_.end()) break;
      }
      if (end == begin) return give_up();
      ids.push_back(found->second);
      begin = end;
    }
  }

 private:
  const std::string prefix_;
  const std::size_t most_;
  std::size_t longest_ = 0;
  std::int32_t unknown_ = 0;
};

}  // namespace

void Model::fall_back_to_bytes() {
  for (unsigned byte = 0; byte < 256; ++byte) {
    const auto found = vocabulary_.find(format("<0x{:02X}>", byte));
    bytes_.push_back(found == vocabulary_.end() ? -1 : found->second);
  }
}

bool Model::append_bytes(std::string_view text, std::vector<std::int32_t>& ids) const {
  const auto id_of = [&](char byte) { return bytes_[static_cast<unsigned char>(byte)]; };
  const auto is_missing = [&](char byte) { return id_of(byte) < 0; };
  if (bytes_.empty() || std::any_of(text.begin(), text.end(), is_missing)) return false;
  std::transform(text.begin(), text.end(), std::back_inserter(ids), id_of);
  return true;
}

std::unique_ptr<Model> make_model(const Json& part) {
  std::string type = part.value("type", "none");
  if (type == "none") type = part.at("vocab").is_array() ? "Unigram" : "BPE";  // older files do not say
  if (type == "BPE") return make_byte_pair_model(part);
  if (type == "Unigram") return std::make_unique<UnigramModel>(part);
  if (type == "WordPiece") return std::make_unique<WordPieceModel>(part);
  throw UnsupportedPart{"a model of type " + type};
}

}  // namespace tapeformer::tokenizer_json
