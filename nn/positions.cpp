#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/embedding.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/nn/positions.h>

#include <algorithm>
#include <cmath>

namespace tapeformer {
namespace {

/// Component i of position t.
double sinusoid(const PositionsConfig& config, Index t, Index i) {
  const Index C = config.width, n = std::max<Index>(C / 2, 1);
  if (config.kind == PositionKind::sinusoidal_fairseq) {
    const double power = static_cast<double>(i % n) / static_cast<double>(std::max<Index>(n - 1, 1));
    const double angle = static_cast<double>(t + 2) / std::pow(10000.0, power);
    return i < n ? std::sin(angle) : i < 2 * n ? std::cos(angle) : 0;
  }
  const Index sines = (C + 1) / 2;
  if (config.kind == PositionKind::sinusoidal_halves) i = i < sines ? 2 * i : 2 * (i - sines) + 1;
  const double exponent = static_cast<double>(i - i % 2) / static_cast<double>(C);
  const double angle = static_cast<double>(t) / std::pow(10000.0, exponent);
  return i % 2 == 0 ? std::sin(angle) : std::cos(angle);
}

}  // namespace

Index context_start(Index length, Index context) {
  if (context < 1) throw Error(format("[context_start] the context must be positive; got {}", context));
  if (length <= context) return 0;
  const Index step = (context + 1) / 2;
  return (length - context + step - 1) / step * step;
}

Positions::Positions(const PositionsConfig& config, Generator& random) {
  if (config.kind == PositionKind::learned) {
    weight_ = Parameter(Tensor::empty({config.most, config.width}));
    random.fill_normal(weight_, 0, 0.02);
    return;
  }
  if (!has_table(config.kind)) return;
  const Tensor sinusoids = Tensor::empty({config.most, config.width}, DType::f64, Device::cpu());
  double* values = sinusoids.data<double>();
  for (Index t = 0; t < config.most; ++t)
    for (Index i = 0; i < config.width; ++i) *values++ = sinusoid(config, t, i);
  sinusoids_ = sinusoids.to(default_device());
}

Tensor Positions::operator()(const Tensor& x, Index first) const {
  if (!weight_.defined() && !sinusoids_.defined()) return x;
  const Tensor& table = weight_.defined() ? weight_.used() : sinusoids_;
  const Index length = x.size(-2), most = table.size(0);
  if (first + length > most)
    throw ShapeError(
        format("[positions] there are {} positions; got x={} from position {}; try a shorter sequence, or a "
               "larger context (max_length of a translation model)",
               most, x.describe(), first));
  const Tensor rows = slice(table, 0, first, length);
  return x + (weight_.defined() ? rows : rows.to(x.dtype()));
}

Tensor Positions::operator()(const Tensor& x, const Tensor& at) const {
  if (weight_.defined()) return x + tapeformer::embedding(weight_.used(), at);
  return sinusoids_.defined() ? x + tapeformer::embedding(sinusoids_, at).to(x.dtype()) : x;
}

void Positions::visit(ParameterVisitor& visitor) {
  visitor.parameter("weight", weight_);
  visitor.buffer("sinusoids", sinusoids_);
}

}  // namespace tapeformer
