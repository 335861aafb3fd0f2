#include <tapeformer/data/tokenizers/byte_pair.h>
#include <tapeformer/data/tokenizers/byte_tokenizer.h>
#include <tapeformer/data/tokenizers/character_tokenizer.h>
#include <tapeformer/data/tokenizers/json/tokenizer_json.h>
#include <tapeformer/data/tokenizers/sentencepiece_text.h>
#include <tapeformer/data/tokenizers/tokenizer_controls.h>

namespace tapeformer {

const TokenizerKinds& text_tokenizers() {
  static const TokenizerKinds kinds = {
      text_characters(),    text_bytes(),          text_byte_pairs(),
      text_sentencepiece(), text_tokenizer_json(), controlled_text(),
  };
  return kinds;
}

}  // namespace tapeformer
