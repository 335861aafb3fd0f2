#pragma once

#include <string>
#include <string_view>

namespace tapeformer {

/// What a tokenizer file holds.
struct TokenizerFile {
  std::string kind, payload;
};

/// The content of a tokenizer file: a line with format, kind, size and checksum of the payload, and that.
std::string write_tokenizer_file(const char* kind, const std::string& payload);

/// What `write_tokenizer_file` wrote; `name` is the file's, for errors.
/// Throws:  DataError for anything else
TokenizerFile read_tokenizer_file(std::string_view content, const std::string& name);

}  // namespace tapeformer
