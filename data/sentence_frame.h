#pragma once

#include <tapeformer/autograd/shape.h>

#include <cstdint>
#include <vector>

namespace tapeformer {

/// The tokens around sentences: around a source as the encoder reads it, and around a target. The defaults
/// are those of Tapeformer's own tokenizers.
struct SentenceFrame {
  /// Ids of tokens.
  using Ids = std::vector<std::int32_t>;

  std::int32_t padding = 0;  ///< fills batches
  std::int32_t begin = 2;    ///< first in the decoder's input
  std::int32_t end = 3;      ///< follows the tokens of a sentence
  Ids source_before = {};    ///< before a source
  Ids source_after = {};     ///< after a source's end token
  Ids target_before = {};    ///< before a target
  Ids target_after = {};     ///< after a target's end token
  Ids forced = {};           ///< first in every output, whatever the model predicts
  bool begins_zero = false;  ///< `begin` is padding with a zero embedding, and is never in an output

  /// A source as the encoder reads it.
  Ids source(const Ids& ids) const { return framed(source_before, ids, source_after); }
  /// A target as the decoder writes it; its input is `begin` and all but the last of these.
  Ids target(const Ids& ids) const { return framed(target_before, ids, target_after); }
  /// The length of source() for a sentence of `tokens` tokens.
  Index source_length(std::size_t tokens) const {
    return static_cast<Index>(source_before.size() + tokens + 1 + source_after.size());
  }
  /// The length of target() for a sentence of `tokens` tokens.
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
