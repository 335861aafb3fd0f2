#include <tapeformer/nn/formats/hugging_face_names.h>
#include <tapeformer/tests/reference/support.h>

#include <doctest/doctest.h>

using namespace tapeformer;

namespace {

/// "ours: theirs[shape] theirs[shape]", with what is done to each.
std::string text_of(const ForeignParameter& parameter) {
  std::string text = parameter.name + ":";
  for (const ForeignPart& part : parameter.parts) {
    text += " " + part.name + part.shape.text() + (part.transposed ? " transposed" : "");
    if (part.interleaved_heads > 0) text += " interleaved " + std::to_string(part.interleaved_heads);
  }
  return text;
}

std::vector<std::string> texts_of(ForeignFormat format, const DecoderOnlyConfig& config) {
  std::vector<std::string> texts;
  for (const ForeignParameter& parameter : foreign_parameters(format, config)) {
    texts.push_back(text_of(parameter));
  }
  return texts;
}

DecoderOnlyConfig small() {
  DecoderOnlyConfig config;
  config.vocabulary = 7, config.context = 9, config.layers = 1, config.width = 12, config.attention.heads = 6;
  config.feed_forward = 5;
  return config;
}

DecoderOnlyConfig small_llama() {
  DecoderOnlyConfig config = small();
  config.attention.kind = "gqa";
  config.attention.groups = 3, config.attention.key_width = 4;
  config.gated = true, config.norm = NormKind::rms, config.positions = PositionKind::rotary;
  config.attention.bias = config.feed_forward_bias = false;
  return config;
}

}  // namespace

TEST_SUITE("nn/formats/hugging_face_names") {
  TEST_CASE("GGUF's names, and rows in pairs for half-split heads") {
    DecoderOnlyConfig config = small_llama();
    config.attention.rotations.layout = RotaryLayout::half_split;
    const auto parameters = foreign_parameters(ForeignFormat::gguf_llama, config);
    const ForeignParameter& packed = parameters.at(2);
    CHECK(packed.name == "layers.0.attention.query_key_value.weight");
    CHECK(packed.parts.at(0).half_split_heads == 6);
    CHECK(packed.parts.at(1).half_split_heads == 3);
    CHECK(packed.parts.at(2).half_split_heads == 0);
    const std::vector<std::string> texts = texts_of(ForeignFormat::gguf_gpt2, small());
    CHECK(texts.at(4) == "layers.0.attention.query_key_value.weight: blk.0.attn_qkv.weight[36,12]");
    const ForeignPart halves{"", {6, 1}, false, 0, 1};
    const Tensor paired = to_theirs(halves, Tensor::from<float>({1, 2, 3, 4, 5, 6}, {6, 1}));
    CHECK(paired.at(1) == 4);
    CHECK(paired.at(2) == 2);
    CHECK(paired.at(4) == 3);
  }

  TEST_CASE("a GPT-2's parameters") {
    const std::vector<std::string> expected{
        "embedding.weight: transformer.wte.weight[7,12]",
        "positions.weight: transformer.wpe.weight[9,12]",
        "layers.0.attention_norm.weight: transformer.h.0.ln_1.weight[12]",
        "layers.0.attention_norm.bias: transformer.h.0.ln_1.bias[12]",
        "layers.0.attention.query_key_value.weight: transformer.h.0.attn.c_attn.weight[12,36] transposed",
        "layers.0.attention.query_key_value.bias: transformer.h.0.attn.c_attn.bias[36]",
        "layers.0.attention.output.weight: transformer.h.0.attn.c_proj.weight[12,12] transposed",
        "layers.0.attention.output.bias: transformer.h.0.attn.c_proj.bias[12]",
        "layers.0.feed_forward_norm.weight: transformer.h.0.ln_2.weight[12]",
        "layers.0.feed_forward_norm.bias: transformer.h.0.ln_2.bias[12]",
        "layers.0.feed_forward.up.weight: transformer.h.0.mlp.c_fc.weight[12,5] transposed",
        "layers.0.feed_forward.up.bias: transformer.h.0.mlp.c_fc.bias[5]",
        "layers.0.feed_forward.down.weight: transformer.h.0.mlp.c_proj.weight[5,12] transposed",
        "layers.0.feed_forward.down.bias: transformer.h.0.mlp.c_proj.bias[12]",
        "norm.weight: transformer.ln_f.weight[12]",
        "norm.bias: transformer.ln_f.bias[12]"};
    CHECK(texts_of(ForeignFormat::gpt2, small()) == expected);
    DecoderOnlyConfig untied = small();
    untied.tie_head = false;
    CHECK(texts_of(ForeignFormat::gpt2, untied).back() == "head.weight: lm_head.weight[7,12]");
  }

  TEST_CASE("a Llama's parameters, whose queries and keys are reordered when ours turn in neighbours") {
    const std::vector<std::string> expected{
        "embedding.weight: model.embed_tokens.weight[7,12]",
        "layers.0.attention_norm.weight: model.layers.0.input_layernorm.weight[12]",
        "layers.0.attention.query_key_value.weight: model.layers.0.self_attn.q_proj.weight[24,12] "
        "interleaved 6 "
        "model.layers.0.self_attn.k_proj.weight[12,12] interleaved 3 "
        "model.layers.0.self_attn.v_proj.weight[12,12]",
        "layers.0.attention.output.weight: model.layers.0.self_attn.o_proj.weight[12,24]",
        "layers.0.feed_forward_norm.weight: model.layers.0.post_attention_layernorm.weight[12]",
        "layers.0.feed_forward.up.weight: model.layers.0.mlp.gate_proj.weight[5,12] "
        "model.layers.0.mlp.up_proj.weight[5,12]",
        "layers.0.feed_forward.down.weight: model.layers.0.mlp.down_proj.weight[12,5]",
        "norm.weight: model.norm.weight[12]"};
    CHECK(texts_of(ForeignFormat::llama, small_llama()) == expected);
    DecoderOnlyConfig config = small_llama();
    config.attention.rotations.layout = RotaryLayout::half_split;
    config.tie_head = false, config.attention.bias = config.feed_forward_bias = true;
    const std::vector<std::string> texts = texts_of(ForeignFormat::llama, config);
    CHECK(texts[2] ==
          "layers.0.attention.query_key_value.weight: model.layers.0.self_attn.q_proj.weight[24,12] "
          "model.layers.0.self_attn.k_proj.weight[12,12] model.layers.0.self_attn.v_proj.weight[12,12]");
    CHECK(texts[3] ==
          "layers.0.attention.query_key_value.bias: model.layers.0.self_attn.q_proj.bias[24] "
          "model.layers.0.self_attn.k_proj.bias[12] model.layers.0.self_attn.v_proj.bias[12]");
    CHECK(texts.back() == "head.weight: lm_head.weight[7,12]");
    CHECK(texts.size() == expected.size() + 5);
  }

  TEST_CASE("the same by Meta's names, and never reordered") {
    DecoderOnlyConfig config = small_llama();
    config.tie_head = false;
    const std::vector<std::string> expected{
        "embedding.weight: tok_embeddings.weight[7,12]",
        "layers.0.attention_norm.weight: layers.0.attention_norm.weight[12]",
        "layers.0.attention.query_key_value.weight: layers.0.attention.wq.weight[24,12] "
        "layers.0.attention.wk.weight[12,12] layers.0.attention.wv.weight[12,12]",
        "layers.0.attention.output.weight: layers.0.attention.wo.weight[12,24]",
        "layers.0.feed_forward_norm.weight: layers.0.ffn_norm.weight[12]",
        "layers.0.feed_forward.up.weight: layers.0.feed_forward.w1.weight[5,12] "
        "layers.0.feed_forward.w3.weight[5,12]",
        "layers.0.feed_forward.down.weight: layers.0.feed_forward.w2.weight[12,5]",
        "norm.weight: norm.weight[12]",
        "head.weight: output.weight[7,12]"};
    CHECK(texts_of(ForeignFormat::meta, config) == expected);
  }

  TEST_CASE("a transposed matrix, there and back") {
    const ForeignPart part{"w", {2, 3}, true};
    const Tensor ours = to_ours(part, Tensor::from<float>({1, 2, 3, 4, 5, 6}, {2, 3}));
    CHECK(ours.shape() == Shape{3, 2});
    CHECK(ours.to_vector<float>() == std::vector<float>{1, 4, 2, 5, 3, 6});
    CHECK(to_theirs(part, ours).to_vector<float>() == std::vector<float>{1, 2, 3, 4, 5, 6});
  }

  TEST_CASE("neighbouring rows of two heads become halves") {
    const ForeignPart part{"q", {8, 2}, false, 2};
    const Tensor ours = Tensor::from<float>({0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7}, {8, 2});
    CHECK(to_theirs(part, ours).to_vector<float>() ==
          std::vector<float>{0, 0, 2, 2, 1, 1, 3, 3, 4, 4, 6, 6, 5, 5, 7, 7});
    const ForeignPart bias{"q", {6}, false, 1};
    const Tensor turned = to_theirs(bias, Tensor::from<float>({0, 1, 2, 3, 4, 5}));
    CHECK(turned.shape() == Shape{6});
    CHECK(turned.to_vector<float>() == std::vector<float>{0, 2, 4, 1, 3, 5});
    const ForeignPart gain{"q", {4}, false, 1, 0, 1};
    CHECK(to_ours(gain, Tensor::from<float>({0, 1, 2, 3})).to_vector<float>() ==
          std::vector<float>{1, 2, 3, 4});
    CHECK(to_theirs(gain, Tensor::from<float>({1, 2, 3, 4})).to_vector<float>() ==
          std::vector<float>{0, 2, 1, 3});
  }

  TEST_CASE("constants among the weights are known") {
    CHECK(is_constant(ForeignFormat::gpt2, "transformer.h.0.attn.bias"));
    CHECK(is_constant(ForeignFormat::gpt2, "h.11.attn.masked_bias"));
    CHECK_FALSE(is_constant(ForeignFormat::gpt2, "h.0.attn.c_attn.bias"));
    CHECK(is_constant(ForeignFormat::llama, "model.layers.0.self_attn.rotary_emb.inv_freq"));
    CHECK_FALSE(is_constant(ForeignFormat::llama, "model.layers.0.self_attn.q_proj.bias"));
    CHECK(is_constant(ForeignFormat::meta, "rope.freqs"));
    CHECK_FALSE(is_constant(ForeignFormat::meta, "layers.0.ffn_norm.weight"));
  }
}
