#include <tapeformer/nn/formats/config_map.h>
#include <tapeformer/tests/nn/formats/hugging_face_case.h>

using namespace tapeformer;

namespace {

void describe_example(ConfigMap& map) {
  map.field("size", "width");
  map.field("rate", "attention_dropout", 0.25);
  map.field("eps", "epsilon", 0.5);
  map.field("tied", "tie_head", false);
  map.fixed("embedding_scale", 3.0);
  map.has({"rotary_*"});
  map.activation("act", "silu", true);
  map.size("hidden", "feed_forward", map.model.hidden_width(), 2 * map.model.width);
  map.demand("other", nullptr);
  map.ignore({"name"});
}

}  // namespace

TEST_CASE("a description reads, writes and fits its fields; others take their defaults") {
  JsonFields file(parse_json(R"({"size": 6, "act": "swish", "name": "it"})"), "");
  const DecoderOnlyConfig read = ConfigMap::read(describe_example, file);
  CHECK_NOTHROW(file.finish());
  CHECK(read.width == 6);
  CHECK(read.attention.dropout == 0.25);
  CHECK(read.epsilon == 0.5);
  CHECK_FALSE(read.tie_head);
  CHECK(read.embedding_scale == 3);
  CHECK(read.gated);
  CHECK(read.activation == Unary::silu);
  CHECK(read.feed_forward == 12);
  Json written = Json::object();
  ConfigMap::write(describe_example, read, written);
  CHECK(written.dump() == R"({"size":6,"rate":0.25,"eps":0.5,"tied":false,"act":"silu","hidden":12})");

  DecoderOnlyConfig model = read, expected = read;
  model.gated = false, model.activation = Unary::relu;
  model.embedding_scale = 1, model.head_bias = true, model.window = 3, model.attention.softcap = 5;
  model.attention.rotations.base = expected.attention.rotations.base = 7;
  model.residual_dropout = expected.residual_dropout = 0.5;  // only for training
  CHECK(ConfigMap::fit(describe_example, model).to_json() == expected.to_json());
  CHECK(ConfigMap::fit(describe_example, expected).to_json() == expected.to_json());
  CHECK(message_of<CheckpointError>([] {
          JsonFields unknown(parse_json(R"({"size": 6, "act": "tanh"})"), "");
          ConfigMap::read(describe_example, unknown);
        }) == "act = tanh changes the arithmetic and is not implemented");
}
