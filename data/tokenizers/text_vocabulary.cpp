#include <tapeformer/autograd/error.h>
#include <tapeformer/data/parallel_corpus.h>
#include <tapeformer/data/tokenizers/pieces.h>
#include <tapeformer/data/tokenizers/text_vocabulary.h>

#include <algorithm>
#include <filesystem>
#include <set>

namespace tapeformer {

bool is_text_vocabulary(const std::string& path) {
  const std::string ending = std::filesystem::path(path).extension().string();
  return ending == ".txt" || ending == ".vocab";
}

std::unique_ptr<Tokenizer> load_text_vocabulary(const std::string& path) {
  const std::set<std::string> special = {"<s>", "</s>", "<pad>", "<unk>"};
  const std::vector<std::string> lines = read_lines(path);
  const bool counts = lines.front().find(' ') != std::string::npos;
  std::vector<std::string> pieces;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::size_t end = std::min(lines[i].find_first_of(" \t"), lines[i].size());
    const std::string piece = lines[i].substr(0, end), rest = lines[i].substr(end);
    const bool is_count =
        rest.size() > 1 && rest[0] == ' ' && rest.find_first_not_of("0123456789", 1) == std::string::npos;
    if (piece.empty() || !(counts ? is_count : rest.empty())) {
      throw DataError(path, static_cast<Index>(i + 1),
                      counts
                          ? "is not `piece count`, as the first line is"
                          : "is not one piece, as the first line is; try the .model file of a SentencePiece "
                            "vocabulary");
    }
    if (special.count(piece) == 0) pieces.push_back(piece);
  }
  if (pieces.empty()) throw DataError(path, 0, "holds no pieces");
  try {
    return make_space_tokenizer(std::move(pieces));
  } catch (const DataError& error) {
    throw DataError(path, 0, error.what());
  }
}

}  // namespace tapeformer
