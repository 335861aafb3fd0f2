#pragma once

#include <tapeformer/autograd/shape.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tapeformer {

/// A sentence and its translation, UTF-8.
struct TextPair {
  /// The sentence and its translation.
  std::string source, target;

  /// Whether both pairs have the same source and the same target.
  bool operator==(const TextPair& other) const { return source == other.source && target == other.target; }
};

/// The path that means standard input.
constexpr const char* kStandardInput = "-";

/// Lines of a UTF-8 text file or of standard input, as they arrive, without line ends and byte order mark.
class LineReader {
 public:
  /// Throws:  DataError if the file cannot be opened
  explicit LineReader(const std::string& path);
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  /// Returns false after the last line.
  /// Throws:  DataError if the file cannot be read, or if the line is not UTF-8 or has a NUL; number() counts
  ///          that line, and the next call reads the one after it
  bool next(std::string& line);
  /// The number of the line that next() read last, from 1; 0 before the first.
  Index number() const { return number_; }

 private:
  bool read();

  const std::string name_;
  const int file_;
  Index number_ = 0;
  bool is_within_ = false;  // a line, after its NUL
  std::vector<char> buffer_ = std::vector<char>(1 << 16);
  std::string_view rest_;  // of the buffer
};

/// All lines that LineReader reads.
/// Throws:  DataError as LineReader, or if there are none
std::vector<std::string> read_lines(const std::string& path);

/// Pairs from lines `source<TAB>target[<TAB>ignored...]`; with `swap` the second column is the source.
/// Throws:  DataError as read_lines; for a line without a tab or with a side of white space alone
std::vector<TextPair> read_tab_separated(const std::string& path, bool swap = false);

/// The sentence on a line of its own: tabs, which separate columns elsewhere, become spaces.
std::string sentence_of_line(std::string line);

/// Pairs from two files whose lines correspond.
/// Throws:  DataError as read_lines; for a line of white space alone or different line counts
std::vector<TextPair> read_line_aligned(const std::string& source_path, const std::string& target_path);

/// The result of filter_by_words.
struct FilterReport {
  /// The numbers of all pairs, of those kept, and of those dropped for their source or their target.
  Index read = 0, kept = 0, long_source = 0, long_target = 0;

  /// "kept 3 of 5 pairs; dropped 2: 1 source over 10 words, 1 target over 10 words".
  std::string text(Index max_words) const;
};

/// Keeps the pairs of at most `max_words` words per side, separated by white space.
/// Throws:  DataError naming `path` if none is left
FilterReport filter_by_words(std::vector<TextPair>& pairs, Index max_words, const std::string& path);

/// The number of distinct source sentences.
Index count_sources(const std::vector<TextPair>& pairs);

/// Training pairs, and held-out sentences with one reference each.
struct CorpusSplit {
  /// The parts, no two of which share a source sentence.
  std::vector<TextPair> train, validation, test;
};

/// Holds out `held_out` distinct source sentences, those with the smallest hash of (seed, text): the first
/// half is the validation part, the second half the test part, each sentence with the first of its
/// translations. Every pair of a held-out source leaves the training part, so the parts share no source
/// sentence. Which sentences are held out does not depend on their order in the file.
/// Throws:  DataError naming `path` if `held_out` is negative or leaves no source sentence to train on
CorpusSplit split_by_source(std::vector<TextPair> pairs, Index held_out, std::uint64_t seed,
                            const std::string& path);

}  // namespace tapeformer
