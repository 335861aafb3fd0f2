#include <tapeformer/autograd/config/json.h>
#include <tapeformer/nn/transformer/encoder_decoder.h>
#include <tapeformer/tests/nn/module_case.h>
#include <tapeformer/tests/reference/text.h>

#include <nlohmann/json.hpp>

using namespace tapeformer;

namespace {

EncoderDecoderConfig unusual_translation() {
  EncoderDecoderConfig config;
  config.layer.width = 10;
  config.layer.attention.heads = 3;
  config.layer.attention.key_width = 5;
  config.layer.attention.value_width = 7;
  config.layer.feed_forward = 19;
  config.layer.activation = Unary::gelu_tanh;
  config.layer.dropout = 0.125;
  config.layer.norm_first = false;
  config.layer.epsilon = 1e-6;
  config.source_vocabulary = config.target_vocabulary = 11;
  config.encoder_layers = 2;
  config.decoder_layers = 1;
  config.positions = PositionKind::learned;
  config.max_length = 9;
  config.tie_target_head = false;
  config.tie_embeddings = true;
  config.layer.norm = NormKind::rms;
  config.layer.attention.qk_norm = QkNorm::rms;
  config.zero_init = true;
  config.logit_softcap = 30;
  return config;
}

}  // namespace

TEST_CASE("a file from before there were other kinds of attention loads, with projections apart") {
  nlohmann::ordered_json json = parse_json(unusual_translation().to_json());
  for (const char* later : {"attention", "groups", "packed", "rotary", "rotary_base"}) json.erase(later);
  const EncoderDecoderConfig read = EncoderDecoderConfig::from_json(json.dump());
  CHECK(read.layer.attention.kind == "mha");
  CHECK_FALSE(read.layer.attention.packed);
  CHECK_FALSE(read.layer.attention.rotary);
  CHECK(read.layer.attention.rotations.base == 10000);
  CHECK(read.tie_embeddings);
  auto model = fresh_module<EncoderDecoder>(read);
  CHECK(model.named_parameters()[2].first == "encoder.0.self_attention.query.weight");
}

TEST_CASE("rotary positions turn queries and keys of self-attention, and nothing else knows positions") {
  EncoderDecoderConfig config = unusual_translation();
  config.positions = PositionKind::rotary;
  config.layer.width = 12, config.layer.attention = {"gqa", 6};
  config.layer.dropout = 0;
  auto model = fresh_module<EncoderDecoder>(config);
  randomise(model, 2);
  const Tensor forth = model.encode(ids_of({4, 5, 6}, {1, 3}), {});
  const Tensor back = model.encode(ids_of({6, 5, 4}, {1, 3}), {});
  CHECK(relative_error(slice(back, 1, 2, 1), slice(forth, 1, 0, 1)) > 1e-3);
  const Tensor one = model.encode(ids_of({4}, {1, 1}), {}), same = model.encode(ids_of({4, 4}, {1, 2}), {});
  CHECK_BELOW(relative_error(slice(same, 1, 1, 1), one), 1e-5);  // the same value, however it is weighed
}

TEST_CASE("sizes that do not fit are refused with the sizes") {
  const auto refused = [](const std::function<void(EncoderDecoderConfig&)>& change) {
    EncoderDecoderConfig config = unusual_translation();
    change(config);
    return message_of<Error>([&] { fresh_module<EncoderDecoder>(config); });
  };
  CHECK(refused([](auto& c) { c.layer.attention.dropout = 0.5; }) ==
        "[encoder_decoder] the model decides its attention's dropout; got dropout=0.5; try dropout=0");
  CHECK(has(refused([](auto& c) { c.layer.attention.groups = 3; }), "groups is for gqa"));
  CHECK(has(refused([](auto& c) { c.positions = PositionKind::rotary; }), "components=5"));
  CHECK(has(refused([](auto& c) {
              c.positions = PositionKind::rotary;
              c.layer.attention.kind = "additive", c.layer.attention.qk_norm = QkNorm::none;
            }),
            "cannot rotate queries and keys by rotary positions"));
  CHECK(
      has(refused([](auto& c) { c.layer.attention.key_width = 0, c.layer.width = 12, c.decoder_heads = 5; }),
          "heads=5"));
  CHECK(has(refused([](auto& c) { c.max_length = 1; }), "max_length must be at least 2; got 1"));
  CHECK(has(refused([](auto& c) { c.layer.dropout = std::nan(""); }), "dropout must be in [0, 1)"));
  CHECK(has(refused([](auto& c) { c.target_vocabulary = 12; }),
            "tied embeddings need one vocabulary; got source=11, target=12"));
}
