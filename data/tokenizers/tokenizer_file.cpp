#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/data/hash.h>
#include <tapeformer/data/tokenizers/tokenizer_file.h>
#include <tapeformer/data/tokenizers/utf8.h>

#include <algorithm>

namespace tapeformer {
namespace {

constexpr const char* kMagic = "tapeformer-tokenizer-1";

}  // namespace

void check_token(std::int32_t id, Index size) {
  if (id >= 0 && id < size) return;
  throw DataError(
      format("[tokenizer] ids must be in [0, vocabulary); got {} with a vocabulary of {}", id, size));
}

void check_utf8(std::string_view text, const char* kind, const char* where) {
  const std::size_t bad = find_invalid_utf8(text);
  if (bad == std::string_view::npos) return;
  throw DataError(
      format("[tokenizer] the text of a {} tokenizer must be UTF-8; got something else at byte {}{}", kind,
             bad, where));
}

std::string write_tokenizer_file(const char* kind, const std::string& payload) {
  return format("{} {} {} {:x}\n", kMagic, kind, payload.size(), hash_text(payload)) + payload;
}

TokenizerFile read_tokenizer_file(std::string_view content, const std::string& name) {
  const auto [line, payload] = split_first_line(content);
  const std::string header(line.substr(0, 200));
  char magic[32], kind[32];
  std::size_t size = 0;
  unsigned long long sum = 0;
  if (std::sscanf(header.c_str(), "%31s %31s %zu %llx", magic, kind, &size, &sum) != 4 ||
      magic != std::string(kMagic)) {
    throw DataError(name, 0, format("is not a tokenizer file: it does not start with \"{} KIND\"", kMagic));
  }
  TokenizerFile file{kind, std::string(payload)};
  if (file.payload.size() != size)
    throw DataError(name, 0,
                    format("is damaged: its header promises {}, it has {}", number_of(size, "byte"),
                           file.payload.size()));
  if (hash_text(file.payload) != sum) throw DataError(name, 0, "is damaged: its checksum does not match");
  return file;
}

std::pair<std::string_view, std::string_view> split_first_line(std::string_view payload) {
  const std::size_t end = std::min(payload.find('\n'), payload.size());
  return {payload.substr(0, end), payload.substr(std::min(end + 1, payload.size()))};
}

}  // namespace tapeformer
