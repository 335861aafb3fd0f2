#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/data/hash.h>
#include <tapeformer/data/tokenizers/tokenizer_file.h>
#include <tapeformer/data/tokenizers/utf8.h>

#include <algorithm>
#include <locale>
#include <sstream>

namespace tapeformer {
namespace {

constexpr const char* kMagic = "tapeformer-tokenizer-1";

}  // namespace

void check_token(std::int32_t id, Index size) {
  if (id >= 0 && id < size) return;
  throw DataError("[tokenizer] ids are in [0, vocabulary); got " + std::to_string(id) +
                  " with a vocabulary of " + std::to_string(size));
}

void check_utf8(std::string_view text, const char* kind, const char* where) {
  const std::size_t bad = find_invalid_utf8(text);
  if (bad == std::string_view::npos) return;
  throw DataError(std::string("[tokenizer] the text of a ") + kind +
                  " tokenizer is UTF-8; got something else at byte " + std::to_string(bad) + where);
}

std::string write_tokenizer_file(const char* kind, const std::string& payload) {
  std::ostringstream header;
  header.imbue(std::locale::classic());  // the program's locale might group digits
  header << kMagic << ' ' << kind << ' ' << payload.size() << ' ' << std::hex << hash_text(payload) << '\n';
  return header.str() + payload;
}

TokenizerFile read_tokenizer_file(std::string_view content, const std::string& name) {
  const std::size_t header_end = content.find('\n');
  std::istringstream header{std::string(content.substr(0, header_end))};
  header.imbue(std::locale::classic());
  std::string magic;
  TokenizerFile file;
  std::size_t size = 0;
  std::uint64_t checksum = 0;
  if (!(header >> magic >> file.kind >> size >> std::hex >> checksum) || magic != kMagic) {
    throw DataError(name, 0,
                    std::string("is not a tokenizer file: it does not start with \"") + kMagic + " KIND\"");
  }
  file.payload = content.substr(std::min(header_end, content.size() - 1) + 1);
  if (file.payload.size() != size) {
    throw DataError(name, 0,
                    "is damaged: its header promises " + number_of(size, "byte") + ", it has " +
                        std::to_string(file.payload.size()));
  }
  if (hash_text(file.payload) != checksum) {
    throw DataError(name, 0, "is damaged: its checksum does not match");
  }
  return file;
}

}  // namespace tapeformer
