#pragma once

#include <tapeformer/data/tokenizers/text_tokenizer.h>

namespace tapeformer {

/// Turns tokens into text as they come. What it hands out is always whole UTF-8 characters: bytes that begin
/// a character wait for the rest, bytes that can begin none become U+FFFD. Text that may be the beginning of
/// a stop string waits, and a stop string and what follows it are never shown: the one that is complete first
/// counts, of two that end together the longer.
class TextStream {
 public:
  /// Throws: DataError for a stop string that is empty or not UTF-8
  explicit TextStream(const TextTokenizer& tokenizer, std::vector<std::string> stops = {});

  /// What can be shown now that `id` has come. Nothing once stopped.
  std::string add(std::int32_t id);
  /// What is left at the end of the tokens; an unfinished character becomes U+FFFD.
  std::string finish();
  /// A stop string has been seen.
  bool stopped() const { return stopped_; }

 private:
  std::string release(bool at_end);
  bool may_become_stop(std::string_view text) const;

  const TextTokenizer& tokenizer_;
  std::vector<std::string> stops_;
  std::string bytes_;  // of an unfinished character
  std::string held_;   // valid text that may begin a stop string
  bool stopped_ = false;
};

}  // namespace tapeformer
