// Translates a sentence with a trained model. Usage: using_a_model RUN SENTENCE
#include <tapeformer/data/tokenizers/tokenizer.h>
#include <tapeformer/nn/generation/generate.h>
#include <tapeformer/nn/transformer/encoder_decoder.h>

#include <cstdio>
#include <exception>

using namespace tapeformer;

int main(int argc, char** argv) try {
  if (argc != 3) {
    std::fprintf(stderr, "usage: using_a_model RUN SENTENCE\n");
    return 2;
  }
  const std::string run = argv[1];
  const EncoderDecoder model = EncoderDecoder::load(run);
  const auto source = load_tokenizer(sentence_tokenizers(), run + "/source.vocabulary"),
             target = load_tokenizer(sentence_tokenizers(), run + "/target.vocabulary");
  const auto translations = beam_search(model, {source->encode(argv[2])});
  std::printf("%s\n", target->decode(translations[0].tokens).c_str());
} catch (const std::exception& error) {
  std::fprintf(stderr, "using_a_model: %s\n", error.what());
  return 2;
}
