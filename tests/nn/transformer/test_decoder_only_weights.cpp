#include <tapeformer/nn/formats/checkpoint.h>
#include <tapeformer/nn/formats/ends_with.h>
#include <tapeformer/tests/nn/formats/temporary_folder.h>
#include <tapeformer/tests/nn/normal_case.h>
#include <tapeformer/tests/nn/transformer/decoder_only_case.h>

#include <cmath>

using namespace tapeformer;

namespace {

/// Properties of every fresh model, whatever its configuration.
void check_initial_values(const DecoderOnlyConfig& config) {
  Generator random(test_seed(7));
  DecoderOnly model(config, random);
  const double residual = 0.02 / std::sqrt(2.0 * static_cast<double>(config.layers));
  Index residual_matrices = 0;
  for (const auto& [path, parameter] : model.named_parameters()) {
    const std::string& name = path;
    INFO(name);
    const Tensor& value = parameter.value();
    if (value.rank() == 1) {
      const double expected = ends_with(name, ".bias") ? 0 : 1;
      for (Index i = 0; i < value.elements(); ++i) REQUIRE(value.at(i) == expected);
      continue;
    }
    const bool writes =
        ends_with(name, ".attention.output.weight") || ends_with(name, "feed_forward.down.weight");
    residual_matrices += writes ? 1 : 0;
    const bool is_table = name == "embedding.weight" && config.positions == PositionKind::sinusoidal;
    const double expected =
        is_table ? 1 / std::sqrt(static_cast<double>(config.width)) : (writes ? residual : 0.02);
    check_normal(value, expected);
  }
  CHECK(residual_matrices == 2 * config.layers);
}

}  // namespace

TEST_CASE("matrices start at 0.02, or smaller where they write into the sum, biases at 0 and gains at 1") {
  DecoderOnlyConfig config;
  config.vocabulary = 90;
  config.context = 70;
  config.width = 48;
  config.layers = 3;
  check_initial_values(config);
  config.head_bias = true;
  config.tie_head = false;
  config.positions = PositionKind::sinusoidal;
  check_initial_values(config);
  config.norm = NormKind::rms;
  config.positions = PositionKind::rotary;
  config.attention.kind = "gqa";
  swiglu(config);
  check_initial_values(config);
  config.attention.kind = "mla";
  config.attention.query_latent_width = 20;
  check_initial_values(config);
  config.tie_head = true;
  config.positions = PositionKind::sinusoidal;
  check_initial_values(config);
}

TEST_CASE("short convolutions start without effect, and do not change other parameters' draws") {
  DecoderOnlyConfig config = tiny_config();
  config.head_bias = true;
  auto plain = fresh_module<DecoderOnly>(config);
  config.short_convolution = 3;
  auto model = fresh_module<DecoderOnly>(config);
  CHECK(model.parameter_count() == plain.parameter_count() + 2 * 2 * 3 * 8);
  const Tensor ids = ids_of({4, 6, 3}, {1, 3});
  CHECK(same_bits(model(ids), plain(ids)));
  randomise(model, 5);
  CHECK_FALSE(same_bits(model(ids), plain(ids)));
}

TEST_CASE("scalars start neutral, and zero_init adds nothing") {
  DecoderOnlyConfig config;
  config.vocabulary = 90, config.context = 70, config.width = 48, config.layers = 5;
  config.zero_init = true;
  config.attention.qk_norm = QkNorm::rms;
  auto model = fresh_module<DecoderOnly>(config);
  for (const auto& [path, parameter] : model.named_parameters()) {
    const std::string& name = path;
    INFO(name);
    const Tensor& value = parameter.value();
    if (ends_with(name, "norm.weight")) CHECK(value.at(value.elements() - 1) == 1);
    if (ends_with(name, "output.weight") || ends_with(name, "down.weight"))
      CHECK(absolute_error(value, Tensor::zeros(value.shape())) == 0);
  }
  // Each layer passes its input on, so the states are the norm of the embeddings' norm.
  config.layers = 1;
  const Tensor ids = ids_of({4, 6, 3}, {1, 3});
  auto shallow = fresh_module<DecoderOnly>(config);
  const std::map<std::string, Tensor> values = parameters_of(model);
  for (auto& [name, parameter] : shallow.named_parameters()) parameter.set_value(values.at(name));
  CHECK(shallow.states(ids).shape() == Shape{1, 3, 48});
  CHECK_BELOW(relative_error(model.states(ids), shallow.states(ids)), 1e-6);
}

TEST_CASE("a trained folder loads in evaluation mode and computes the same bits") {
  DecoderOnlyConfig config = tiny_config();
  config.embedding_dropout = config.residual_dropout = config.attention.dropout = 0.4;
  config.attention.kind = "gqa";
  config.prefix = true;
  const TemporaryFolder folder;
  auto trained = fresh_module<DecoderOnly>(config);
  randomise(trained, 2);
  write_bytes(folder.file("config.json"), trained.config().to_json());
  save_weights(folder.file("weights.safetensors"), trained);

  const DecoderOnly model = DecoderOnly::load(folder.file(""));

  trained.eval();
  const Tensor ids = ids_of({4, 5, 3, 6, 3, 0}, {2, 3});
  CHECK(same_bits(model(ids), trained(ids)));
  CHECK(model.config().to_json() == trained.config().to_json());
}

TEST_CASE_FIXTURE(InFolder, "a folder without a model, or without weights, is refused by its name") {
  const auto refused = [&](const std::string& part) {
    const std::string message = message_of<CheckpointError>([&] { DecoderOnly::load(folder.file("")); });
    INFO(message);
    CHECK(message.find(folder.file("")) == 0);
    CHECK(message.find(part) != std::string::npos);
  };
  refused("config.json: cannot be read; try the run folder of a finished run");
  write_bytes(folder.file("config.json"), tiny_config().to_json());
  refused("weights.safetensors");
}
