#pragma once

#include <tapeformer/autograd/shape.h>
#include <tapeformer/data/toy_clause.h>

#include <array>

namespace tapeformer::toy {

/// A number read as digits of changing radix: each choice a pattern makes takes the next one.
class Digits {
 public:
  explicit Digits(Index number) : rest_(number) {}

  /// The next digit, in [0, radix).
  Index take(Index radix) {
    radices_.at(static_cast<std::size_t>(count_++)) = radix;
    const Index digit = rest_ % radix;
    rest_ /= radix;
    return digit;
  }
  template <class T, std::size_t N>
  const T& pick(const std::array<T, N>& list) {
    return list[static_cast<std::size_t>(take(static_cast<Index>(N)))];
  }

  int count() const { return count_; }
  Index radix(int position) const { return radices_[static_cast<std::size_t>(position)]; }
  /// How many numbers the digits taken so far can tell apart.
  Index size() const;

 private:
  Index rest_;
  int count_ = 0;
  std::array<Index, 20> radices_{};
};

struct Sentence : Phrase {
  bool question = false;
};

/// A kind of sentence. `say` makes the same choices whatever the digits are, so a pattern is a product of
/// lists, and different digits give different English sentences.
struct Pattern {
  const char* name;
  int weight;  ///< share of a sample
  void (*say)(Digits&, Sentence&);
};

constexpr int kPatternCount = 21;
extern const std::array<Pattern, kPatternCount> kPatterns;

}  // namespace tapeformer::toy
