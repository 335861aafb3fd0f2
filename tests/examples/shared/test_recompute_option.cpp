#include <tapeformer/examples/translation/trainer.h>
#include <tapeformer/tests/examples/language/language_case.h>
#include <tapeformer/tests/nn/module_case.h>

using namespace tapeformer;

// Only the memory of tapes shows whether a program recomputes, not its results.

TEST_CASE_FIXTURE(LanguageCase, "--recompute-layers reaches the language model") {
  const LanguageData data = tiny_data(options, temporary);
  Index nodes[2];
  for (const bool recompute : {false, true}) {
    options.training.recompute_layers = recompute;
    LanguageTask task(options, data, tiny_model(options), progress);
    Tape tape;
    const Tensor logits = dynamic_cast<DecoderOnly&>(task.model())(ids_of({1, 2, 3}, {1, 3}));
    nodes[recompute] = tape.memory().nodes;
  }
  CHECK(nodes[1] < nodes[0]);
}

TEST_CASE("--recompute-layers reaches both halves of the translation model") {
  const CapturedLog log;
  TranslationOptions options;
  options.grammar_pairs = 50, options.held_out = 4;
  options.model.layer.width = 16, options.model.layer.feed_forward = 16;
  options.model.encoder_layers = options.model.decoder_layers = 1;
  Progress progress;
  Index encoder[2], decoder[2];
  for (const bool recompute : {false, true}) {
    options.training.recompute_layers = recompute;
    TranslationTask task(options, progress);
    auto& model = dynamic_cast<EncoderDecoder&>(task.model());
    const Tensor ids = ids_of({5, 6, 3}, {1, 3});
    Tape tape;
    const Tensor memory = model.encode(ids, {});
    encoder[recompute] = tape.memory().nodes;
    const Tensor states = model.decode(ids, memory, {});
    decoder[recompute] = tape.memory().nodes - encoder[recompute];
  }
  CHECK(encoder[1] < encoder[0]);
  CHECK(decoder[1] < decoder[0]);
}
