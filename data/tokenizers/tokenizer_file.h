#pragma once

#include <string>
#include <string_view>

namespace tapeformer {

/// The content of a tokenizer file.
struct TokenizerFile {
  std::string kind, payload;
};

/// Returns a line with format, kind, size and checksum of the payload, and then the payload.
std::string write_tokenizer_file(const char* kind, const std::string& payload);

/// The inverse of write_tokenizer_file; errors call the file `name`.
/// Throws:  DataError if `content` is anything else
TokenizerFile read_tokenizer_file(std::string_view content, const std::string& name);

}  // namespace tapeformer
