#include <tapeformer/autograd/format.h>
#include <tapeformer/examples/translation/heat_map.h>
#include <tapeformer/tests/data/tokenizers/pieces_of_text.h>
#include <tapeformer/tests/nn/formats/temporary_folder.h>
#include <tapeformer/tests/nn/module_case.h>
#include <tapeformer/tests/reference/text.h>

using namespace tapeformer;

namespace {

EncoderDecoder model_of(const char* attention, Index vocabulary) {
  EncoderDecoderConfig config;
  config.layer.attention.kind = attention;
  config.layer.width = 16, config.layer.attention.heads = 4;
  config.source_vocabulary = config.target_vocabulary = vocabulary;
  config.encoder_layers = 1, config.decoder_layers = 2, config.max_length = 12;
  auto model = fresh_module<EncoderDecoder>(config);
  model.eval();
  return model;
}

std::unique_ptr<Tokenizer> trained(const char* kind, const std::vector<std::string>& sentences) {
  return tokenizer_kind(sentence_tokenizers(), kind).train(text_in(sentences), 30);
}

Vocabularies words_of() {
  const std::shared_ptr<const Tokenizer> words = trained("word", {"the cat sees <a & b>"});
  return {words, words};
}

}  // namespace

TEST_CASE("the weights are the layer's own, whatever the kind of attention") {
  for (const char* kind : {"mha", "mla", "additive"}) {
    CAPTURE(kind);
    const EncoderDecoder model = model_of(kind, 9);
    const auto layers = cross_attention_weights(model, {4, 5, 6, kEnd}, {7, 8, kEnd}, kBegin);
    const Tensor& weights = layers.at(1);
    REQUIRE(weights.shape() == Shape{1, 4, 3, 4});
    std::vector<Tensor> expected;
    const Tensor memory = model.encode(ids_of({4, 5, 6, kEnd}, {1, 4}), {});
    model.decode(ids_of({kBegin, 7, 8}, {1, 3}), memory, {}, &expected);
    CHECK(same_bits(weights, expected.at(1)));
    CHECK(absolute_error(weights, layers.at(0)) > 1e-4);
    // Causal: the first rows do not depend on later tokens.
    const Tensor longer = cross_attention_weights(model, {4, 5, 6, kEnd}, {7, 8, 4, kEnd}, kBegin).at(1);
    for (Index i = 0; i < 12; ++i) CHECK_BELOW(deviation(longer.at(i), weights.at(i)), 1e-5);
  }
}

TEST_CASE("a translation longer than the model's context is drawn as far as that goes") {
  const EncoderDecoder model = model_of("mha", 9);
  CHECK(cross_attention_weights(model, {4}, std::vector<std::int32_t>(30, 5), kBegin).at(0).size(2) == 12);
}

TEST_CASE("the picture has pieces on both axes, end tokens included; further lines get their own files") {
  const TemporaryFolder folder;
  const Vocabularies words = words_of();
  const EncoderDecoder model = model_of("additive", words.source->vocabulary_size());
  TranslationHeatMap heat_map;
  heat_map.file = folder.file("map.svg");
  const std::vector<std::int32_t> source = words.source->encode("the cat"),
                                  target = words.target->encode("sees &");
  heat_map.write(model, words, source, target, 1);
  heat_map.head = "all";
  heat_map.write(model, words, source, target, 2);
  heat_map.head = "3", heat_map.layer = 0;
  heat_map.write(model, words, source, target, 12);
  CHECK(folder.count() == 3);
  heat_map.file = "some.folder/a.b";
  CHECK(heat_map.path(3) == "some.folder/a-3.b");

  const std::string averaged = read_bytes(folder.file("map.svg"));
  CHECK(has(averaged, "decoder layer 1, heads averaged: the cat → sees &amp;<"));
  for (const char* text :
       {">·the</text>", ">·cat</text>", ">·sees</text>", ">·&amp;</text>", ">&lt;end&gt;</text>",
        "<title>·sees ← ·the: ", "<title>&lt;end&gt; ← &lt;end&gt;: "}) {
    CAPTURE(text);
    CHECK(has(averaged, text));
  }
  const std::string panels = read_bytes(folder.file("map-2.svg"));
  CHECK(has(panels, ">head 3</text>"));
  const std::string one = read_bytes(folder.file("map-12.svg"));
  CHECK(has(one, "decoder layer 0, head 3: "));
}

TEST_CASE("pieces of SentencePiece, and of vocabularies made with it, begin with a space") {
  const auto pieces = trained("bpe", {"the cat sees the cat", "the cat sees a hat"});
  const auto cut = trained("space", {"▁the ▁cat ▁s ees"});
  for (const auto& [tokenizer, text] : {std::pair(pieces.get(), "the cat"), {cut.get(), "▁the ▁cat"}}) {
    CHECK(joined(pieces_of(*tokenizer, tokenizer->encode(text)), "") == " the cat");
  }
}

TEST_CASE("layers and heads that do not exist are refused") {
  const EncoderDecoder model = model_of("mha", 9);
  TranslationHeatMap heat_map;
  const auto says = [&](Index layer, const char* head) {
    heat_map.layer = layer, heat_map.head = head;
    return message_of<Error>([&] { heat_map.check(model.config()); });
  };
  CHECK(says(7, "none") == "nothing was thrown");  // no picture was asked for
  const TemporaryFolder folder;
  heat_map.file = folder.file("nowhere/map.svg");
  CHECK(has(says(-1, "all"), "nowhere/map.svg: cannot be written"));
  heat_map.file = folder.file("map.svg");
  for (const char* head : {"0", "3", "all", "averaged"}) CHECK(says(-1, head) == "nothing was thrown");
  CHECK(message_of<Error>([&] { heat_map.check(model_of("differential", 9).config()); }) ==
        "--heatmap cannot show negative weights, which differential attention may have; omit it");
  CHECK(says(2, "all") == "--heatmap-layer must be a decoder layer, 0 to 1, or -1 for the last; got 2");
  for (const char* head : {"4", "-1", "1x", ""}) {
    CHECK(says(1, head) == std::string("--heatmap-head must be 0 to 3, averaged or all; got ") + head);
  }
}
