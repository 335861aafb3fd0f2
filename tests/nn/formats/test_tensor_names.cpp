#include <tapeformer/nn/formats/family.h>
#include <tapeformer/nn/formats/gguf_model.h>
#include <tapeformer/tests/reference/support.h>

#include <doctest/doctest.h>

#include <map>
#include <tuple>

using namespace tapeformer;

namespace {

DecoderOnlyConfig small_model() {
  DecoderOnlyConfig config;
  config.vocabulary = 7, config.context = 9, config.layers = 1, config.width = 12, config.attention.heads = 6;
  config.feed_forward = 5;
  return config;
}

/// A Llama of two layers with heads of 6 components, in the order of rows of `layout`.
DecoderOnlyConfig llama_of_layout(RotaryLayout layout) {
  DecoderOnlyConfig config = small_model();
  config.layers = 2;
  config.attention.kind = "gqa";
  config.attention.groups = 3, config.attention.key_width = 6;
  config.gated = true, config.norm = NormKind::rms, config.positions = PositionKind::rotary;
  config.attention.bias = config.feed_forward_bias = config.tie_head = false;
  config.attention.rotations.layout = layout;
  return config;
}

/// The tensors of a model in which each value is the number of its row.
std::map<std::string, Tensor> numbered(const TensorNames& names, const DecoderOnlyConfig& config) {
  Generator random(1);
  DecoderOnly model(config, random);
  for (Parameter& parameter : model.parameters()) {
    const Tensor& x = parameter.value();
    const Index columns = x.rank() > 1 ? x.size(1) : 1;
    for (Index i = 0; i < x.elements(); ++i) x.data<float>()[i] = static_cast<float>(i / columns);
  }
  const auto tensors = foreign_tensors(names, layouts_of(model), model);
  return {tensors.begin(), tensors.end()};
}

/// The first column of a tensor.
std::vector<float> rows_of(const Tensor& x) {
  std::vector<float> rows;
  for (Index i = 0; i < x.size(0); ++i)
    rows.push_back(static_cast<float>(x.at(i * (x.elements() / x.size(0)))));
  return rows;
}

}  // namespace

// The names themselves, and rows by head, of experts and of convolutions, are those of the golden folders of
// test_hugging_face.cpp.
TEST_CASE("a GPT-2's parameters, with its biases and transposed matrices") {
  const TensorNames& names = family_of_type("gpt2").names;
  DecoderOnlyConfig without_biases = small_model();
  without_biases.attention.bias = without_biases.feed_forward_bias = without_biases.norm_bias = false;
  const auto tensors = numbered(names, without_biases), all = numbered(names, small_model());
  const Tensor up = tensors.at("transformer.h.0.mlp.c_fc.weight");
  CHECK(rows_of(tensors.at("transformer.h.0.mlp.c_fc.bias")) == std::vector<float>(5));
  CHECK(up.to_vector<float>() == all.at("transformer.h.0.mlp.c_fc.weight").to_vector<float>());
  CHECK(up.shape() == Shape{12, 5});
  CHECK(up.at(3) == 3);  // transposed: rows are columns
}

TEST_CASE("queries and keys have the order of rows that the format rotates") {
  const std::vector<float> same{0, 1, 2, 3, 4, 5}, to_halves{0, 2, 4, 1, 3, 5}, to_pairs{0, 3, 1, 4, 2, 5};
  const auto check = [](const TensorNames& names, RotaryLayout layout, const char* query, const char* key,
                        const std::vector<float>& order) {
    const auto tensors = numbered(names, llama_of_layout(layout));
    for (const auto& [name, first, heads] : {std::tuple(query, 0, 6), std::tuple(key, 36, 3)}) {
      std::vector<float> expected;
      for (int head = 0; head < heads; ++head)
        for (const float row : order) expected.push_back(static_cast<float>(first + 6 * head) + row);
      CHECK(rows_of(tensors.at(name)) == expected);
    }
  };
  const auto half_split = RotaryLayout::half_split, interleaved = RotaryLayout::interleaved;
  const TensorNames &llama = family_of_type("llama").names, &gguf = gguf_format().families[1].names;
  const char *const query = "model.layers.1.self_attn.q_proj.weight",
                    *const key = "model.layers.1.self_attn.k_proj.weight";
  check(llama, half_split, query, key, same);
  check(llama, interleaved, query, key, to_halves);
  check(gguf, half_split, "blk.1.attn_q.weight", "blk.1.attn_k.weight", to_pairs);
  check(gguf, interleaved, "blk.1.attn_q.weight", "blk.1.attn_k.weight", same);
  check(family_of_type("qwen3").names, interleaved, query, key, to_halves);
}

TEST_CASE("two of our parameters may share a tensor head by head, and only rotary rows change their order") {
  DecoderOnlyConfig config = small_model();
  config.attention = {"mla", 2};
  config.attention.key_width = 3, config.attention.rotary_width = 4, config.attention.latent_width = 5;
  config.positions = PositionKind::rotary, config.gated = true, config.feed_forward_bias = false;
  const char* const layer = "model.layers.0.self_attn.";
  for (const RotaryLayout layout : {RotaryLayout::interleaved, RotaryLayout::half_split}) {
    config.attention.rotations.layout = layout;
    const auto tensors = numbered(family_of_type("deepseek_v3").names, config);
    const auto rows = [&](const char* name) {
      return rows_of(tensors.at(layer + std::string(name) + ".weight"));
    };
    if (layout == RotaryLayout::interleaved) {
      CHECK(rows("q_proj") == std::vector<float>{0, 1, 2, 0, 1, 2, 3, 3, 4, 5, 4, 5, 6, 7});
      CHECK(rows("kv_a_proj_with_mqa") == std::vector<float>{0, 1, 2, 3, 4, 0, 1, 2, 3});
    } else {
      CHECK(rows("q_proj") == std::vector<float>{0, 1, 2, 0, 2, 1, 3, 3, 4, 5, 4, 6, 5, 7});
      CHECK(rows("kv_a_proj_with_mqa") == std::vector<float>{0, 1, 2, 3, 4, 0, 2, 1, 3});
    }
    CHECK(rows("kv_b_proj") == std::vector<float>{0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5});
  }
}

TEST_CASE("constants among the weights are known, and the prefix of a model without a head") {
  const TensorNames &gpt2 = family_of_type("gpt2").names, &llama = family_of_type("llama").names,
                    &t5 = family_of_type<EncoderDecoderConfig>("t5").names;
  CHECK(gpt2.is_constant("transformer.h.0.attn.bias"));
  CHECK(gpt2.is_constant("h.11.attn.masked_bias"));
  CHECK_FALSE(gpt2.is_constant("h.0.attn.c_attn.bias"));
  CHECK(llama.is_constant("model.layers.0.self_attn.rotary_emb.inv_freq"));
  CHECK_FALSE(llama.is_constant("model.layers.0.self_attn.q_proj.bias"));
  CHECK(family_of_type("qwen3_next").names.is_constant("mtp.layers.0.mlp.gate.weight"));
  CHECK_FALSE(family_of_type("qwen3_next").names.is_constant("model.layers.0.mtp."));
  CHECK(t5.is_constant("decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"));
  CHECK(gpt2.prefix() == "transformer.");
  CHECK(llama.prefix() == "model.");
}
