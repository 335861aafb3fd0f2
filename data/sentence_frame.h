#pragma once

#include <tapeformer/autograd/shape.h>

#include <cstdint>
#include <vector>

namespace tapeformer {

/// The tokens around sentences: how a model reads a source, and what its decoder begins and ends with. The
/// defaults are those of our own tokenizers.
struct SentenceFrame {
  /// Ids of tokens.
  using Ids = std::vector<std::int32_t>;

  std::int32_t padding = 0;  ///< fills batches
  std::int32_t begin = 2;    ///< what the decoder's input begins with
  std::int32_t end = 3;      ///< follows the tokens of a sentence
  Ids source_before = {};    ///< before a sentence that the model reads
  Ids source_after = {};     ///< after its end
  Ids target_before = {};    ///< before a sentence that the model writes
  Ids target_after = {};     ///< after its end
  Ids forced = {};           ///< what every output begins with, whatever the model would write
  bool begins_zero = false;  ///< `begin` is padding, whose embedding is zero, and in no output

  /// A source as the encoder reads it.
  Ids source(const Ids& ids) const { return framed(source_before, ids, source_after); }
  /// A target as the decoder writes it; its input is `begin` and all but the last of these.
  Ids target(const Ids& ids) const { return framed(target_before, ids, target_after); }
  /// The length of the source of a sentence with this number of tokens.
  Index source_length(std::size_t tokens) const {
    return static_cast<Index>(source_before.size() + tokens + 1 + source_after.size());
  }
  /// As source_length() for a target.
  Index target_length(std::size_t tokens) const {
    return static_cast<Index>(target_before.size() + tokens + 1 + target_after.size());
  }

 private:
  Ids framed(const Ids& before, const Ids& ids, const Ids& after) const {
    Ids all = before;
    all.insert(all.end(), ids.begin(), ids.end());
    all.push_back(end);
    all.insert(all.end(), after.begin(), after.end());
    return all;
  }
};

}  // namespace tapeformer
