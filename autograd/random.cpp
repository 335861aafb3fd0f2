#include <tapeformer/autograd/draws.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/autograd/kernels/cpu/parallel.h>
#include <tapeformer/autograd/random.h>

#include <algorithm>
#include <cmath>

namespace tapeformer {
namespace {

constexpr double kTwoPi = 6.28318530717958647693;
constexpr Index kPairWork = 8;  // in element visits

struct Pair {
  double first, second;
};

/// Two uniform numbers of one block.
Pair uniform_pair(const kernels::PhiloxBlock& block) {
  return {kernels::uniform_double(block.word[0], block.word[1]),
          kernels::uniform_double(block.word[2], block.word[3])};
}

/// Two independent standard normal numbers of one block.
/// Math:    sqrt(-2 ln(1 - u)) (cos 2 pi v, sin 2 pi v)
/// Source:  Box and Muller 1958, "A note on the generation of random normal deviates"
Pair normal_pair(const kernels::PhiloxBlock& block) {
  const Pair uniform = uniform_pair(block);
  const double radius = std::sqrt(-2 * std::log1p(-uniform.first));
  const double angle = kTwoPi * uniform.second;
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

/// The next number of a type below `high`, towards `low`: rounding must not reach the end of a range.
double largest_below(double high, double low, DType type) {
  if (type == DType::f64) return std::nextafter(high, low);
  const float largest = std::nextafter(static_cast<float>(high), static_cast<float>(low));
  if (type != DType::bf16) return largest;
  BFloat16 narrow(largest);
  if (low < high && static_cast<double>(narrow) >= high) narrow.bits += narrow.bits >> 15 != 0 ? 1 : -1;
  return static_cast<double>(narrow);
}

/// x[2i], x[2i+1] = round(of_block(block i)); computed on the CPU for any device.
template <class OfBlock, class Round>
void fill_pairs(const char* op, const Tensor& y, Generator& random, const OfBlock& of_block,
                const Round& round) {
  if (!is_floating(y.dtype()))
    throw DTypeError(format("[{}] x must be floating-point numbers; got x={}", op, y.describe()));
  const kernels::PhiloxStream stream = random.reserve(2 * y.elements());
  if (!random.fills()) return;
  const bool is_direct = y.device() == Device::cpu() && y.dtype() != DType::bf16;
  const Tensor x = is_direct ? y : Tensor::empty(y.shape(), wide(y.dtype()), Device::cpu());
  const Index count = x.elements();
  const auto fill = [&](auto* to) {
    kernels::parallel_ranges((count + 1) / 2, kPairWork, [&](Index from, Index end) {
      for (Index i = from; i < end; ++i) {
        const Pair pair = of_block(stream.block(i));
        round(pair.first, to[2 * i]);
        if (2 * i + 1 < count) round(pair.second, to[2 * i + 1]);
      }
    });
  };
  if (x.dtype() == DType::f32) {
    fill(x.data<float>());
  } else {
    fill(x.data<double>());
  }
  if (!is_direct) y.copy_from(x.to(y.dtype()));
}

}  // namespace

std::uint32_t Generator::next() {
  const std::uint64_t position = drawn([this] { return state_.position++; });
  const std::uint64_t block = position / 4;
  if (block != cached_) {
    block_ = kernels::PhiloxStream{state_.seed, state_.stream, block}.block(0);
    cached_ = block;
  }
  return block_.word[position % 4];
}

double Generator::uniform() {
  const std::uint32_t high = next();
  return kernels::uniform_double(high, next());
}

double Generator::normal() { return normal_pair(reserve(4).block(0)).first; }

Index Generator::below(Index n) {
  if (n <= 0) throw Error(format("[below] n must be positive; got n={}", n));
  const auto range = static_cast<std::uint64_t>(n);
  const std::uint64_t biased = (0 - range) % range;  // 2^64 mod n: this many values would be too frequent
  for (;;) {
    const std::uint64_t high = next();
    const std::uint64_t value = high << 32 | next();
    if (value >= biased) return static_cast<Index>(value % range);
  }
}

void Generator::fill_uniform(const Tensor& x, double low, double high) {
  if (!(low <= high))
    throw Error(format("[fill_uniform] low must be at most high; got low={}, high={}", low, high));
  const double largest = largest_below(high, low, x.dtype());
  fill_pairs("fill_uniform", x, *this, uniform_pair, [=](double value, auto& to) {
    using T = std::remove_reference_t<decltype(to)>;
    to = std::min(static_cast<T>(low + (high - low) * value), static_cast<T>(largest));
  });
}

void Generator::fill_normal(const Tensor& x, double mean, double standard_deviation) {
  fill_pairs("fill_normal", x, *this, normal_pair, [mean, standard_deviation](double value, auto& to) {
    to = static_cast<std::remove_reference_t<decltype(to)>>(mean + standard_deviation * value);
  });
}

Tensor Tensor::rand(const Shape& shape, Generator& random, DType type, Device device) {
  const Tensor x = empty(shape, type, device);
  random.fill_uniform(x, 0, 1);
  return x;
}

Tensor Tensor::randn(const Shape& shape, Generator& random, DType type, Device device) {
  const Tensor x = empty(shape, type, device);
  random.fill_normal(x, 0, 1);
  return x;
}

Generator Generator::split() {
  const kernels::PhiloxBlock block = reserve(4).block(0);
  return Generator(state_.seed, std::uint64_t{block.word[0]} << 32 | block.word[1]);
}

kernels::PhiloxStream Generator::reserve(Index words) {
  const std::uint64_t first = drawn([&] {
    const std::uint64_t next = (state_.position + 3) / 4;
    state_.position = 4 * (next + (static_cast<std::uint64_t>(words) + 3) / 4);
    return next;
  });
  return {state_.seed, state_.stream, first};
}

Tensor TorchGenerator::rand(const Shape& shape) {
  const Tensor x = Tensor::empty(shape, DType::f32, Device::cpu());
  std::generate_n(x.data<float>(), x.elements(),
                  [this] { return static_cast<float>(engine_() & 0xFFFFFFu) * 0x1p-24f; });
  return x.to(default_device());
}

Tensor TorchGenerator::symmetric(const Shape& shape, Index fan_in) {
  const auto bound = static_cast<float>(fan_in == 0 ? 0 : 1 / std::sqrt(static_cast<double>(fan_in)));
  const Tensor x = rand(shape).to(Device::cpu());
  float* value = x.data<float>();
  // One rounding, as in PyTorch's builds, whether or not the compiler would contract the two operations.
  for (Index i = 0; i < x.elements(); ++i) value[i] = std::fma(value[i], bound - -bound, -bound);
  return x.to(default_device());
}

Tensor TorchGenerator::dropout_mask(const Shape& shape, double p) {
  const Tensor keep = Tensor::empty(shape, DType::boolean, Device::cpu());
  std::generate_n(keep.data<bool>(), keep.elements(), [this, p] {
    const std::uint64_t high = engine_();
    const std::uint64_t draw = (high << 32 | engine_()) & ((std::uint64_t{1} << 53) - 1);
    return static_cast<double>(draw) * 0x1p-53 < 1 - p;
  });
  return keep.to(default_device());
}

}  // namespace tapeformer
