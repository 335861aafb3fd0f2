#include <tapeformer/autograd/dispatch.h>
#include <tapeformer/autograd/ops/ids.h>
#include <tapeformer/autograd/ops/rotary.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace tapeformer {
namespace {

using kernels::Rotation;

Tensor turned(const Tensor& x, const Tensor& table, const Rotation& rotation) {
  const Tensor y = Tensor::empty_like(x);
  dispatch(
      "rotary",
      [&](auto on, auto* angles, auto* from, auto* to) {
        using T = std::remove_pointer_t<decltype(to)>;
        kernels::rotate(on, rotation, angles, from, kernels::Write<T>{to, false});
      },
      wide(table), x, y);
  return record("rotary", {x}, {table}, y, [table, rotation](const Tensor& dy, const Gradients& into) {
    Rotation back = rotation;
    back.inverse = !rotation.inverse;
    if (into.recorded()) {
      into[0] += turned(dy, table, back);
      return;
    }
    dispatch(
        "rotary",
        [&](auto on, auto* angles, auto* from, auto to) { kernels::rotate(on, back, angles, from, to); },
        wide(table), dy, into[0]);
  });
}

void check_config(const RotaryConfig& config) {
  const auto require = [](bool holds, const char* rule, const std::string& got, const char* remedy) {
    if (!holds) throw ShapeError(std::string("[rotary] ") + rule + "; got " + got + "; try " + remedy);
  };
  require(config.base > 0 && std::isfinite(config.base), "base must be positive and finite",
          "base=" + std::to_string(config.base), "10000");
  require(config.factor > 0 && std::isfinite(config.factor), "factor must be positive and finite",
          "factor=" + std::to_string(config.factor), "1 for positions as they are");
  require(config.width >= 0, "width must not be negative", "width=" + std::to_string(config.width),
          "0 for all components");
  require(config.original_context <= 0 || config.low_frequency < config.high_frequency,
          "low_frequency must be below high_frequency",
          "low_frequency=" + std::to_string(config.low_frequency) +
              ", high_frequency=" + std::to_string(config.high_frequency),
          "1 and 4");
}

PooledVector<double> frequencies_of(const RotaryConfig& config, Index pairs) {
  PooledVector<double> frequencies;
  for (Index i = 0; i < pairs; ++i) {
    const double plain = std::pow(config.base, -static_cast<double>(i) / static_cast<double>(pairs));
    double kept = 0;  // how much of the frequency the factor leaves alone
    if (config.original_context > 0) {
      const double turns = static_cast<double>(config.original_context) * plain / (2 * M_PI);
      kept = (turns - config.low_frequency) / (config.high_frequency - config.low_frequency);
      kept = std::clamp(kept, 0.0, 1.0);
    }
    frequencies.push_back(plain * (kept + (1 - kept) / config.factor));
  }
  return frequencies;
}

void check_limit(const Tensor& positions, Index limit) {
  if (limit <= 0) return;
  count_in_range(positions, {std::numeric_limits<std::int32_t>::min(), limit},
                 [limit, shape = positions.shape()](const cuda::Offence& beyond) {
                   return "[rotary] positions must be below max_positions=" + std::to_string(limit) +
                          "; got " + std::to_string(beyond.value) + " in positions=i32" + shape.text() +
                          "; try a shorter sequence, or a greater max_positions with a factor that "
                          "stretches what was trained";
                 });
}

Tensor rotate_rows(const Tensor& x, const Tensor& positions, const RotaryConfig& config, Rotation rotation) {
  check_config(config);
  require_i32("rotary", "positions", positions);
  require_same_device("rotary", "positions", positions, x);
  check_limit(positions, config.max_positions);
  const Index count = positions.elements();
  rotation.rows = x.size(0) * x.size(1);
  rotation.pairs = (config.width > 0 ? config.width : rotation.head_width) / 2;
  rotation.period = std::max<Index>(count, 1), rotation.layout = config.layout;
  const PooledVector<double> frequencies = frequencies_of(config, rotation.pairs);
  const std::int32_t* at = positions.address<std::int32_t>();
  const Tensor table = Tensor::empty({count, 2, rotation.pairs}, wide(x.dtype()), x.device());
  dispatch(
      "rotary",
      [&](auto on, auto* angles) {
        kernels::rotary_table(on, count, rotation.pairs, frequencies.data(), at, angles);
      },
      wide(table));
  return turned(x, table, rotation);
}

bool fits(const Tensor& x, Index head_width, const Tensor& positions, const RotaryConfig& config) {
  const Index width = config.width > 0 ? config.width : head_width;
  return width % 2 == 0 && width <= head_width &&
         (positions.shape() == Shape{x.size(1)} || positions.shape() == Shape{x.size(0), x.size(1)});
}

}  // namespace

Tensor rotary(const Tensor& x, const Tensor& positions, const RotaryConfig& config) {
  if (x.rank() != 4 || !fits(x, x.size(3), positions, config)) {
    throw ShapeError(
        "[rotary] x must be [B, T, H, D] with an even D, or an even config.width up to D, positions [T] or "
        "[B, T]; got x=" +
        x.describe() + ", positions=" + positions.describe() + ", width=" + std::to_string(config.width));
  }
  Rotation rotation;
  rotation.heads = x.size(2), rotation.head_width = x.size(3), rotation.row_width = x.size(2) * x.size(3);
  return rotate_rows(x, positions, config, rotation);
}

Tensor packed_rotary(const Tensor& x, Index heads, Index head_width, const Tensor& positions,
                     const RotaryConfig& config) {
  if (x.rank() != 3 || heads < 0 || head_width < 0 || x.size(2) < heads * head_width ||
      !fits(x, head_width, positions, config)) {
    throw ShapeError(
        "[packed_rotary] x must be [B, T, N] with N >= heads * head_width, neither negative, the width that "
        "is turned even, positions [T] or [B, T]; got x=" +
        x.describe() + ", heads=" + std::to_string(heads) + ", head_width=" + std::to_string(head_width) +
        ", positions=" + positions.describe() + ", width=" + std::to_string(config.width));
  }
  Rotation rotation;
  rotation.heads = heads, rotation.head_width = head_width, rotation.row_width = x.size(2);
  return rotate_rows(x, positions, config, rotation);
}

}  // namespace tapeformer
