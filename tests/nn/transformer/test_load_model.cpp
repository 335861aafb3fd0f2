#include <tapeformer/nn/formats/checkpoint.h>
#include <tapeformer/nn/transformer/encoder_decoder.h>
#include <tapeformer/nn/transformer/load_model.h>
#include <tapeformer/tests/nn/formats/temporary_folder.h>
#include <tapeformer/tests/nn/transformer/decoder_only_case.h>
#include <tapeformer/tests/reference/config_case.h>

#include <nlohmann/json.hpp>

using namespace tapeformer;

namespace {

EncoderDecoderConfig small_translator() {
  EncoderDecoderConfig config;
  config.source_vocabulary = config.target_vocabulary = 11;
  config.layer.width = 12, config.layer.attention.heads = 6, config.layer.feed_forward = 5;
  config.encoder_layers = 2, config.decoder_layers = 3;
  config.max_length = 7;
  return config;
}

/// A run folder whose config.json is changed, one field at a time.
template <class Model, class Config>
struct Run : TemporaryFolder {
  explicit Run(const Config& config) : json(parse_json(config.to_json())) {
    auto model = fresh_module<Model>(config);
    save_weights(file("weights.safetensors"), model);
  }
  std::string refusal(const std::string& field, const nlohmann::ordered_json& value) const {
    auto changed = json;
    changed[field] = value;
    write_bytes(file("config.json"), changed.dump());
    const std::string said = message_of<CheckpointError>([&] { Model::load(file("")); });
    if (said == "nothing was thrown") return said;
    if (said.find(file("") + "/weights.safetensors: ") == 0) return said;
    REQUIRE(said.find(file("") + ": ") == 0);
    return said.substr(file("").size() + 2);
  }
  /// Any size, however large, gives a model or a CheckpointError.
  void try_huge_sizes() const {
    for (const auto& [name, value] : json.items()) {
      const std::string& field = name;
      if (!value.is_number_integer()) continue;
      for (const std::int64_t size :
           {std::int64_t{2147483646}, std::int64_t{2147483647}, std::int64_t{9223372036854775807}}) {
        INFO(field, " = ", size);
        const std::string said = refusal(field, size);
        CHECK(said.find("another type") != 0);
        CHECK((size <= 2147483647 || said.find(field + " must be from ") != std::string::npos));
      }
    }
  }
  nlohmann::ordered_json json;
};

/// A configuration that is accepted.
template <class Config>
Config usable() {
  Config config;
  if constexpr (std::is_same_v<Config, DecoderOnlyConfig>) {
    config.vocabulary = 11;
  } else {
    config.source_vocabulary = config.target_vocabulary = 11;
  }
  return config;
}

template <class Config>
std::string refusal(const std::string& text) {
  return message_of<CheckpointError>([&] { Config::from_json(text); });
}

template <class Config>
std::string refusal_of(const std::string& field, const Json& value) {
  Json json = parse_json(usable<Config>().to_json());
  json[field] = value;
  return refusal<Config>(json.dump());
}

const std::string kUnusable = "the model's configuration is not usable: ";

}  // namespace

TEST_CASE_TEMPLATE("every field survives the way through JSON", Config, DecoderOnlyConfig,
                   EncoderDecoderConfig) {
  check_every_field(usable<Config>());
  const std::string text = usable<Config>().to_json();
  CHECK(Config::from_json(text).to_json() == text);
}

TEST_CASE_TEMPLATE("programs keep more fields in the same file; unknown fields are refused by name", Config,
                   DecoderOnlyConfig, EncoderDecoderConfig) {
  for (const char* field : {"training", "vocabularies", "tokenizer_fingerprint", "data_fingerprint"})
    CHECK(refusal_of<Config>(field, Json::object()) == "nothing was thrown");
  CHECK(refusal_of<Config>("colour", 1) ==
        kUnusable + "it has a field that this version does not know: colour");
}

TEST_CASE_TEMPLATE("damaged files, other models and impossible fields are refused with the reason", Config,
                   DecoderOnlyConfig, EncoderDecoderConfig) {
  for (const char* damaged : {"{\"model\": ", "", "[]", "{}"})
    CHECK(refusal<Config>(damaged).find("the model's configuration is damaged: ") == 0);
  CHECK(refusal<Config>("{\"model_type\": \"llama\"}") ==
        "the configuration belongs to transformers, model_type=\"llama\", and not to a run; try "
        "load_hugging_face(), or load_checkpoint() in Python");
  CHECK(refusal_of<Config>("model", "lstm").find(kUnusable + "model must be ") == 0);
  CHECK(refusal_of<Config>("model", "lstm").find("; got \"lstm\"") != std::string::npos);
  CHECK(refusal_of<Config>("width", "ten") == kUnusable + "width must be a whole number; got \"ten\"");
  CHECK(refusal_of<Config>("heads", 0) == kUnusable + "heads must be from 1 to 2147483647; got 0");
  CHECK(refusal_of<Config>("width", 13).find("width must be divisible by heads") != std::string::npos);
  CHECK(refusal_of<Config>("activation", "softsign") ==
        kUnusable + "activation must be relu, relu_squared, gelu, gelu_tanh or silu; got softsign");
  CHECK(refusal_of<Config>("positions", "relative").find("got relative") != std::string::npos);
  CHECK(refusal_of<Config>("attention", "linear").find("got linear") != std::string::npos);
  CHECK(refusal_of<Config>("rotary_layout", "split") ==
        kUnusable + "rotary_layout must be interleaved or half_split; got split");
}

TEST_CASE("a language model far larger than its weights is refused before it takes memory") {
  const Run<DecoderOnly, DecoderOnlyConfig> run(tiny_config());
  const std::string start = run.file("") + "/weights.safetensors: the weights do not fit the model: ";
  CHECK(run.refusal("layers", 2) == "nothing was thrown");
  const std::string remedy = "; try the config.json that was saved with these weights";
  CHECK(run.refusal("layers", 2147483647) == start + "15 tensors are too few for 2147483647 layers" + remedy);
  CHECK(run.refusal("layers", 1000000000000) ==
        "the model's configuration is not usable: layers must be from 1 to 2147483647; got 1000000000000");
  CHECK(run.refusal("vocabulary", 2000000000) ==
        start + "[memory] f32[2000000000,8] is too large here, where the largest in the file is " +
            "layers.0.attention.query_key_value.weight [24,8]" + remedy);
  CHECK(run.refusal("positions", "sinusoidal").find("positions.weight is not in the model") !=
        std::string::npos);
  // For a model that is slightly too large, the tensors are named.
  CHECK(run.refusal("layers", 3).find("layers.2.attention.output.weight is missing") != std::string::npos);
  CHECK(run.refusal("vocabulary", 9)
            .find("embedding.weight is [7,8] in the file and [9,8] in the model" + remedy) !=
        std::string::npos);
  run.try_huge_sizes();
  DecoderOnlyConfig config = tiny_config();
  config.positions = PositionKind::sinusoidal;
  const Run<DecoderOnly, DecoderOnlyConfig> sinusoidal(config);
  CHECK(sinusoidal.refusal("context", 100000) == "nothing was thrown");
  CHECK(sinusoidal.refusal("context", 1000000000).find("[memory] f64[1000000000,8] is too large here") !=
        std::string::npos);
}

TEST_CASE("models with few tensors and large heads or latents are refused as well") {
  DecoderOnlyConfig config = tiny_config();
  config.attention.kind = "mla";
  config.attention.query_latent_width = 3;
  config.attention.key_width = 2;
  Run<DecoderOnly, DecoderOnlyConfig>(config).try_huge_sizes();
  config = tiny_config();
  config.attention.kind = "gqa";
  config.attention.key_width = 2;
  Run<DecoderOnly, DecoderOnlyConfig>(config).try_huge_sizes();
}

TEST_CASE("a translator far larger than its weights is refused before it takes memory") {
  EncoderDecoderConfig config = small_translator();
  config.positions = PositionKind::sinusoidal;
  const Run<EncoderDecoder, EncoderDecoderConfig> run(config);
  CHECK(run.refusal("width", 12) == "nothing was thrown");
  CHECK(run.refusal("decoder_layers", 1000000000)
            .find(" are too few for 1000000002 layers; try the config.json") != std::string::npos);
  CHECK(run.refusal("max_length", 2000000000).find("[memory] f64[2000000000,12] is too large") !=
        std::string::npos);
  CHECK(run.refusal("feed_forward", 2000000000).find("[memory] f32[2000000000,12] is too large") !=
        std::string::npos);
  run.try_huge_sizes();
}
