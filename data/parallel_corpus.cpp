#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/autograd/system/file.h>
#include <tapeformer/data/hash.h>
#include <tapeformer/data/parallel_corpus.h>
#include <tapeformer/data/tokenizers/utf8.h>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <tuple>

namespace tapeformer {
namespace {

/// The name that messages use.
std::string name_of(const std::string& path) { return path == kStandardInput ? "standard input" : path; }

/// Throws: DataError when one side is blank.
void check_sides(const TextPair& pair, const std::string& path, Index line) {
  if (trim_end(pair.source).empty()) throw DataError(path, line, "the source side is empty");
  if (trim_end(pair.target).empty()) throw DataError(path, line, "the target side is empty");
}

using Source = std::tuple<std::uint64_t, std::string_view, std::size_t>;  // hash, text, number of the pair

/// The sources of all pairs, sorted by their hashes; equal texts are adjacent, the first pair first. Sorting
/// is quick for any texts, and does not wait for memory at every text, as a hash table would.
std::vector<Source> sorted_sources(const std::vector<TextPair>& pairs, std::uint64_t seed) {
  std::vector<Source> sources;
  sources.reserve(pairs.size());
  for (const TextPair& pair : pairs)
    sources.emplace_back(mix_bits(seed, hash_text(pair.source)), pair.source, sources.size());
  std::sort(sources.begin(), sources.end());
  return sources;
}

bool is_first(const std::vector<Source>& sources, std::size_t i) {
  return i == 0 || std::get<1>(sources[i]) != std::get<1>(sources[i - 1]);
}

}  // namespace

LineReader::LineReader(const std::string& path)
    : name_(name_of(path)),
      file_(path == kStandardInput ? STDIN_FILENO : open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (file_ < 0) throw DataError(name_, 0, "cannot be opened: " + system_error_text(errno));
}

LineReader::~LineReader() {
  if (file_ != STDIN_FILENO) close(file_);
}

bool LineReader::next(std::string& line) {
  line.clear();
  bool any = false;
  while (is_within_ && (!rest_.empty() || read())) {
    const std::size_t end = rest_.find('\n');
    rest_ = end == rest_.npos ? std::string_view() : rest_.substr(end + 1);
    is_within_ = end == rest_.npos;
  }
  while (!rest_.empty() || read()) {
    any = true;
    const std::size_t end = rest_.find('\n');
    const std::string_view part = rest_.substr(0, end);
    const std::size_t nul = part.find('\0');  // a file with holes may claim terabytes of them
    line += part.substr(0, nul == part.npos ? nul : nul + 1);
    if (end == part.npos && nul == part.npos) {
      rest_ = {};
      continue;
    }
    is_within_ = nul != part.npos;
    rest_.remove_prefix(is_within_ ? nul + 1 : end + 1);
    break;
  }
  if (!any) return false;
  if (++number_ == 1 && line.compare(0, 3, "\xef\xbb\xbf") == 0) line.erase(0, 3);
  if (!line.empty() && line.back() == '\r') line.pop_back();
  if (const std::size_t bad = find_no_text(line); bad != std::string::npos)
    throw DataError(name_, number_, no_text_message(line[bad], static_cast<Index>(bad) + 1, "line"));
  return true;
}

bool LineReader::read() {
  ssize_t count;
  while ((count = ::read(file_, buffer_.data(), buffer_.size())) < 0 && errno == EINTR) {
  }
  if (count < 0) throw DataError(name_, 0, "cannot be read: " + system_error_text(errno));
  rest_ = std::string_view(buffer_.data(), static_cast<std::size_t>(count));
  return count > 0;
}

std::vector<std::string> read_lines(const std::string& path) {
  std::vector<std::string> lines;
  LineReader reader(path);
  for (std::string line; reader.next(line);) lines.push_back(std::move(line));
  if (lines.empty()) throw DataError(name_of(path), 0, "is empty");
  return lines;
}

std::vector<TextPair> read_tab_separated(const std::string& path, bool swap) {
  std::vector<TextPair> pairs;
  LineReader lines(path);
  for (std::string line; lines.next(line);) {
    const std::size_t tab = line.find('\t');
    if (tab == std::string::npos) {
      line.resize(std::min<std::size_t>(line.size(), 60));
      line.resize(line.size() - unfinished_utf8(line));
      throw DataError(name_of(path), lines.number(),
                      "no tab between source and target; found \"" + line + "\"");
    }
    const std::size_t end = line.find('\t', tab + 1);
    TextPair pair{line.substr(0, tab), line.substr(tab + 1, end == std::string::npos ? end : end - tab - 1)};
    if (swap) std::swap(pair.source, pair.target);
    check_sides(pair, name_of(path), lines.number());
    pairs.push_back(std::move(pair));
  }
  if (pairs.empty()) throw DataError(name_of(path), 0, "is empty");
  return pairs;
}

std::string sentence_of_line(std::string line) {
  std::replace(line.begin(), line.end(), '\t', ' ');
  return line;
}

std::vector<TextPair> read_line_aligned(const std::string& source_path, const std::string& target_path) {
  std::vector<std::string> sources = read_lines(source_path), targets = read_lines(target_path);
  if (sources.size() != targets.size())
    throw DataError(name_of(target_path), 0,
                    format("has {} lines, but {} has {}; line-aligned files have the same number",
                           targets.size(), name_of(source_path), sources.size()));
  std::vector<TextPair> pairs(sources.size());
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    pairs[i] = {sentence_of_line(std::move(sources[i])), sentence_of_line(std::move(targets[i]))};
    const bool source_blank = trim_end(pairs[i].source).empty();
    check_sides(pairs[i], name_of(source_blank ? source_path : target_path), static_cast<Index>(i) + 1);
  }
  return pairs;
}

std::string FilterReport::text(Index max_words) const {
  const std::string text = format("kept {} of {} pairs", kept, read);
  if (kept == read) return text;
  return text + format("; dropped {}: {} source over {} words, {} target over {} words", read - kept,
                       long_source, max_words, long_target, max_words);
}

FilterReport filter_by_words(std::vector<TextPair>& pairs, Index max_words, const std::string& path) {
  FilterReport report;
  const auto is_long = [&](const std::string& side) {
    return static_cast<Index>(split_white_space(side).size()) > max_words;
  };
  const auto too_long = [&](const TextPair& pair) {
    const bool source = is_long(pair.source);
    const bool target = !source && is_long(pair.target);
    report.long_source += source;
    report.long_target += target;
    return source || target;
  };
  report.read = static_cast<Index>(pairs.size());
  pairs.erase(std::remove_if(pairs.begin(), pairs.end(), too_long), pairs.end());
  report.kept = static_cast<Index>(pairs.size());
  if (pairs.empty()) throw DataError(path, 0, "no usable pairs: " + report.text(max_words));
  return report;
}

Index count_sources(const std::vector<TextPair>& pairs) {
  const std::vector<Source> sources = sorted_sources(pairs, 0);
  Index count = 0;
  for (std::size_t i = 0; i < sources.size(); ++i) count += is_first(sources, i);
  return count;
}

CorpusSplit split_by_source(std::vector<TextPair> pairs, Index held_out, std::uint64_t seed,
                            const std::string& path) {
  const std::vector<Source> sources = sorted_sources(pairs, seed);
  CorpusSplit split;
  std::vector<bool> leaves(pairs.size());
  Index count = 0;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const std::size_t pair = std::get<2>(sources[i]);
    const bool first = is_first(sources, i);
    count += first;
    leaves[pair] = count <= held_out;
    if (first && leaves[pair]) (count <= held_out / 2 ? split.validation : split.test).push_back(pairs[pair]);
  }
  if (held_out < 0 || held_out >= count)
    throw DataError(
        path, 0,
        format("cannot hold out {} source sentences: there are only {} different ones", held_out, count));
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    if (!leaves[i]) split.train.push_back(std::move(pairs[i]));
  }
  return split;
}

}  // namespace tapeformer
