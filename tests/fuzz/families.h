#pragma once

#include <tapeformer/tests/fuzz/parsers.h>

// The rows of the table of parsers, by the files that define them.
namespace tapeformer {

using Seeds = std::vector<std::string>;

std::vector<Parser> format_parsers();
std::vector<Parser> run_parsers();
std::vector<Parser> foreign_model_parsers();
std::vector<Parser> tokenizer_parsers();
std::vector<Parser> text_parsers();

}  // namespace tapeformer
