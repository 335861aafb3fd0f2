#include <tapeformer/autograd/error.h>
#include <tapeformer/data/tokenizers/protocol_buffer.h>
#include <tapeformer/data/tokenizers/sentencepiece_check.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

// Source:  sentencepiece_model.proto, normalizer.cc and darts.h of SentencePiece 0.1.97
namespace tapeformer {
namespace {

constexpr std::size_t kLongestPiece =
    8000;  // the library recurses for every byte; newer ones have this limit
constexpr int kMostRules = 32, kMostSymbols = 64;  // that may match at one place: the sizes of its arrays
using Fields = ProtocolBufferFields;
constexpr const char* kDamaged = "is not a SentencePiece model: it is damaged";
constexpr std::uint32_t kUserDefined = 4;  // the type of a piece

/// Rules of normalisation: the size of a trie, the trie as a double array, and the texts that its values are
/// positions in.
class Rules {
 public:
  /// Throws: DataError
  Rules(std::string_view blob, const std::string& name) : name_(name) {
    std::uint32_t bytes = 0;
    if (blob.size() <= sizeof bytes) return;  // the library refuses it, and a longer trie than there is
    std::memcpy(&bytes, blob.data(), sizeof bytes);
    blob.remove_prefix(sizeof bytes);
    if (bytes > blob.size()) return;
    units_.resize(bytes / sizeof(std::uint32_t));
    if (units_.empty()) fail();
    std::memcpy(units_.data(), blob.data(), units_.size() * sizeof(std::uint32_t));
    texts_ = blob.size() - bytes;
    most_below_.assign(units_.size(), kUnknown);
    if (most_values(offset(units_[0])) > kMostRules) fail();
  }

 private:
  static constexpr int kUnknown = -1, kOpen = -2;
  /// A node that is being looked at, and its next child.
  struct Open {
    std::size_t node;
    unsigned next;
    int most;
  };

  [[noreturn]] void fail() const {
    throw DataError(name_, 0, "is not a SentencePiece model: its rules of normalisation are damaged");
  }
  static bool has_value(std::uint32_t unit) { return (unit >> 8 & 1) != 0; }
  static std::uint32_t label(std::uint32_t unit) { return unit & (1u << 31 | 0xffu); }
  static std::uint32_t offset(std::uint32_t unit) { return unit >> 10 << ((unit & 1u << 9) >> 6); }

  /// A node's place, from which any byte may lead on. Throws: DataError if it leads out of the trie
  void open(std::vector<Open>& path, std::size_t node) {
    if ((node | 0xff) >= units_.size()) fail();
    most_below_[node] = kOpen;
    path.push_back({node, 0, 0});
  }

  /// The most values on a way down from `root`. Nodes may share what is below them.
  int most_values(std::size_t root) {
    std::vector<Open> path;
    open(path, root);
    while (true) {
      Open& top = path.back();
      if (top.next == 256) {
        most_below_[top.node] = top.most;
        path.pop_back();
        if (path.empty()) return most_below_[root];
        continue;  // the child is known now
      }
      const std::size_t child = top.node ^ top.next;
      const std::uint32_t unit = units_[child];
      if (label(unit) != top.next) {
        ++top.next;
        continue;
      }
      const std::size_t node = child ^ offset(unit);
      if (node >= units_.size() || most_below_[node] == kOpen) fail();  // a circle
      if (most_below_[node] == kUnknown) {
        open(path, node);
        continue;
      }
      if (has_value(unit) && (units_[node] & 0x7fffffffu) > texts_) fail();
      top.most = std::max(top.most, most_below_[node] + (has_value(unit) ? 1 : 0));
      ++top.next;
    }
  }

  const std::string& name_;
  std::vector<std::uint32_t> units_;
  std::vector<int> most_below_;  // by node
  std::size_t texts_ = 0;
};

/// Whether more of the symbols than the library has room for begin one another.
bool nest_too_deeply(std::vector<std::string_view> symbols) {
  std::sort(symbols.begin(), symbols.end());
  std::vector<std::string_view> prefixes;  // of the latest symbol, and itself
  for (const std::string_view symbol : symbols) {
    while (!prefixes.empty() && symbol.substr(0, prefixes.back().size()) != prefixes.back())
      prefixes.pop_back();
    prefixes.push_back(symbol);
    if (prefixes.size() > kMostSymbols) return true;
  }
  return false;
}

}  // namespace

void check_sentencepiece(std::string_view model, const std::string& name) {
  std::vector<std::string_view> symbols;
  for (Fields fields(model, name, kDamaged); fields.next();) {
    const bool is_piece = fields.number == 1, is_normalizer = fields.number == 3 || fields.number == 5;
    if (!is_piece && !is_normalizer) continue;
    std::string_view piece;
    bool is_symbol = false;
    for (Fields inner(fields.content, name, kDamaged); inner.next();) {
      if (is_normalizer && inner.number == 2) Rules(inner.content, name);
      if (is_piece && inner.number == 3)
        is_symbol = is_symbol || static_cast<std::uint32_t>(inner.value) == kUserDefined;
      if (!is_piece || inner.number != 1) continue;
      piece = inner.content;
      if (piece.size() >= kLongestPiece || piece.find('\0') != std::string_view::npos) {
        throw DataError(name, 0, "is not a SentencePiece model: a piece is too long or has a NUL byte");
      }
    }
    if (is_symbol) symbols.push_back(piece);
  }
  if (nest_too_deeply(std::move(symbols)))
    throw DataError(name, 0, "is not a SentencePiece model: too many of its symbols begin one another");
}

}  // namespace tapeformer
