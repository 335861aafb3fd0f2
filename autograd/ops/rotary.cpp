#include <tapeformer/autograd/dispatch.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/ids.h>
#include <tapeformer/autograd/ops/require.h>
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
  dispatch("rotary", operands(wide(table), x, y), [&](auto on, auto* angles, auto* from, auto* to) {
    kernels::rotate(on, rotation, angles, from, {to, false});
  });
  return record("rotary", {x}, {table}, y, [table, rotation](const Tensor& dy, const Gradients& into) {
    Rotation back = rotation;
    back.inverse = !rotation.inverse;
    if (into.recorded()) {
      into[0] += turned(dy, table, back);
    } else if (dy.is_sole_owner()) {
      dispatch("rotary", operands(wide(table), dy), [&](auto on, auto* angles, auto* from) {
        kernels::rotate(on, back, angles, from, {from, false});
      });
      into[0] += dy;
    } else {
      dispatch("rotary", operands(wide(table), dy, into[0]), [&](auto on, auto* angles, auto* from, auto to) {
        kernels::rotate(on, back, angles, from, to);
      });
    }
  });
}

void check_config(const RotaryConfig& config) {
  const auto check = [](bool holds, const char* rule, const char* name, double got, const char* remedy) {
    require(holds, "rotary", rule, {{name, got}}, remedy);
  };
  const auto is_factor = [](double x) { return x > 0 && std::isfinite(x); };
  check(is_factor(config.base), "base must be positive and finite", "base", config.base, "10000");
  check(is_factor(config.factor), "factor must be positive and finite", "factor", config.factor,
        "1 for positions as they are");
  check(is_factor(config.attention_factor), "attention_factor must be positive and finite",
        "attention_factor", config.attention_factor, "1");
  check(!config.yarn || config.original_context > 0, "YaRN needs an original_context", "original_context",
        static_cast<double>(config.original_context), "the context that the model was trained with");
  check(config.width >= 0, "width must not be negative", "width", static_cast<double>(config.width),
        "0 for all components");
  require(config.original_context <= 0 || config.low_frequency < config.high_frequency, "rotary",
          "low_frequency must be below high_frequency",
          {{"low_frequency", config.low_frequency}, {"high_frequency", config.high_frequency}}, "1 and 4");
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
    first = pair_that_turns(config, pairs, config.high_frequency);
    last = pair_that_turns(config, pairs, config.low_frequency);
    if (config.whole_pairs) first = std::floor(first), last = std::ceil(last);
    first = std::max(first, 0.0), last = std::min(last, end);
    if (first == last) last += 0.001;
  }
  for (Index i = 0; i < pairs; ++i) {
    const double plain = std::pow(config.base, -static_cast<double>(i) / static_cast<double>(pairs));
    double kept = 0;  // the unscaled share of the frequency
    if (config.yarn) {
      kept = 1 - std::clamp((static_cast<double>(i) - first) / (last - first), 0.0, 1.0);
    } else if (config.original_context > 0) {
      const double turns = static_cast<double>(config.original_context) * plain / (2 * M_PI);
      kept = (turns - config.low_frequency) / (config.high_frequency - config.low_frequency);
      kept = std::clamp(kept, 0.0, 1.0);
    }
    const double scaled = plain * (kept + (1 - kept) / config.factor);
    require(std::isfinite(scaled), "rotary", "the frequencies of all pairs must be finite",
            {{"base", config.base},
             {"factor", config.factor},
             {"low_frequency", config.low_frequency},
             {"high_frequency", config.high_frequency}},
            "a base above 1, and frequencies above 0");
    frequencies.push_back(config.reversed ? -scaled : scaled);
  }
  return frequencies;
}

std::string beyond_limit(Index limit, Index value, const Shape& positions) {
  return format(
      "[rotary] positions must be below max_positions={}; got {} in positions=i32{}; try a shorter sequence, "
      "or a greater max_positions with a factor that stretches what was trained",
      limit, value, positions.text());
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
  const Index width = config.width > 0 ? config.width : head_width, pairs = width / 2;
  require(width % 2 == 0 && width <= head_width, "rotary",
          "the width that is rotated must be even, and within a head",
          {{"width", width}, {"head_width", head_width}});
  const PooledVector<double> frequencies = frequencies_of(config, pairs);
  const Shape sizes = shape.rank() == 2 ? Shape{shape[0], shape[1], 2, pairs} : Shape{shape[0], 2, pairs};
  const Tensor table = Tensor::empty(sizes, wide(type), device);
  dispatch("rotary", operands(wide(table)), [&](auto on, auto* angles) {
    kernels::rotary_table(on, positions, pairs, frequencies.data(), angles);
  });
  return {config.attention_factor == 1 ? table : table * config.attention_factor, config.layout};
}

/// x [B, T, ...] with rows of `row_width`, which begin with `heads` heads.
Tensor rotate_rows(const char* op, Tensor x, Index heads, Index head_width, Index row_width,
                   const RotaryAngles& angles) {
  const Tensor& table = angles.table;
  require_same_device(op, "angles", table, x);
  const Shape positions = table.rank() == 4 ? Shape{table.size(0), table.size(1)} : Shape{table.size(0)};
  const Index pairs = table.size(-1);
  require(
      2 * pairs <= head_width && (positions == Shape{x.size(1)} || positions == Shape{x.size(0), x.size(1)}),
      op, "the angles must be those of x's tokens, with no more pairs than a head has",
      {{"x", x}, {"head_width", head_width}, {"angles", table}});
  Rotation rotation;
  rotation.rows = x.size(0) * x.size(1), rotation.row_width = row_width;
  rotation.heads = heads, rotation.head_width = head_width, rotation.pairs = pairs;
  rotation.period = std::max<Index>(positions.elements(), 1);
  rotation.layout = angles.layout;
  return turned(std::move(x), table, rotation);
}

}  // namespace

RotaryAngles rotary_angles(const RotaryConfig& config, Index head_width, const Tensor& positions,
                           DType type) {
  check_config(config);
  require_i32("rotary", "positions", positions);
  require(positions.rank() == 1 || positions.rank() == 2, "rotary", "positions must be [T] or [B, T]",
          {{"positions", positions}});
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

Tensor rotary(Tensor x, const RotaryAngles& angles) {
  require(x.rank() == 4, "rotary", "x must be [B, T, H, D]", {{"x", x}});
  const Index H = x.size(2), D = x.size(3);
  return rotate_rows("rotary", std::move(x), H, D, H * D, angles);
}

Tensor packed_rotary(Tensor x, Index heads, Index head_width, const RotaryAngles& angles) {
  require(
      x.rank() == 3 && heads >= 0 && head_width >= 0 && heads <= x.size(2) / std::max<Index>(head_width, 1),
      "packed_rotary", "x must be [B, T, N] with N >= heads * head_width, neither negative",
      {{"x", x}, {"heads", heads}, {"head_width", head_width}});
  const Index N = x.size(2);
  return rotate_rows("packed_rotary", std::move(x), heads, head_width, N, angles);
}

}  // namespace tapeformer
