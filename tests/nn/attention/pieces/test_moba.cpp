#include <tapeformer/tests/nn/attention/multi_head_case.h>

using namespace tapeformer;

namespace {

void choose(AttentionConfig& config) { config.moba_block = 4, config.moba_top_k = 2; }

}  // namespace

TEST_CASE("a layer attends to the blocks of its queries, and to all keys where there are no more") {
  for (const char* const kind : {"mha", "gqa", "mqa"}) {
    for (const Index length : {1, 7, 8, 33}) {
      CAPTURE(kind);
      CAPTURE(length);
      const AttentionConfig config = layer_config(kind), chosen = layer_config(kind, choose);
      MultiHeadAttention dense = random_module<MultiHeadAttention>(config),
                         blocks = random_module<MultiHeadAttention>(chosen);
      const LayerInputs in(config, length);
      const Tensor all = dense(in.x, in.x, in.context()), some = blocks(in.x, in.x, in.context());
      CHECK((relative_error(some, all) < 1e-12) == (length <= 8));
    }
  }
}

TEST_CASE("what blocks exclude is named, and another memory is attended to as a whole") {
  const auto refusal = [](const ChooseOptions& other) {
    return message_of<Error>([&] {
      AttentionConfig config = layer_config("mha", choose);
      other(config);
      config.check();
    });
  };
  const auto names = [&](const char* what, const ChooseOptions& other) {
    CHECK(refusal(other).find(std::string("[attention] moba_block excludes ") + what +
                              "; got attention=mha") == 0);
  };
  names("softcap", [](AttentionConfig& c) { c.softcap = 1; });
  names("a bias by distance", [](AttentionConfig& c) { c.relative_bias = RelativeBias::alibi; });
  names("sinks", [](AttentionConfig& c) { c.sinks = true; });
  names("sigmoid weights", [](AttentionConfig& c) { c.weighting = AttentionWeighting::sigmoid; });
  names("dropout of weights", [](AttentionConfig& c) { c.dropout = 0.1; });
  AttentionConfig cross = layer_config("mha", choose);
  cross.cross = true;
  CHECK(cross.resolved().moba_block == 0);
  const MultiHeadAttention layer = random_module<MultiHeadAttention>(layer_config("mha", choose));
  const Tensor x = random_values({1, 4, 6}, 3), memory = random_values({1, 5, 6}, 4);
  CHECK(message_of<Error>([&] { layer(x, memory); }) ==
        "[multi_head] moba_block is for self-attention; got a memory that is not the query; try cross=true");
}
