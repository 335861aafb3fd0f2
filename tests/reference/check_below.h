#pragma once

#include <algorithm>
#include <cmath>
#include <string>

namespace tapeformer {

/// Use CHECK_BELOW.
void check_below(double error, double bound, const char* text, const char* file, int line, bool required);

/// Notes how near `error` came to `bound` at `place`, e.g. "optim/test_muon.cpp:27", in the case that runs.
/// With TAPEFORMER_TEST_MARGINS=FILE in its environment the process appends the largest of each place and
/// case to FILE when it ends, in lines of "SEED RATIO PLACE CASE", which shake.sh reads.
void note_margin(double error, double bound, const std::string& place);

/// The difference of `x` and `expected`, measured as by doctest's Approx: relative where they are large,
/// absolute where they are small.
inline double deviation(double x, double expected) {
  return x == expected ? 0 : std::fabs(x - expected) / (1 + std::max(std::fabs(x), std::fabs(expected)));
}

/// The allowed error of a mean of many draws in standard deviations: half of it is exceeded once in 500
/// million times.
constexpr double kDeviations = 12;

/// The value that chi square of `freedom` degrees of freedom exceeds once in 10^15: k + 2 sqrt(k t) + 2 t, at
/// e^-t.
/// Source: Laurent and Massart 2000, Adaptive estimation of a quadratic functional, lemma 1
inline double most_chi_square(double freedom) { return freedom + 2 * std::sqrt(35 * freedom) + 70; }

}  // namespace tapeformer

/// CHECK(error <= bound) for errors that depend on roundings or on draws; notes the margin.
#define CHECK_BELOW(error, bound) \
  tapeformer::check_below(error, bound, #error " <= " #bound, __FILE__, __LINE__, false)
/// REQUIRE(error <= bound), likewise.
#define REQUIRE_BELOW(error, bound) \
  tapeformer::check_below(error, bound, #error " <= " #bound, __FILE__, __LINE__, true)
