#include <tapeformer/nn/formats/checkpoint.h>
#include <tapeformer/nn/transformer/encoder_decoder.h>
#include <tapeformer/optim/adamw.h>
#include <tapeformer/optim/clip.h>
#include <tapeformer/tests/autograd/kernels/cuda_case.h>
#include <tapeformer/tests/nn/formats/temporary_folder.h>
#include <tapeformer/tests/nn/generation/language_case.h>

#include <algorithm>
#include <cmath>

using namespace tapeformer;

// A model computes and learns the same on the CPU and on a GPU, real or emulated.

namespace {

constexpr int kSteps = 30;

/// The device and precision of a training.
struct Place {
  Device device;
  DType parameters = DType::f64;
  bool in_bf16 = false;
};
const Place kCpu{Device::cpu()}, kGpu{Device::cuda()};

template <class Model>
void move(Model& model, const Place& place) {
  model.to(place.parameters);
  model.to(place.device);
  if (place.in_bf16) model.compute_in(DType::bf16);
}

/// The losses of a training that sees the same three batches again and again.
std::vector<double> losses_of(Module& model, int steps,
                              const std::function<Tensor(std::uint64_t batch)>& loss_of) {
  std::vector<double> losses;
  AdamW optimizer(model.parameters());
  for (int step = 0; step < steps; ++step) {
    optimizer.clear_gradients();
    Tape tape;
    const Tensor loss = loss_of(static_cast<std::uint64_t>(step % 3));
    tape.backward(loss);
    clip_gradient_norm(optimizer.parameters(), 1.0);
    optimizer.step(1e-2);
    losses.push_back(loss.item());
  }
  return losses;
}

std::vector<double> language_losses(const LanguageKind& kind, const Place& place, double dropout = 0,
                                    int steps = kSteps) {
  DecoderOnlyConfig config = language_config(kind, 9);
  config.layers = 1, config.attention.dropout = config.embedding_dropout = config.residual_dropout = dropout;
  auto model = fresh_module<DecoderOnly>(config);
  move(model, place);
  return losses_of(model, steps, [&](std::uint64_t batch) {
    const auto ids = [&](std::uint64_t seed) {
      return random_ids({2, 6}, config.vocabulary, seed).to(place.device);
    };
    return model.loss(ids(batch), ids(batch + 3),
                      config.prefix ? Tensor::from<std::int32_t>({3, 5}).to(place.device) : Tensor());
  });
}

std::vector<double> translation_losses(const Place& place, double dropout, int steps = 8) {
  EncoderDecoderConfig config;
  config.layer = small_layer_config(true, dropout);
  config.source_vocabulary = 11, config.target_vocabulary = 12;
  config.encoder_layers = config.decoder_layers = 1, config.max_length = 12;
  auto model = fresh_module<EncoderDecoder>(config);
  move(model, place);
  return losses_of(model, steps, [&](std::uint64_t batch) {
    const Tensor mask = real_tokens({8, 3}, 8).to(place.device);
    const auto ids = [&](Index length, Index vocabulary, std::uint64_t seed) {
      return random_ids({2, length}, vocabulary, seed).to(place.device);
    };
    CrossEntropyOptions options;
    options.smoothing = 0.1;
    return model.loss(ids(8, 11, batch), mask, ids(7, 12, batch + 3), ids(7, 12, batch + 6), options);
  });
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = std::fabs(a[i] - b[i]);
    if (!(difference <= largest)) largest = difference;
  }
  return largest;
}

}  // namespace

TEST_CASE("language models of each kind learn the same on both, in double to 1e-9") {
  for (const LanguageKind& kind : language_kinds()) {
    INFO(kind.name());
    const int steps = kind.name() == language_kinds().front().name() ? kSteps : 3;
    const std::vector<double> here = language_losses(kind, kCpu, 0, steps);
    CHECK_BELOW(largest_difference(here, language_losses(kind, kGpu, 0, steps)), 1e-9);
    CHECK(here.back() != here.front());
  }
}

TEST_CASE("so does an encoder and decoder, with masks, and dropout drops the same elements") {
  CHECK_BELOW(largest_difference(translation_losses(kCpu, 0.2), translation_losses(kGpu, 0.2)), 1e-9);
  const LanguageKind kind = language_kinds().front();
  CHECK_BELOW(largest_difference(language_losses(kind, kCpu, 0.2, 5), language_losses(kind, kGpu, 0.2, 5)),
              1e-9);
}

TEST_CASE("in single precision the GPU is as near to double as the CPU is, and bf16 follows") {
  const LanguageKind kind = language_kinds().front();
  const std::vector<double> exact = language_losses(kind, kCpu),
                            here = language_losses(kind, {Device::cpu(), DType::f32}),
                            there = language_losses(kind, {Device::cuda(), DType::f32}),
                            coarse = language_losses(kind, {Device::cuda(), DType::f32, true});
  CHECK_BELOW(largest_difference(there, exact), 2 * std::max(largest_difference(here, exact), 1e-6));
  CHECK_BELOW(largest_difference(coarse, exact), 0.05);
  CHECK(largest_difference(coarse, exact) > 1e-5);  // it is another precision
  const std::vector<double> again = language_losses(kind, {Device::cuda(), DType::f32, true}, 0, 5);
  CHECK(std::equal(again.begin(), again.end(), coarse.begin()));  // the same bits twice
  const LanguageKind experts = language_kinds().back();
  CHECK_BELOW(largest_difference(language_losses(experts, {Device::cuda(), DType::f32, true}, 0, 5),
                                 language_losses(experts, kCpu, 0, 5)),
              0.1);
  const std::vector<double> translation = translation_losses({Device::cuda(), DType::f32, true}, 0.1);
  CHECK_BELOW(largest_difference(translation, translation_losses(kCpu, 0.1)), 0.1);
}

TEST_CASE_FIXTURE(InFolder, "weights are read and written from every device, with or without bf16 shadows") {
  const std::string file = folder.file("weights");
  const auto model_of = [](std::uint64_t seed, const Place& place) {
    Generator random(test_seed(seed));
    DecoderOnly model(language_config(language_kinds().front(), 9), random);
    move(model, place);
    return model;
  };
  const Place places[] = {
      {Device::cpu(), DType::f32}, {Device::cuda(), DType::f32}, {Device::cuda(), DType::f32, true}};
  std::uint64_t seed = 0;
  for (const Place& from : places) {
    DecoderOnly written = model_of(++seed, from);
    save_weights(file, written);
    for (const Place& to : places) {
      DecoderOnly read = model_of(100, to), mean = model_of(101, to);
      load_weights(file, read);
      average_weights({file, file}, mean);
      const auto expected = written.named_parameters(), got = read.named_parameters(),
                 averaged = mean.named_parameters();
      for (std::size_t i = 0; i < expected.size(); ++i) {
        const std::vector<float> numbers = expected[i].second.value().to_vector<float>();
        CHECK(got[i].second.value().to_vector<float>() == numbers);
        CHECK(averaged[i].second.value().to_vector<float>() == numbers);
        for (const Parameter& parameter : {got[i].second, averaged[i].second}) {
          CHECK(parameter.value().device() == to.device);
          CHECK(parameter.used().to(DType::f32).to_vector<float>() ==
                parameter.value().to(parameter.used().dtype()).to(DType::f32).to_vector<float>());
        }
      }
    }
  }
}
