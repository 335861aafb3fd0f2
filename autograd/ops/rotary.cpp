#include <tapeformer/autograd/dispatch.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/ids.h>
#include <tapeformer/autograd/ops/rotary.h>
#include <tapeformer/autograd/tape/tape.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace tapeformer {
namespace {

using kernels::Rotation;

Tensor turned(Tensor x, const Tensor& table, const Rotation& rotation) {
  const Tensor y = x.is_sole_owner() ? x.alias(x.shape()) : Tensor::empty_like(x);
  dispatch(
      "rotary",
      [&](auto on, auto* angles, auto* from, auto* to) {
        kernels::rotate(on, rotation, angles, from, {to, false});
      },
      wide(table), x, y);
  return record("rotary", {x}, {table}, y, [table, rotation](const Tensor& dy, const Gradients& into) {
    Rotation back = rotation;
    back.inverse = !rotation.inverse;
    if (into.recorded()) {
      into[0] += turned(dy, table, back);
    } else if (dy.is_sole_owner()) {
      dispatch(
          "rotary",
          [&](auto on, auto* angles, auto* from) {
            kernels::rotate(on, back, angles, from, {from, false});
          },
          wide(table), dy);
      into[0] += dy;
    } else {
      dispatch(
          "rotary",
          [&](auto on, auto* angles, auto* from, auto to) { kernels::rotate(on, back, angles, from, to); },
          wide(table), dy, into[0]);
    }
  });
}

void check_config(const RotaryConfig& config) {
  // got() is called for the text of an error alone: a step builds none.
  const auto require = [](bool holds, const char* rule, const auto& got, const char* remedy) {
    if (!holds) throw ShapeError(std::string("[rotary] ") + rule + "; got " + got() + "; try " + remedy);
  };
  require(
      config.base > 0 && std::isfinite(config.base), "base must be positive and finite",
      [&] { return "base=" + std::to_string(config.base); }, "10000");
  require(
      config.factor > 0 && std::isfinite(config.factor), "factor must be positive and finite",
      [&] { return "factor=" + std::to_string(config.factor); }, "1 for positions as they are");
  require(
      config.attention_factor > 0 && std::isfinite(config.attention_factor),
      "attention_factor must be positive and finite",
      [&] { return "attention_factor=" + std::to_string(config.attention_factor); }, "1");
  require(
      !config.yarn || config.original_context > 0, "YaRN needs an original_context",
      [] { return "original_context=0"; }, "the context that the model was trained with");
  require(
      config.width >= 0, "width must not be negative",
      [&] { return "width=" + std::to_string(config.width); }, "0 for all components");
  require(
      config.original_context <= 0 || config.low_frequency < config.high_frequency,
      "low_frequency must be below high_frequency",
      [&] {
        return "low_frequency=" + std::to_string(config.low_frequency) +
               ", high_frequency=" + std::to_string(config.high_frequency);
      },
      "1 and 4");
}

/// The index, not rounded, of the pair that makes `times` rotations within the original context.
double pair_that_turns(const RotaryConfig& config, Index pairs, double times) {
  const double period = static_cast<double>(config.original_context) / (2 * M_PI * times);
  return static_cast<double>(pairs) * std::log(period) / std::log(config.base);
}

PooledVector<double> frequencies_of(const RotaryConfig& config, Index pairs) {
  PooledVector<double> frequencies;
  double first = 0, last = 0;  // YaRN's: pairs up to here stay, pairs from here on are scaled
  if (config.yarn) {
    const double end = static_cast<double>(2 * pairs - 1);  // as in the authors' code
    first = std::max(std::floor(pair_that_turns(config, pairs, config.high_frequency)), 0.0);
    last = std::min(std::ceil(pair_that_turns(config, pairs, config.low_frequency)), end);
    if (first == last) last += 0.001;
  }
  for (Index i = 0; i < pairs; ++i) {
    const double plain = std::pow(config.base, -static_cast<double>(i) / static_cast<double>(pairs));
    double kept = 0;  // the share of the frequency that is not scaled
    if (config.yarn) {
      kept = 1 - std::clamp((static_cast<double>(i) - first) / (last - first), 0.0, 1.0);
    } else if (config.original_context > 0) {
      const double turns = static_cast<double>(config.original_context) * plain / (2 * M_PI);
      kept = (turns - config.low_frequency) / (config.high_frequency - config.low_frequency);
      kept = std::clamp(kept, 0.0, 1.0);
    }
    frequencies.push_back(plain * (kept + (1 - kept) / config.factor));
  }
  return frequencies;
}

std::string beyond_limit(Index limit, Index value, const Shape& positions) {
  return "[rotary] positions must be below max_positions=" + std::to_string(limit) + "; got " +
         std::to_string(value) + " in positions=i32" + positions.text() +
         "; try a shorter sequence, or a greater max_positions with a factor that stretches what was trained";
}

void check_limit(const Tensor& positions, Index limit) {
  if (limit <= 0) return;
  count_by({std::numeric_limits<std::int32_t>::min(), limit}, positions,
           [limit, shape = positions.shape()](const cuda::DeviceErrorSlot& beyond) {
             return beyond_limit(limit, beyond.value, shape);
           });
}

RotaryAngles angles_at(const RotaryConfig& config, Index head_width, const kernels::TokenPositions& positions,
                       const Shape& shape, DType type, Device device) {
  const Index pairs = (config.width > 0 ? config.width : head_width) / 2;
  const PooledVector<double> frequencies = frequencies_of(config, pairs);
  const Shape sizes = shape.rank() == 2 ? Shape{shape[0], shape[1], 2, pairs} : Shape{shape[0], 2, pairs};
  const Tensor table = Tensor::empty(sizes, wide(type), device);
  dispatch(
      "rotary",
      [&](auto on, auto* angles) { kernels::rotary_table(on, positions, pairs, frequencies.data(), angles); },
      wide(table));
  return {config.attention_factor == 1 ? table : table * config.attention_factor, config.layout};
}

Rotation rotation_of(Index heads, Index head_width, Index row_width) {
  Rotation rotation;
  rotation.heads = heads, rotation.head_width = head_width, rotation.row_width = row_width;
  return rotation;
}

Tensor rotate_rows(Tensor x, const RotaryAngles& angles, Rotation rotation) {
  rotation.rows = x.size(0) * x.size(1);
  rotation.pairs = angles.table.size(-1);
  rotation.period = std::max<Index>(angles.table.shape().elements(0, angles.table.rank() - 2), 1);
  rotation.layout = angles.layout;
  return turned(std::move(x), angles.table, rotation);
}

bool fits(const Tensor& x, Index head_width, const Shape& positions, Index width) {
  return width % 2 == 0 && width <= head_width &&
         (positions == Shape{x.size(1)} || positions == Shape{x.size(0), x.size(1)});
}

void check_heads(const Tensor& x, const Tensor& positions, const RotaryConfig& config) {
  if (x.rank() == 4 && fits(x, x.size(3), positions.shape(), config.width > 0 ? config.width : x.size(3)))
    return;
  throw ShapeError(
      "[rotary] x must be [B, T, H, D] with an even D, or an even config.width up to D, positions [T] or "
      "[B, T]; got x=" +
      x.describe() + ", positions=" + positions.describe() + ", width=" + std::to_string(config.width));
}

void check_packed(const Tensor& x, Index heads, Index head_width, const Tensor& positions,
                  const RotaryConfig& config) {
  if (x.rank() == 3 && heads >= 0 && head_width >= 0 && x.size(2) >= heads * head_width &&
      fits(x, head_width, positions.shape(), config.width > 0 ? config.width : head_width))
    return;
  throw ShapeError(
      "[packed_rotary] x must be [B, T, N] with N >= heads * head_width, neither negative, the width that "
      "is turned even, positions [T] or [B, T]; got x=" +
      x.describe() + ", heads=" + std::to_string(heads) + ", head_width=" + std::to_string(head_width) +
      ", positions=" + positions.describe() + ", width=" + std::to_string(config.width));
}

/// For angles that one call makes: they match these tokens and heads.
void check_angles(const char* op, const Tensor& x, Index head_width, const Tensor& table) {
  require_same_device(op, "angles", table, x);
  const Shape& shape = table.shape();
  const Shape positions = shape.rank() == 4 ? Shape{shape[0], shape[1]} : Shape{shape[0]};
  if (fits(x, head_width, positions, 2 * table.size(-1))) return;
  throw ShapeError(
      std::string("[") + op +
      "] the angles must be of x's tokens and of no more pairs than a head has; got x=" + x.describe() +
      ", head_width=" + std::to_string(head_width) + ", angles=" + table.describe());
}

}  // namespace

RotaryAngles rotary_angles(const RotaryConfig& config, Index head_width, const Tensor& positions,
                           DType type) {
  check_config(config);
  require_i32("rotary", "positions", positions);
  check_limit(positions, config.max_positions);
  const kernels::TokenPositions at{positions.elements(), positions.address<std::int32_t>()};
  return angles_at(config, head_width, at, positions.shape(), type, positions.device());
}

RotaryAngles rotary_angles(const RotaryConfig& config, Index head_width, Index first, Index length,
                           DType type, Device device) {
  check_config(config);
  const Index limit = config.max_positions;
  if (limit > 0 && length > 0 && first + length > limit)
    throw ShapeError(beyond_limit(limit, std::max(first, limit), {length}));
  return angles_at(config, head_width, {length, nullptr, first}, {length}, type, device);
}

Tensor rotary(const Tensor& x, const Tensor& positions, const RotaryConfig& config) {
  check_heads(x, positions, config);
  require_i32("rotary", "positions", positions);
  require_same_device("rotary", "positions", positions, x);
  return rotary(x, rotary_angles(config, x.size(3), positions, x.dtype()));
}

Tensor packed_rotary(const Tensor& x, Index heads, Index head_width, const Tensor& positions,
                     const RotaryConfig& config) {
  check_packed(x, heads, head_width, positions, config);
  require_i32("rotary", "positions", positions);
  require_same_device("rotary", "positions", positions, x);
  return packed_rotary(x, heads, head_width, rotary_angles(config, head_width, positions, x.dtype()));
}

Tensor rotary(Tensor x, const RotaryAngles& angles) {
  check_angles("rotary", x, x.size(3), angles.table);
  const Rotation rotation = rotation_of(x.size(2), x.size(3), x.size(2) * x.size(3));
  return rotate_rows(std::move(x), angles, rotation);
}

Tensor packed_rotary(Tensor x, Index heads, Index head_width, const RotaryAngles& angles) {
  check_angles("packed_rotary", x, head_width, angles.table);
  const Rotation rotation = rotation_of(heads, head_width, x.size(2));
  return rotate_rows(std::move(x), angles, rotation);
}

}  // namespace tapeformer
