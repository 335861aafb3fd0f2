#pragma once

#include <tapeformer/autograd/kernels/philox.h>
#include <tapeformer/autograd/tensor.h>

#include <cstdint>
#include <random>
#include <utility>
#include <vector>

namespace tapeformer {

/// A Generator's whole state; for checkpoints.
struct GeneratorState {
  /// The numbers depend on these; different streams of one seed are independent.
  std::uint64_t seed = 0, stream = 0;
  std::uint64_t position = 0;  ///< in 32-bit words
  /// Equal in seed, stream and position.
  bool operator==(const GeneratorState& other) const {
    return seed == other.seed && stream == other.stream && position == other.position;
  }
};

/// Random numbers that are a function of (seed, stream, position), so that a stream can be cut, split, saved
/// and computed by any number of threads. Philox 4x32-10 underneath.
class Generator {
 public:
  /// The stream's beginning.
  explicit Generator(std::uint64_t seed, std::uint64_t stream = 0)
      : Generator(GeneratorState{seed, stream, 0}) {}
  /// Continues from a state.
  explicit Generator(const GeneratorState& state) : state_(state) {}
  /// A generator for models whose weights come from a file: fills advance it and leave the tensors as they
  /// are.
  static Generator for_loading() {
    Generator random(0);
    random.fills_ = false;
    return random;
  }

  /// Uniform 32 bits.
  std::uint32_t next();
  /// Uniform in [0, 1), in steps of 2^-53.
  double uniform();
  /// Standard normal; takes one block.
  double normal();
  /// Uniform in [0, n) without bias. Throws: Error unless n > 0.
  Index below(Index n);
  /// Shuffles the values uniformly (Fisher and Yates).
  template <class T, class A>
  void shuffle(std::vector<T, A>& values) {
    for (std::size_t left = values.size(); left > 1; --left) {
      std::swap(values[left - 1], values[static_cast<std::size_t>(below(static_cast<Index>(left)))]);
    }
  }

  /// Uniform in [low, high). f32 gets the same values as f64, rounded. Throws: DTypeError unless x is
  /// floating, Error unless low <= high.
  void fill_uniform(const Tensor& x, double low, double high);
  /// f32 gets the same values as f64, rounded. Throws: DTypeError unless x is floating.
  void fill_normal(const Tensor& x, double mean, double standard_deviation);

  /// A generator of the same seed with its own stream, which depends on this one's position. This one
  /// advances.
  Generator split();
  /// Reserves the next `words` words, for a kernel to compute in any order, as often as it likes.
  kernels::PhiloxStream reserve(Index words);

  /// False for a generator made by for_loading().
  bool fills() const { return fills_; }
  /// The state for restore(), here or in another process.
  const GeneratorState& state() const { return state_; }
  /// Continues from the state, whatever was drawn before.
  void restore(const GeneratorState& state) { *this = Generator(state); }

 private:
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};

  GeneratorState state_;
  bool fills_ = true;
  std::uint64_t cached_ = kNone;  // number of the block in block_
  kernels::PhiloxBlock block_{};
};

/// The numbers that PyTorch draws on a CPU after torch.manual_seed(seed) when it fills tensors one element at
/// a time. A Linear draws its weight and then its bias, if any.
/// Source:  values printed by PyTorch; mt19937 of Matsumoto and Nishimura 1998
class TorchGenerator {
 public:
  /// The state after torch.manual_seed(seed); only the lower 32 bits of the seed count.
  explicit TorchGenerator(std::uint64_t seed) : engine_(static_cast<std::uint32_t>(seed)) {}

  /// torch.rand: f32, uniform in [0, 1), in steps of 2^-24.
  Tensor rand(const Shape& shape);
  /// The weight [out, in] of torch.nn.Linear: f32, uniform in +-1/sqrt(in).
  Tensor linear_weight(Index out, Index in) { return symmetric({out, in}, in); }
  /// The bias [out] of torch.nn.Linear with `in` inputs: f32, uniform in +-1/sqrt(in).
  Tensor linear_bias(Index out, Index in) { return symmetric({out}, in); }
  /// The elements that torch.nn.Dropout(p) keeps, as bool: a 53-bit draw is below 1 - p. Agrees with builds
  /// of PyTorch without MKL.
  Tensor dropout_mask(const Shape& shape, double p);

 private:
  Tensor symmetric(const Shape& shape, Index fan_in);

  std::mt19937 engine_;
};

}  // namespace tapeformer
