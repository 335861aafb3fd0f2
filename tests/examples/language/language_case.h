#pragma once

#include <tapeformer/data/token_file.h>
#include <tapeformer/examples/language/data.h>
#include <tapeformer/examples/language/trainer.h>
#include <tapeformer/examples/shared/program.h>
#include <tapeformer/tests/examples/captured_log.h>
#include <tapeformer/tests/nn/formats/temporary_folder.h>
#include <tapeformer/tests/reference/seed.h>

#include <string>
#include <vector>

namespace tapeformer {

/// A walk over the letters a to f and é: each is followed by the next one or the one after, equally often.
inline std::string walk(std::size_t letters, std::uint64_t seed) {
  const std::vector<std::string> alphabet = {"a", "b", "c", "d", "e", "f", "é"};
  Generator random(test_seed(seed));
  std::string text;
  std::size_t at = 0;
  for (std::size_t i = 0; i < letters; ++i) {
    text += alphabet[at];
    at = (at + 1 + static_cast<std::size_t>(random.below(2))) % alphabet.size();
  }
  return text;
}
constexpr double kWalkUnigram = 1.9459, kWalkEntropy = 0.6931;  // ln 7 and ln 2 nats

/// A model of seconds, whose text is in the folder.
inline LanguageOptions tiny_options(const TemporaryFolder& folder) {
  LanguageOptions options;
  options.data.corpus = {folder.file("train.txt")};
  options.data.validation = {folder.file("validation.txt")};
  write_bytes(options.data.corpus[0], walk(1500, 1));
  write_bytes(options.data.validation[0], walk(230, 2));
  options.model.layers = 1, options.model.attention.heads = 2, options.model.width = 16,
  options.model.context = 8, options.batch = 6;
  options.validation_batches = 5, options.validation_kind = "both";
  TrainingOptions& training = options.training;
  training.seed = test_seed(training.seed);
  training.steps = 40, training.warmup = 4, training.learning_rate = 0.03;
  training.validate_every = 20, training.log_every = 10, training.samples = 0;
  return options;
}

/// The fixture of cases with these options.
struct LanguageCase : RunCase {
  LanguageOptions options = tiny_options(temporary);
  Progress progress;
};

inline LanguageData tiny_data(const LanguageOptions& options, const TemporaryFolder& folder) {
  Progress progress;
  return make_language_data(options, RunFolder(folder.file("data")), nullptr, progress);
}

inline DecoderOnly tiny_model(const LanguageOptions& options) {
  Generator random(options.training.seed);
  return DecoderOnly(options.model_config(7), random);
}

/// A model with large weights: its outputs depend strongly on each visible token.
inline DecoderOnly strong_model(const LanguageOptions& options) {
  DecoderOnly model = tiny_model(options);
  Generator random(test_seed(11));
  for (const auto& [name, parameter] : model.named_parameters()) random.fill_normal(parameter, 0, 0.5);
  return model;
}

}  // namespace tapeformer
