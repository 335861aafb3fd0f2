// Answers to questions, each of which runs. Writes the folder how_do_i.
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/system/file.h>
#include <tapeformer/autograd/system/threads.h>
#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/data/tokenizers/character_tokenizer.h>
#include <tapeformer/data/tokenizers/tokenizer.h>
#include <tapeformer/nn/formats/checkpoint.h>
#include <tapeformer/nn/formats/hugging_face.h>
#include <tapeformer/nn/generation/generate_text.h>
#include <tapeformer/nn/transformer/decoder_only.h>
#include <tapeformer/optim/adamw.h>
#include <tapeformer/optim/optimizers.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <functional>

using namespace tapeformer;

namespace {

const std::string kText = "the cat sees the dog, the dog sees the cat, and the cat sleeps. ";

/// Trains on the text by `update`.
void train(DecoderOnly& model, const Tokenizer& tokenizer, int steps, const std::function<void()>& update) {
  std::vector<std::int32_t> ids = tokenizer.encode(kText);
  const Index length = static_cast<Index>(ids.size()) - 1;
  const Tensor targets_bt = Tensor::from(std::vector<std::int32_t>(ids.begin() + 1, ids.end()), {1, length});
  ids.pop_back();
  const Tensor ids_bt = Tensor::from(ids, {1, length});
  for (int step = 0; step < steps; ++step) {
    model.clear_gradients();
    Tape tape;
    tape.backward(model.loss(ids_bt, targets_bt));
    update();
  }
}

void use(const std::string& folder) {
  const DecoderOnly model = DecoderOnly::load(folder);
  const auto tokenizer = load_tokenizer(text_tokenizers(), folder + "/tokenizer");
  TextGenerationConfig config;
  config.sampling.temperature = 0;  // the likeliest
  config.max_tokens = 9;
  std::vector<std::int32_t> ids = tokenizer->encode("the cat s");
  generate_text(model, ids, config, [&](Index, std::int32_t token) { return ids.push_back(token), true; });
  std::printf("%s\n", tokenizer->decode(ids).c_str());
}

}  // namespace

int main() try {
  share_processors();  // with other programs
  const auto tokenizer = train_character_tokenizer([](const auto& reader) { reader(kText); });
  DecoderOnlyConfig config;
  config.vocabulary = tokenizer->vocabulary_size();
  config.layers = 2, config.width = 32, config.attention.heads = 2, config.context = 64;
  Generator random(1);
  DecoderOnly model(config, random);

  OptimizerConfig settings;
  settings.groups = parameter_groups_of({"embedding.*:rate=0.3,weight_decay=0", "*.bias:optimizer=sgd"});
  const std::unique_ptr<Optimizer> optimizer = settings.make(model.parameters(), model.row_parts());
  train(model, *tokenizer, 150, [&] { optimizer->step(1e-2); });

  const std::string folder = "how_do_i";
  std::filesystem::create_directories(folder + "/for-transformers");
  save_weights(folder + "/weights.safetensors", model);
  write_atomically(folder + "/config.json", model.config().to_json());
  write_atomically(folder + "/tokenizer", tokenizer->serialize());
  save_hugging_face(folder + "/for-transformers", model);
  use(folder);

  freeze(model.parameters(), {"layers.0.*", "embedding.*"});
  AdamW rest(trainable(model.parameters()));
  std::printf("%d of %d parameters are trained\n", static_cast<int>(rest.parameters().size()),
              static_cast<int>(model.parameters().size()));
  train(model, *tokenizer, 1, [&] { rest.step(1e-3); });

  std::vector<Parameter> parameters = trainable(model.parameters());
  std::vector<Tensor> momenta;
  for (const Parameter& parameter : parameters) momenta.push_back(Tensor::zeros(parameter.value().shape()));
  const auto update = [&](double rate) {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      momenta[i] = 0.9 * momenta[i] + parameters[i].gradient();
      parameters[i].value().copy_from(parameters[i].value() - rate * momenta[i]);
      parameters[i].refresh_shadow();  // the bf16 copy, if there is one
    }
  };
  train(model, *tokenizer, 5, [&] { update(1e-3); });

  const Tensor packed_1t = Tensor::from<std::int32_t>({3, 1, 3, 4, 2}, {1, 5});
  const Tensor targets_1t = Tensor::from<std::int32_t>({1, -1, -1, 2, -1}, {1, 5});  // -1 does not count
  const PackedDocuments documents{Tensor::from<std::int32_t>({0, 2, 5}),
                                  Tensor::from<std::int32_t>({0, 1, 0, 1, 2}, {1, 5})};
  model.loss(packed_1t, targets_1t, {}, {}, documents);

  if (default_device().is_cuda()) model.compute_in(DType::bf16);

  model.parameters().back().value().copy_from(model.parameters().back().value() * INFINITY);
  const Tensor ids_bt = Tensor::from<std::int32_t>({1, 2, 3}, {1, 3});
  try {
    Tape tape;
    tape.detect_anomalies();
    model.loss(ids_bt, ids_bt);
  } catch (const TapeError& error) {
    std::printf("%s\n", error.what());
  }
} catch (const std::exception& error) {
  std::fprintf(stderr, "how_do_i: %s\n", error.what());
  return 2;
}
