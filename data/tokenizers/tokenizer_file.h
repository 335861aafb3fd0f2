#pragma once

#include <tapeformer/autograd/shape.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace tapeformer {

/// Throws: DataError if `id` is outside [0, size).
void check_token(std::int32_t id, Index size);
/// Throws: DataError naming the `kind` of tokenizer and the first byte that is not UTF-8, followed by
///         `where`.
void check_utf8(std::string_view text, const char* kind, const char* where = "");

/// The content of a tokenizer file.
struct TokenizerFile {
  std::string kind, payload;
};

/// The content of a file: a line with its format, the kind, and the payload's size and checksum; the payload.
std::string write_tokenizer_file(const char* kind, const std::string& payload);

/// The inverse of write_tokenizer_file; errors call the file `name`.
/// Throws:  DataError if `content` is anything else
TokenizerFile read_tokenizer_file(std::string_view content, const std::string& name);

/// The first line of a payload, and all that follows it.
std::pair<std::string_view, std::string_view> split_first_line(std::string_view payload);

}  // namespace tapeformer
