#pragma once

#include <tapeformer/data/tokenizers/tokenizer.h>

namespace tapeformer {

/// Turns a stream of tokens into text, always in whole UTF-8 characters: the first bytes of a character wait
/// for the rest, and invalid bytes become U+FFFD. Text that may be the beginning of a stop string waits too.
/// A stop string and everything after it are never shown. The stop string that is complete first counts; of
/// two that end together, the longer one.
class TextStream {
 public:
  /// `tokenizer` must outlive it. Throws: DataError for a stop string that is empty or not UTF-8
  explicit TextStream(const Tokenizer& tokenizer, std::vector<std::string> stops = {});

  /// The text that can be shown after `id`; empty once stopped.
  std::string add(std::int32_t id);
  /// The rest of the text after the last token; an unfinished character becomes U+FFFD.
  std::string finish();
  /// Whether a stop string has been seen.
  bool stopped() const { return stopped_; }

 private:
  std::string release(bool at_end);
  bool may_become_stop(std::string_view text) const;

  const Tokenizer& tokenizer_;
  std::vector<std::string> stops_;
  std::string bytes_;  // of an unfinished character
  std::string held_;   // valid text that may begin a stop string
  bool stopped_ = false;
};

}  // namespace tapeformer
