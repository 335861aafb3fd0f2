// Trains the smaller of nanoGPT's two character models and writes down what another framework needs to do the
// same: initial weights, batches and losses. tests/bench/character_recipe.py does it in PyTorch and compares.
// Usage: bench character_recipe --text FILE --folder FOLDER [--steps N] [--dtype f32|f64] [--seed S] [--dump]
//                               [--evaluate]
#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/autograd/xtensor.h>
#include <tapeformer/examples/shared/command_line.h>
#include <tapeformer/nn/formats/checkpoint.h>
#include <tapeformer/nn/transformer/decoder_only.h>
#include <tapeformer/optim/adamw.h>
#include <tapeformer/optim/clip.h>
#include <tapeformer/optim/schedule.h>
#include <tapeformer/tests/bench/bench.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>
#include <xtensor/xnpy.hpp>

using namespace tapeformer;

namespace {

constexpr Index kContext = 64, kRows = 12, kRecipeSteps = 2000, kWarmup = 100, kEstimateBatches = 20;
constexpr double kPeak = 1e-3, kMinimum = 1e-4, kClip = 1.0;

struct Options {
  std::string text, folder, dtype = "f32";
  Index steps = kRecipeSteps;
  std::uint64_t seed = 1;
  bool dump = false, evaluate = false;
};

/// Characters by their rank among those of the text; the first nine tenths are for training.
struct Corpus {
  std::vector<std::int32_t> training, validation;
  Index vocabulary = 0;
};

Corpus read_corpus(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  if (text.empty()) throw std::runtime_error(path + ": cannot be read, or is empty");
  const std::set<unsigned char> characters(text.begin(), text.end());
  std::vector<std::int32_t> id_of(256), ids;
  std::int32_t next = 0;
  for (const unsigned char character : characters) id_of[character] = next++;
  for (const char character : text) ids.push_back(id_of[static_cast<unsigned char>(character)]);
  const auto split = ids.begin() + static_cast<std::ptrdiff_t>(0.9 * static_cast<double>(ids.size()));
  return {{ids.begin(), split}, {split, ids.end()}, next};
}

/// i32 [kRows, kContext + 1] that start anywhere.
Tensor random_windows(const std::vector<std::int32_t>& ids, Generator& random) {
  const Tensor windows = Tensor::empty({kRows, kContext + 1}, DType::i32);
  for (Index row = 0; row < kRows; ++row) {
    const Index start = random.below(static_cast<Index>(ids.size()) - kContext);
    std::copy_n(ids.begin() + start, kContext + 1, windows.data<std::int32_t>() + row * (kContext + 1));
  }
  return windows;
}

Tensor loss_of(const DecoderOnly& model, const Tensor& windows) {
  const Index rows = windows.size(0), length = windows.size(1) - 1;
  const Tensor inputs = Tensor::empty({rows, length}, DType::i32), targets = Tensor::empty_like(inputs);
  for (Index row = 0; row < rows; ++row) {
    const std::int32_t* from = windows.data<std::int32_t>() + row * (length + 1);
    std::copy_n(from, length, inputs.data<std::int32_t>() + row * length);
    std::copy_n(from + 1, length, targets.data<std::int32_t>() + row * length);
  }
  return model.loss(inputs, targets);
}

/// Over windows side by side, so that every id but the first is a target once.
double exact_loss(const DecoderOnly& model, const std::vector<std::int32_t>& ids) {
  const auto targets = static_cast<Index>(ids.size()) - 1;
  double sum = 0;
  for (Index begin = 0; begin < targets;) {
    const Index length = std::min(kContext, targets - begin);
    const Index rows = length < kContext ? 1 : std::min<Index>(256, (targets - begin) / kContext);
    const Tensor windows = Tensor::empty({rows, length + 1}, DType::i32);
    for (Index row = 0; row < rows; ++row) {
      std::copy_n(ids.begin() + begin + row * length, length + 1,
                  windows.data<std::int32_t>() + row * (length + 1));
    }
    sum += loss_of(model, windows).item() * static_cast<double>(rows * length);
    begin += rows * length;
  }
  return sum / static_cast<double>(targets);
}

/// The loss as nanoGPT estimates it.
double estimated_loss(const DecoderOnly& model, const std::vector<std::int32_t>& ids, Generator& random) {
  double sum = 0;
  for (Index i = 0; i < kEstimateBatches; ++i) sum += loss_of(model, random_windows(ids, random)).item();
  return sum / static_cast<double>(kEstimateBatches);
}

DecoderOnlyConfig recipe_model(Index vocabulary) {
  DecoderOnlyConfig config;
  config.vocabulary = vocabulary;
  config.context = kContext;
  config.layers = 4, config.attention.heads = 4, config.width = 128;
  config.activation = Unary::gelu;
  config.attention.bias = config.norm_bias = config.feed_forward_bias = false;
  return config;
}

void run(const Options& options) {
  const Corpus corpus = read_corpus(options.text);
  std::filesystem::create_directories(options.folder);
  const auto file = [&](const std::string& name) { return options.folder + "/" + name; };

  Generator initial(options.seed), windows(options.seed, 1), estimates(options.seed, 2);
  DecoderOnly model(recipe_model(corpus.vocabulary), initial);
  if (options.dump) {
    std::ofstream(file("config.json")) << model.config().to_json();
    save_weights(file("weights.safetensors"), model);
  }
  if (options.dtype == "f64") model.to(DType::f64);
  AdamWConfig adamw;
  adamw.beta2 = 0.99;
  adamw.weight_decay = 0.1;
  AdamW optimizer(model.parameters(), adamw);
  const Schedule schedule({"cosine", kPeak, kWarmup, kRecipeSteps, kMinimum});

  const Tensor batches = Tensor::empty({options.steps, kRows, kContext + 1}, DType::i32);
  const Tensor losses = Tensor::empty({options.steps}, DType::f64);
  const auto begun = std::chrono::steady_clock::now();
  for (Index step = 0; step < options.steps; ++step) {
    const Tensor batch = random_windows(corpus.training, windows);
    std::copy_n(batch.data<std::int32_t>(), batch.elements(),
                batches.data<std::int32_t>() + step * batch.elements());
    optimizer.clear_gradients();
    Tape tape;
    const Tensor loss = loss_of(model, batch);
    losses.data<double>()[step] = loss.item();
    tape.backward(loss);
    clip_gradient_norm(optimizer.parameters(), kClip);
    optimizer.step(schedule(step));
    if (step % 250 == 0 || step + 1 == options.steps)
      std::printf("step %lld: loss %.6f\n", static_cast<long long>(step), loss.item());
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begun;
  std::printf("%lld parameters, %lld steps in %s, %.1f s\n", static_cast<long long>(model.parameter_count()),
              static_cast<long long>(options.steps), options.dtype.c_str(), seconds.count());
  if (options.dump) xt::dump_npy(file("batches.npy"), as_xtensor<std::int32_t>(batches));
  xt::dump_npy(file("losses_" + options.dtype + ".npy"), as_xtensor<double>(losses));
  if (!options.evaluate) return;
  model.eval();
  std::printf("validation loss %.4f, estimated from %lld batches %.4f\n",
              exact_loss(model, corpus.validation), static_cast<long long>(kEstimateBatches),
              estimated_loss(model, corpus.validation, estimates));
}

}  // namespace

int tapeformer::bench_character_recipe(int argc, char** argv) {
  Options options;
  constexpr NumberRule kSteps{"must be from 1 to 2000", [](double x) { return x >= 1 && x <= 2000; }};
  const CommandLine line("Trains nanoGPT's smaller character model, for comparison with PyTorch.");
  line.option("--text", options.text).required();
  line.option("--folder", options.folder, "receives what is written").required();
  line.option("--steps", options.steps, "of the recipe's 2000", kSteps);
  line.option("--dtype", options.dtype).one_of({"f32", "f64"});
  line.option("--seed", options.seed);
  line.flag("--dump", options.dump, "write config.json, weights.safetensors and batches.npy too");
  line.flag("--evaluate", options.evaluate, "print the validation loss at the end");
  if (line.read(argc, argv)) run(options);
  return 0;
}
