// Whether training on a GPU agrees with training on the CPU: a small translation model and the character
// model on made-up data, without dropout, the same steps in each precision, and how far the losses are from
// those of the CPU in double.
// Usage: bench device_agreement [--device cuda[:N]] [--steps N] [--tiny]
// Exit code 0: all verdicts hold, 1: one does not, 2: there is no such GPU.
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/ops/loss.h>
#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/examples/shared/command_line.h>
#include <tapeformer/examples/shared/compute.h>
#include <tapeformer/examples/shared/program.h>
#include <tapeformer/nn/transformer/decoder_only.h>
#include <tapeformer/nn/transformer/encoder_decoder.h>
#include <tapeformer/optim/adamw.h>
#include <tapeformer/optim/clip.h>
#include <tapeformer/tests/bench/bench.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

using namespace tapeformer;

namespace {

constexpr double kLearningRate = 1e-3, kMaxNorm = 1, kSmoothing = 0.1;
// What is allowed: differences relative to the loss. No f32 run is asked to be nearer to double than the
// rounding of a few values is.
constexpr double kInDouble = 1e-9, kTimesTheCpus = 2, kRounding = 2.5e-7, kFollowing = 0.05;

/// Ids that a test fills, on the CPU.
class Ids {
 public:
  Ids(Index rows, Index columns, std::int32_t value = 0)
      : columns_(columns), ids_(Tensor::empty({rows, columns}, DType::i32, Device::cpu())) {
    std::fill_n(ids_.data<std::int32_t>(), ids_.elements(), value);
  }
  std::int32_t& operator()(Index row, Index column) const {
    return ids_.data<std::int32_t>()[row * columns_ + column];
  }
  Tensor to(Device device) const { return ids_.to(device); }

 private:
  Index columns_;
  Tensor ids_;
};

std::int32_t drawn(Generator& random, Index begin, Index end) {
  return static_cast<std::int32_t>(begin + static_cast<Index>(random.below(end - begin)));
}

/// A model and its batches.
class Pupil {
 public:
  virtual ~Pupil() = default;
  virtual Module& module() = 0;
  /// The loss of a batch that `random` draws.
  virtual Tensor loss(Generator& random, Device device) const = 0;
};

/// The character model of two cores: a letter mostly tells the next.
class CharacterPupil : public Pupil {
 public:
  CharacterPupil(bool tiny, Generator& random)
      : rows_(tiny ? 2 : 12), config_(config(tiny)), model_(config_, random) {}
  Module& module() override { return model_; }
  Tensor loss(Generator& random, Device device) const override {
    const Index length = config_.context, letters = config_.vocabulary;
    const Ids ids(rows_, length), targets(rows_, length);
    for (Index row = 0; row < rows_; ++row) {
      std::int32_t letter = drawn(random, 0, letters);
      for (Index t = 0; t < length; ++t) {
        ids(row, t) = letter;
        letter = random.below(8) == 0 ? drawn(random, 0, letters)
                                      : static_cast<std::int32_t>((7 * letter + 3) % letters);
        targets(row, t) = letter;
      }
    }
    return model_.loss(ids.to(device), targets.to(device));
  }

 private:
  static DecoderOnlyConfig config(bool tiny) {
    DecoderOnlyConfig config;
    config.vocabulary = 65;
    config.context = tiny ? 8 : 64;
    config.layers = tiny ? 1 : 4;
    config.width = tiny ? 16 : 128;
    return config;
  }

  Index rows_;
  DecoderOnlyConfig config_;
  DecoderOnly model_;
};

/// Sentences of several lengths, and for their translation the other way round and in other words.
class TranslationPupil : public Pupil {
 public:
  TranslationPupil(bool tiny, Generator& random)
      : rows_(tiny ? 3 : 32), longest_(tiny ? 6 : 16), model_(config(tiny), random) {}
  Module& module() override { return model_; }
  Tensor loss(Generator& random, Device device) const override {
    const Ids source(rows_, longest_, kPadding), target(rows_, longest_ + 1, kPadding),
        expected(rows_, longest_ + 1, -1);
    const Tensor mask = Tensor::empty({rows_, longest_}, DType::boolean, Device::cpu());
    for (Index row = 0; row < rows_; ++row) {
      const Index length = drawn(random, 3, longest_ + 1);
      target(row, 0) = kBegin;
      for (Index s = 0; s < longest_; ++s) mask.data<bool>()[row * longest_ + s] = s < length;
      for (Index s = 0; s < length; ++s) source(row, s) = drawn(random, kWords, kVocabulary);
      for (Index t = 0; t < length; ++t) {
        const std::int32_t word = source(row, length - 1 - t) - kWords;
        target(row, t + 1) = expected(row, t) = kWords + (11 * word + 5) % (kVocabulary - kWords);
      }
      expected(row, length) = kEnd;
    }
    CrossEntropyOptions options;
    options.smoothing = kSmoothing;
    const Tensor logits = model_(source.to(device), mask.to(device), target.to(device));
    return cross_entropy(logits, expected.to(device), options);
  }

 private:
  static constexpr std::int32_t kPadding = 0, kBegin = 1, kEnd = 2, kWords = 3, kVocabulary = 60;

  static EncoderDecoderConfig config(bool tiny) {
    EncoderDecoderConfig config;
    config.source_vocabulary = config.target_vocabulary = kVocabulary;
    config.encoder_layers = config.decoder_layers = tiny ? 1 : 2;
    config.layer.width = tiny ? 16 : 64;
    config.layer.attention.heads = 4;
    // Not relu: at its kink a rounding decides whether an element has a gradient, and the losses go apart.
    config.layer.activation = Unary::gelu;
    return config;
  }

  Index rows_, longest_;
  EncoderDecoder model_;
};

struct Run {
  std::string name;
  Device device;
  DType type = DType::f32;
  std::string precision = "f32";
  std::vector<double> losses{};
  double seconds = 0;
};

template <class PupilKind>
Run trained(Run run, int steps, bool tiny) {
  Generator random(1);
  PupilKind pupil(tiny, random);
  pupil.module().to(run.type);
  Compute{run.device, run.precision}.apply(pupil.module());
  AdamW optimizer(pupil.module().parameters());
  const double begun = now();
  for (int step = 0; step < steps; ++step) {
    optimizer.clear_gradients();
    Tape tape;
    const Tensor loss = pupil.loss(random, run.device);
    tape.backward(loss);
    clip_gradient_norm(optimizer.parameters(), kMaxNorm);
    optimizer.step(kLearningRate);
    run.losses.push_back(loss.item());
  }
  run.seconds = now() - begun;
  return run;
}

/// The largest of |a - b| / |b|, infinite when a number is none.
double distance(const Run& a, const Run& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.losses.size(); ++i) {
    const double one = std::fabs(a.losses[i] - b.losses[i]) / std::fabs(b.losses[i]);
    if (!std::isfinite(one)) return std::numeric_limits<double>::infinity();
    largest = std::max(largest, one);
  }
  return largest;
}

bool verdict(bool holds, const std::string& rule) {
  std::printf("%-6s %s\n", holds ? "ok" : "FAILED", rule.c_str());
  return holds;
}

std::string text(double value) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.1e", value);
  return buffer;
}

template <class PupilKind>
bool agrees(const char* name, Device device, int steps, bool tiny) {
  std::printf("%s, %d steps\n%-26s %10s %10s  %-30s %9s\n", name, steps, "", "first loss", "last loss",
              "largest difference to exact", "seconds");
  std::vector<Run> runs;
  const auto add = [&](Run planned) {
    runs.push_back(trained<PupilKind>(std::move(planned), steps, tiny));
    const Run& run = runs.back();
    std::printf("%-26s %10.6f %10.6f  %-30s %9.2f\n", run.name.c_str(), run.losses.front(), run.losses.back(),
                runs.size() == 1 ? "exact" : text(distance(run, runs.front())).c_str(), run.seconds);
    std::fflush(stdout);
  };
  const std::string there = device.text();
  add({"cpu, f64", Device::cpu(), DType::f64});
  add({"cpu, f32", Device::cpu()});
  add({there + ", f64", device, DType::f64});
  add({there + ", f32", device});
  add({there + ", tf32", device, DType::f32, "tf32"});
  add({there + ", bf16", device, DType::f32, "bf16"});
  add({there + ", f32 again", device});
  add({there + ", bf16 again", device, DType::f32, "bf16"});
  const Run &exact = runs[0], &here = runs[1], &in_double = runs[2], &strict = runs[3], &tf32 = runs[4],
            &bf16 = runs[5];
  const double cpus = std::max(distance(here, exact), kRounding);
  bool all =
      verdict(distance(in_double, exact) <= kInDouble,
              "in double within " + text(kInDouble) + " of the CPU: " + text(distance(in_double, exact)));
  all &= verdict(distance(strict, exact) <= kTimesTheCpus * cpus,
                 "strict f32 within twice the distance of the CPU's f32 from its double, " + text(cpus) +
                     ": " + text(distance(strict, exact)));
  for (const Run* follower : {&tf32, &bf16})
    all &= verdict(
        distance(*follower, strict) <= kFollowing,
        follower->precision + " within 5 % of f32 at every step: " + text(distance(*follower, strict)));
  all &= verdict(tf32.losses != strict.losses && bf16.losses != strict.losses && bf16.losses != tf32.losses,
                 "each precision is one of its own");
  all &= verdict(runs[6].losses == strict.losses && runs[7].losses == bf16.losses,
                 "the same seed gives the same bits twice, in f32 and in bf16");
  std::printf("\n");
  return all;
}

}  // namespace

int tapeformer::bench_device_agreement(int argc, char** argv) {
  std::string name = "cuda";
  int steps = 100;
  bool tiny = false;
  const CommandLine line("Trains on the CPU and on a GPU in each precision, and compares the losses.");
  line.option("--device", name, "cuda or cuda:N");
  line.option("--steps", steps, "of each training", kPositive);
  line.flag("--tiny", tiny, "models and batches that an emulated GPU has done with in seconds");
  if (!line.read(argc, argv)) return kExitSuccess;
  const Device device = Device::named(name);
  if (!device.is_cuda()) throw Error("--device must be a GPU, which is compared with the CPU; got " + name);
  std::printf("%s, losses of runs without dropout\n\n", Compute{device}.text().c_str());
  const bool translation = agrees<TranslationPupil>("translation model", device, steps, tiny);
  const bool characters = agrees<CharacterPupil>("character model", device, steps, tiny);
  std::printf("%s\n", translation && characters ? "devices agree" : "devices do NOT agree");
  return translation && characters ? kExitSuccess : 1;
}
