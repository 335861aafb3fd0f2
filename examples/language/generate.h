#pragma once

#include <tapeformer/data/text_stream.h>
#include <tapeformer/examples/shared/compute.h>
#include <tapeformer/nn/generation/generate_text.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tapeformer {

class Command;

struct GenerateOptions {
  std::string run, tokenizer_model, cache = "contiguous";
  std::optional<std::string> prompt;  ///< without it, standard input
  Index average = 0;
  TextGenerationConfig generation;
  bool greedy = false, only_new = false;
  std::vector<std::string> stops;
  ComputeOptions compute;

  GenerateOptions() {
    generation.sampling.temperature = 0.8, generation.sampling.top_k = 200, generation.sampling.seed = 1;
  }
  void add_to(const Command& command);
  /// Throws: Error naming an option that `command` was given and that would change nothing
  void refuse_ignored(const Command& command) const;
};

/// Writes samples one after the other, with kSeparator between them, though they are drawn side by side: the
/// first as it is drawn, each other one when those before it have ended. The output is valid UTF-8.
class SampleWriter {
 public:
  static constexpr const char* kSeparator = "\n---------------\n";
  /// Writes text at once; returns false if the reader is gone.
  using Write = std::function<bool(std::string_view text)>;

  /// Every sample begins with `prompt`, which is written with the first token, so that nothing is written if
  /// drawing that token fails. At the `start` of a text no space is written before its first word.
  SampleWriter(const Tokenizer& tokenizer, Index samples, const std::vector<std::string>& stops,
               std::string prompt, bool start, Write write);

  /// Ends the current samples and begins others, numbered from 0 again. Groups of samples bound the memory.
  void next(Index samples);
  /// Adds a token; returns false if the sample is over: at a stop string, or if the reader is gone.
  bool add(Index sample, std::int32_t token);
  /// To be called after the last token of all samples.
  void finish();
  Index tokens() const { return tokens_; }
  bool closed() const { return closed_; }

 private:
  struct Sample {
    TextStream stream;
    std::string waiting;
    Index tokens = 0;
    bool ended = false;
  };
  void end(Sample& sample);
  void begin(Index samples);
  void show();
  void put(std::string_view text);

  const Tokenizer& tokenizer_;
  std::vector<std::string> stops_;
  std::vector<Sample> samples_;
  std::string prompt_;
  bool start_, begun_ = false, closed_ = false;
  Write write_;
  std::size_t shown_ = 0;  // the samples before this one have been written
  Index tokens_ = 0;
  char last_ = '\n';
};

/// Loads the model and continues the prompt on standard output; returns the exit code.
/// Throws: Error naming an option that `command` was given and that would change nothing for this model, and
///         subclasses
int generate(const GenerateOptions& options, const Command& command);

}  // namespace tapeformer
