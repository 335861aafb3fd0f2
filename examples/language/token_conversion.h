#pragma once

#include <string>
#include <vector>

namespace tapeformer {

class Command;

struct TokenConversionOptions {
  std::string output, tokenizer_model;
  std::vector<std::string> train, validation;

  void add_to(const Command& command);
};

/// Makes a prepared folder of llm.c's .bin files; returns the exit code. Throws: Error and its subclasses
int convert_tokens(const TokenConversionOptions& options);

}  // namespace tapeformer
