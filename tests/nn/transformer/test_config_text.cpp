#include <tapeformer/autograd/config/json.h>
#include <tapeformer/nn/transformer/decoder_only.h>
#include <tapeformer/nn/transformer/encoder_decoder.h>
#include <tapeformer/tests/reference/config_case.h>

using namespace tapeformer;

namespace {

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

TEST_SUITE("nn/transformer/config_text") {
  TEST_CASE_TEMPLATE("every field survives the way through JSON", Config, DecoderOnlyConfig,
                     EncoderDecoderConfig) {
    check_every_field(usable<Config>());
    const std::string text = usable<Config>().to_json();
    CHECK(Config::from_json(text).to_json() == text);
  }

  TEST_CASE_TEMPLATE("programs keep more in the same file; what nobody knows is refused by its name", Config,
                     DecoderOnlyConfig, EncoderDecoderConfig) {
    for (const char* field : {"training", "vocabularies", "tokenizer_fingerprint", "data_fingerprint"})
      CHECK(refusal_of<Config>(field, Json::object()) == "nothing was thrown");
    CHECK(refusal_of<Config>("colour", 1) ==
          kUnusable + "it has a field that this version does not know: colour");
  }

  TEST_CASE_TEMPLATE("damaged files, other models and impossible fields are refused with what is wrong",
                     Config, DecoderOnlyConfig, EncoderDecoderConfig) {
    for (const char* damaged : {"{\"model\": ", "", "[]", "{}"})
      CHECK(refusal<Config>(damaged).find("the model's configuration is damaged: ") == 0);
    CHECK(refusal<Config>("{\"model_type\": \"llama\"}") ==
          "the configuration is of transformers, model_type=\"llama\", and not of a run; try "
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
}
