#include <tapeformer/data/tokenizers/marian.h>
#include <tapeformer/data/tokenizers/pieces.h>
#include <tapeformer/data/tokenizers/sentencepiece_sentences.h>
#include <tapeformer/data/tokenizers/transformers.h>

namespace tapeformer {

const TokenizerKinds& sentence_tokenizers() {
  static const TokenizerKinds kinds = {
      word_pieces(),
      space_pieces(),
      character_pieces(),
      sentence_pieces("bpe"),
      sentence_pieces("unigram"),
      marian_pieces(),
      transformers_files(),
  };
  return kinds;
}

}  // namespace tapeformer
