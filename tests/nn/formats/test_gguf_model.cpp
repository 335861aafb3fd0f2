#include <tapeformer/nn/formats/gguf_model.h>
#include <tapeformer/tests/nn/formats/gguf_reader.h>
#include <tapeformer/tests/nn/formats/temporary_folder.h>
#include <tapeformer/tests/reference/support.h>

#include <doctest/doctest.h>

using namespace tapeformer;

namespace {

DecoderOnlyConfig gpt2_model() {
  DecoderOnlyConfig config;
  config.vocabulary = 7, config.context = 5, config.layers = 1, config.width = 4, config.attention.heads = 2;
  return config;
}

DecoderOnlyConfig llama_model() {
  DecoderOnlyConfig config = gpt2_model();
  config.attention.kind = "gqa";
  config.attention.heads = 4, config.attention.groups = 2, config.attention.key_width = 4;
  config.norm = NormKind::rms, config.gated = true, config.activation = Unary::silu;
  config.positions = PositionKind::rotary;
  config.attention.bias = config.feed_forward_bias = false;
  return config;
}

/// A model with different values everywhere, and its file.
GgufReader saved(const DecoderOnlyConfig& config, std::map<std::string, std::vector<float>>& weights,
                 GgufType type = GgufType::f32) {
  Generator random(test_seed(3));
  DecoderOnly model(config, random);
  for (auto& [name, parameter] : model.named_parameters()) {
    random.fill_normal(parameter.value(), 0, 1);
    for (Index i = 0; i < parameter.value().elements(); ++i)
      weights[name].push_back(static_cast<float>(parameter.value().at(i)));
  }
  const TemporaryFolder folder;
  save_gguf_model(folder.file("it"), model, {{"tokenizer.ggml.model", std::string("gpt2")}}, type);
  return GgufReader(read_bytes(folder.file("it")));
}

}  // namespace

TEST_CASE("a GPT-2 is written") {
  std::map<std::string, std::vector<float>> weights;
  const GgufReader file = saved(gpt2_model(), weights);
  const std::map<std::string, std::string> expected{
      {"general.architecture", "gpt2"},   {"general.file_type", "0"},
      {"gpt2.context_length", "5"},       {"gpt2.embedding_length", "4"},
      {"gpt2.block_count", "1"},          {"gpt2.feed_forward_length", "16"},
      {"gpt2.attention.head_count", "2"}, {"gpt2.attention.layer_norm_epsilon", "0.000010"},
      {"tokenizer.ggml.model", "gpt2"}};
  CHECK(file.texts == expected);
  const std::vector<std::pair<const char*, const char*>> names{
      {"token_embd.weight", "embedding.weight"},
      {"position_embd.weight", "positions.weight"},
      {"blk.0.attn_norm.weight", "layers.0.attention_norm.weight"},
      {"blk.0.attn_norm.bias", "layers.0.attention_norm.bias"},
      {"blk.0.attn_qkv.weight", "layers.0.attention.query_key_value.weight"},
      {"blk.0.attn_qkv.bias", "layers.0.attention.query_key_value.bias"},
      {"blk.0.attn_output.weight", "layers.0.attention.output.weight"},
      {"blk.0.attn_output.bias", "layers.0.attention.output.bias"},
      {"blk.0.ffn_norm.weight", "layers.0.feed_forward_norm.weight"},
      {"blk.0.ffn_norm.bias", "layers.0.feed_forward_norm.bias"},
      {"blk.0.ffn_up.weight", "layers.0.feed_forward.up.weight"},
      {"blk.0.ffn_up.bias", "layers.0.feed_forward.up.bias"},
      {"blk.0.ffn_down.weight", "layers.0.feed_forward.down.weight"},
      {"blk.0.ffn_down.bias", "layers.0.feed_forward.down.bias"},
      {"output_norm.weight", "norm.weight"},
      {"output_norm.bias", "norm.bias"}};
  REQUIRE(file.order.size() == names.size());
  for (std::size_t i = 0; i < names.size(); ++i) {
    INFO(names[i].first);
    CHECK(file.order[i] == names[i].first);
    CHECK(file.floats(names[i].first) == weights.at(names[i].second));
  }
  CHECK(file.tensors.at("blk.0.ffn_up.weight").sizes == std::vector<std::uint64_t>{4, 16});
}

// The order of the rows of queries and keys is checked in test_tensor_names.cpp.
TEST_CASE("a Llama is written") {
  DecoderOnlyConfig config = llama_model();
  config.attention.rotations.factor = 2;
  config.tie_head = false;
  config.attention.key_width = 6;
  std::map<std::string, std::vector<float>> weights;
  const GgufReader file = saved(config, weights);
  const std::vector<float>& packed = weights.at("layers.0.attention.query_key_value.weight");
  CHECK(file.tensors.at("blk.0.attn_q.weight").sizes == std::vector<std::uint64_t>{4, 24});
  CHECK(file.tensors.at("blk.0.attn_k.weight").sizes == std::vector<std::uint64_t>{4, 12});
  CHECK(file.floats("blk.0.attn_v.weight") == std::vector<float>(packed.begin() + 4 * 36, packed.end()));
  CHECK(file.floats("output.weight") == weights.at("head.weight"));
  std::vector<float> gate_and_up = file.floats("blk.0.ffn_gate.weight");
  for (const float x : file.floats("blk.0.ffn_up.weight")) gate_and_up.push_back(x);
  CHECK(gate_and_up == weights.at("layers.0.feed_forward.up.weight"));
  for (const auto& [key, value] :
       std::map<std::string, std::string>{{"general.architecture", "llama"},
                                          {"llama.vocab_size", "7"},
                                          {"llama.attention.head_count", "4"},
                                          {"llama.attention.head_count_kv", "2"},
                                          {"llama.attention.key_length", "6"},
                                          {"llama.attention.value_length", "6"},
                                          {"llama.rope.dimension_count", "6"},
                                          {"llama.rope.freq_base", "10000.000000"},
                                          {"llama.rope.scaling.type", "linear"},
                                          {"llama.rope.scaling.factor", "2.000000"}})
    CHECK(file.texts.at(key) == value);
}

TEST_CASE("Llama 3's scaling of frequencies is a tensor") {
  DecoderOnlyConfig config = llama_model();
  config.attention.rotations.original_context = 64;
  config.attention.rotations.factor = 8;
  std::map<std::string, std::vector<float>> weights;
  const GgufReader file = saved(config, weights, GgufType::f16);
  const std::vector<float> divisors = file.floats("rope_freqs.weight");
  REQUIRE(divisors.size() == 2);
  CHECK(divisors[0] == doctest::Approx(1));  // 64 / 2 pi turns are more than 4
  CHECK(divisors[1] == doctest::Approx(8));  // 0.64 / 2 pi are less than 1
  CHECK(file.texts.count("llama.rope.scaling.type") == 0);
  CHECK(file.texts.at("general.file_type") == "1");
  CHECK(file.tensors.at("blk.0.attn_q.weight").type == 1);
  CHECK(file.tensors.at("output_norm.weight").type == 0);
}

TEST_CASE("options that the format cannot express are named") {
  const auto refusal = [](const DecoderOnlyConfig& config) {
    return message_of<CheckpointError>([&] { gguf_metadata(config); });
  };
  DecoderOnlyConfig config = gpt2_model();
  config.activation = Unary::gelu;
  CHECK(refusal(config) ==
        "[export] gguf has no such model; GPT-2 differs least; got activation=gelu; try "
        "activation=gelu_tanh");
  config = llama_model();
  config.attention.qk_norm = QkNorm::rms;
  config.short_convolution = 3;
  config.prefix = true;
  CHECK(refusal(config) ==
        "[export] gguf has no such model; Llama differs least; got qk_norm=rms, short_convolution=3, "
        "prefix=true; try qk_norm=none, short_convolution=0, prefix=false");
}
