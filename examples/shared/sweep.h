#pragma once

#include <tapeformer/examples/shared/train_command.h>

namespace tapeformer {

/// One combination of values: its name ("learning-rate=1e-3,width=64") and its options for `train`.
struct SweepCase {
  std::string name;
  std::vector<std::string> options;
};

/// Every combination of the values in the words, where each "--vary" is followed by the name of an option
/// and its values. The last option varies fastest.
/// Throws: Error if an option has no value or the same value twice, or is given twice
std::vector<SweepCase> sweep_cases(const std::vector<std::string>& words);

/// Welch's t test, two-sided: the probability that samples of two normal distributions with equal means have
/// means at least as far apart as these; NaN if a sample has fewer than two values, or neither has a spread.
/// Source: Welch 1947, "The generalization of Student's problem when several different population variances
///         are involved", Biometrika 34
double welch_probability(const std::vector<double>& first, const std::vector<double>& second);

/// The command `sweep` of a program that trains: runs `train` of the same program with every combination of
/// some options and several seeds, and compares the losses.
class SweepCommand {
 public:
  /// Adds the command to the line, whose options refer to this object.
  SweepCommand(CommandLine& line, int argc, const char* const* argv, const TrainCommand& train);
  SweepCommand(const SweepCommand&) = delete;
  /// The number of words that the command line is to parse: in a sweep those before "--", else all.
  int own_words() const { return own_words_; }

 private:
  int execute() const;

  const TrainCommand& train_;
  int own_words_;
  std::vector<std::string> words_, options_;  // before "--", and after it
  std::string runs_;
  Index seeds_ = 3;
  std::vector<std::string> varied_;
};

}  // namespace tapeformer
