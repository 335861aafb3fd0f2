#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/text/number_of.h>
#include <tapeformer/data/hash.h>
#include <tapeformer/data/tokenizers/tokenizer_file.h>

#include <algorithm>
#include <locale>
#include <sstream>

namespace tapeformer {
namespace {

constexpr const char* kMagic = "tapeformer-tokenizer-1";

}  // namespace

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
