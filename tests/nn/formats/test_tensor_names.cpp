#include <tapeformer/autograd/ops/shape.h>
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
  std::map<std::string, Tensor> tensors;
  for (const auto& [name, value] : foreign_tensors(names, model)) tensors.emplace(name, value);
  return tensors;
}

/// The first column of a tensor.
std::vector<float> rows_of(const Tensor& x) {
  std::vector<float> rows;
  for (Index i = 0; i < x.size(0); ++i)
    rows.push_back(static_cast<float>(x.at(i * (x.elements() / x.size(0)))));
  return rows;
}

}  // namespace

// The names themselves are those of the golden folders of test_hugging_face.cpp.
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

TEST_CASE("rows of queries, keys and values by head, and of pairs of heads, come to their places") {
  ForeignPart part{"w", {6}, {{6}}};
  part.outer = 2, part.inner = 3;
  CHECK(rows_to_ours(part, Tensor::from<float>({0, 1, 2, 3, 4, 5})).to_vector<float>() ==
        std::vector<float>{0, 3, 1, 4, 2, 5});
  DecoderOnlyConfig config = small_model();
  config.embedding_norm = true, config.positions = PositionKind::alibi;
  const Tensor rows = numbered(family_of_type("bloom").names, config)
                          .at("transformer.h.0.self_attention.query_key_value.weight");
  const Index H = config.attention.heads, D = 12 / H;
  for (Index row = 0; row < 36; ++row)  // of head h: D rows of queries, keys and values
    CHECK(rows_of(rows)[static_cast<std::size_t>(row)] == row / D % 3 * 12 + row / (3 * D) * D + row % D);
}

TEST_CASE("one tensor of all experts has their matrices transposed, and the halves of a gate alternate") {
  DecoderOnlyConfig config = llama_of_layout(RotaryLayout::half_split);
  config.experts.experts = 3, config.feed_forward_bias = true;
  const auto tensors = numbered(family_of_type("gpt_oss").names, config);
  const std::string experts = "model.layers.1.mlp.experts.";
  const Tensor up = tensors.at(experts + "gate_up_proj"), bias = tensors.at(experts + "gate_up_proj_bias"),
               down = tensors.at(experts + "down_proj");
  const Index F = 5, C = 12;
  REQUIRE(up.shape() == Shape{3, C, 2 * F});
  REQUIRE(bias.shape() == Shape{3, 2 * F});
  REQUIRE(down.shape() == Shape{3, F, C});
  for (Index e = 0; e < 3; ++e)
    for (Index f = 0; f < F; ++f)
      for (const Index half : {0, 1}) {  // of our rows, which follow each other
        const auto row = static_cast<double>((2 * e + half) * F + f);
        for (Index c = 0; c < C; ++c) CHECK(up.at(((e * C + c) * F + f) * 2 + half) == row);
        CHECK(bias.at((e * F + f) * 2 + half) == row);
      }
  for (Index i = 0; i < down.elements(); ++i)
    CHECK(down.at(i) == static_cast<double>(i / (F * C) * C + i % C));
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

TEST_CASE("a tensor of several parameters has the rows of each by head, and a convolution its taps in turn") {
  DecoderOnlyConfig config = small_model();
  config.attention.kind = "gated_deltanet", config.attention_pattern = "D";
  config.positions = PositionKind::none;
  config.attention.own = {{"state_heads", 4}, {"state_key_heads", 2}, {"state_key_width", 3}};
  config.norm = NormKind::rms, config.feed_forward_bias = false, config.gated = true;
  config.experts.experts = 2, config.experts.shared = 3, config.experts.shared_gate = true;
  const auto tensors = numbered(family_of_type("qwen3_next").names, config);
  const std::string layer = "model.layers.0.linear_attn.";
  // For each of the 2 heads: 3 rows of queries, 3 of keys, and 2 times 2 of values and of gates.
  CHECK(rows_of(tensors.at(layer + "in_proj_qkvz.weight")) ==
        std::vector<float>{0, 1, 2, 6, 7,  8,  12, 13, 14, 15, 0, 1, 2, 3,
                           3, 4, 5, 9, 10, 11, 16, 17, 18, 19, 4, 5, 6, 7});
  CHECK(rows_of(tensors.at(layer + "in_proj_ba.weight")) == std::vector<float>{0, 1, 0, 1, 2, 3, 2, 3});
  const Tensor taps = tensors.at(layer + "conv1d.weight");  // of 20 columns, in which ours counts all
  CHECK(taps.shape() == Shape{20, 1, 4});
  CHECK(slice(taps, 0, 7, 1).to_vector<float>() == std::vector<float>{67, 47, 27, 8});
  ForeignPart part{"w", {20, 1, 4}, {{20}}};
  part.taps = 4;
  CHECK(slice(to_ours(part, taps), 0, 7, 1).to_vector<float>() == std::vector<float>{7, 27, 47, 67});
}

TEST_CASE("tensors survive a round trip") {
  const ForeignPart transposed{"w", {2, 3}, {{3}}, true}, gain{"g", {4}, {{4}}, false, 1};
  const Tensor ours = to_ours(transposed, Tensor::from<float>({1, 2, 3, 4, 5, 6}, {2, 3}));
  CHECK(ours.shape() == Shape{3, 2});
  CHECK(ours.to_vector<float>() == std::vector<float>{1, 4, 2, 5, 3, 6});
  CHECK(to_ours(gain, Tensor::from<float>({0, 1, 2, 3})).to_vector<float>() ==
        std::vector<float>{1, 2, 3, 4});
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
