#pragma once

#include <tapeformer/data/text_stream.h>
#include <tapeformer/examples/shared/compute.h>
#include <tapeformer/nn/generation/generate_text.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace tapeformer {

class Command;

/// How texts are continued, and which.
struct GenerateOptions {
  std::string run, prompt, tokenizer_model;
  Index average = 0;
  SamplingConfig sampling;
  bool greedy = false, only_new = false, prompt_given = false;
  Index max_tokens = 256, samples = 1;
  std::vector<std::string> stops;
  std::string cache = "contiguous";
  ComputeOptions compute;

  GenerateOptions() { sampling.temperature = 0.8, sampling.top_k = 200, sampling.seed = 1; }
  void add_to(const Command& command);
  /// Throws: Error naming an option that `command` was given and that would change nothing
  void refuse_ignored(const Command& command) const;
  TextGenerationConfig config() const;
};

/// Texts that come token by token and side by side, written one after the other: the first as it comes, each
/// other one as soon as those before it have ended, with kSeparator between them. What is written is valid
/// UTF-8.
class SampleWriter {
 public:
  static constexpr const char* kSeparator = "\n---------------\n";
  /// Takes text to be shown at once; false if nobody reads any more.
  using Write = std::function<bool(std::string_view text)>;

  /// Every sample begins with `prompt`, which is written with the first token: nothing is if drawing that
  /// fails. At the `start` of a text no space is written before its first word.
  SampleWriter(const TextTokenizer& tokenizer, Index samples, const std::vector<std::string>& stops,
               std::string prompt, bool start, Write write);

  /// Ends the samples so far; others follow, whose numbers count from 0 again. Keeps memory bounded.
  void next(Index samples);
  /// False if the sample is over: a stop string came, or nobody reads.
  bool add(Index sample, std::int32_t token);
  /// After the last token of all.
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

  const TextTokenizer& tokenizer_;
  std::vector<std::string> stops_;
  std::vector<Sample> samples_;
  std::string prompt_;
  bool start_, begun_ = false, closed_ = false;
  Write write_;
  std::size_t shown_ = 0;  // samples before this one are written
  Index tokens_ = 0;
  char last_ = '\n';
};

/// Loads the model, continues the prompt on standard output; returns the exit code.
/// Throws: Error and what derives from it
int generate(const GenerateOptions& options);

}  // namespace tapeformer
