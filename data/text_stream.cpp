#include <tapeformer/autograd/error.h>
#include <tapeformer/data/text_stream.h>
#include <tapeformer/data/tokenizers/utf8.h>

#include <algorithm>

namespace tapeformer {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD

bool starts_with(std::string_view text, std::string_view start) {
  return text.substr(0, start.size()) == start;
}

}  // namespace

TextStream::TextStream(const Tokenizer& tokenizer, std::vector<std::string> stops)
    : tokenizer_(tokenizer), stops_(std::move(stops)) {
  for (const std::string& stop : stops_) {
    if (!stop.empty() && find_invalid_utf8(stop) == std::string_view::npos) continue;
    throw DataError("[text_stream] a stop string must be UTF-8 and not empty; got \"" + stop + "\"");
  }
}

std::string TextStream::add(std::int32_t id) {
  if (stopped_) return {};
  bytes_ += tokenizer_.bytes_of(id);
  return release(false);
}

std::string TextStream::finish() { return stopped_ ? std::string() : release(true); }

std::string TextStream::release(bool at_end) {
  std::string_view bytes = bytes_;
  while (!bytes.empty()) {
    const Utf8Step step = next_utf8(bytes);
    if (step.kind == Utf8Step::unfinished && !at_end) break;
    held_ += step.kind == Utf8Step::whole ? bytes.substr(0, step.length) : kReplacement;
    bytes.remove_prefix(step.length);
  }
  bytes_ = std::string(bytes);

  // The stop string that is complete first counts, however the text was cut into tokens; of several, the
  // longest.
  std::size_t stop_begin = 0, stop_end = std::string::npos;
  for (const std::string& stop : stops_) {
    const std::size_t begin = held_.find(stop);
    if (begin == std::string::npos) continue;
    const std::size_t end = begin + stop.size();
    if (end < stop_end || (end == stop_end && begin < stop_begin)) stop_begin = begin, stop_end = end;
  }
  std::string shown;
  if (stop_end != std::string::npos) {
    stopped_ = true;
    shown = held_.substr(0, stop_begin);
    held_.clear();
    bytes_.clear();
    return shown;
  }
  std::size_t begin = at_end ? held_.size() : 0;
  while (begin < held_.size() && !may_become_stop(std::string_view(held_).substr(begin))) ++begin;
  shown = held_.substr(0, begin);
  held_.erase(0, begin);
  return shown;
}

bool TextStream::may_become_stop(std::string_view text) const {
  return std::any_of(stops_.begin(), stops_.end(), [&](std::string_view stop) {
    if (!starts_with(stop, text)) return false;
    // The bytes of the next character so far either continue the stop string or will be replaced.
    const std::string_view rest = stop.substr(text.size());
    return bytes_.empty() || starts_with(rest, bytes_) || starts_with(rest, kReplacement);
  });
}

}  // namespace tapeformer
