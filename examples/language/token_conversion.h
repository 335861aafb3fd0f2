#pragma once

#include <string>
#include <vector>

namespace tapeformer {

class Command;

struct TokenConversionOptions {
  std::string tokens, output, tokenizer_model;
  std::vector<std::string> train, validation;

  void add_to(const Command& command);
};

/// Writes a prepared folder as train.bin and val.bin of llm.c, or makes one of such files; returns the exit
/// code. Throws: Error and its subclasses
int convert_tokens(const TokenConversionOptions& options);

}  // namespace tapeformer
