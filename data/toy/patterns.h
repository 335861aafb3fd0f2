#pragma once

#include <tapeformer/data/toy/choices.h>

#include <array>

namespace tapeformer::toy {

/// A kind of sentence. The choices that `say` makes do not depend on the digits, so a pattern is a product
/// of lists, and different digits give different English sentences.
struct Pattern {
  const char* name;
  int weight;  ///< share of a sample
  void (*say)(Digits&, Sentence&);
};

constexpr int kPatternCount = 21;
extern const std::array<Pattern, kPatternCount> kPatterns;

}  // namespace tapeformer::toy
