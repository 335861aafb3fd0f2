#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/gradcheck.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/autograd/random.h>
#include <tapeformer/autograd/tape.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace tapeformer {
namespace {

using Inputs = std::vector<std::pair<std::string, Tensor>>;
using Objective = std::function<double()>;

Tensor random_like(const Tensor& x, Generator& random) {
  return Tensor::randn(x.shape(), random, DType::f64, x.device());
}

/// An input's elements, on any device, for the host to change one at a time.
class Elements {
 public:
  explicit Elements(const Tensor& x) : x_(x), here_(x.to(Device::cpu())) {}
  double operator[](Index element) const { return here_.data<double>()[element]; }
  void set(Index element, double value) const {
    here_.data<double>()[element] = value;
    if (here_.state() != x_.state()) x_.copy_from(here_);
  }

 private:
  Tensor x_, here_;  // here_ is x_ on the CPU
};

/// The derivative of `at` at 0 by central differences. The four-point stencil is (8 (f(h) - f(-h)) - (f(2h) -
/// f(-2h))) / 12h.
template <class F>
double slope_of(const F& at, double h, const GradcheckOptions& options) {
  const double near = at(h) - at(-h);
  return options.four_point ? (8 * near - (at(2 * h) - at(-2 * h))) / (12 * h) : near / (2 * h);
}

/// d objective / d x[element].
double difference(const Objective& objective, const Elements& x, Index element,
                  const GradcheckOptions& options) {
  const double kept = x[element], h = options.step * std::max(1.0, std::fabs(kept));
  const auto at = [&](double offset) {
    x.set(element, kept + offset);
    return objective();
  };
  const double slope = slope_of(at, h, options);
  x.set(element, kept);
  return slope;
}

/// Compares along random directions, on which all inputs move together.
std::vector<GradcheckInput> compare_directions(const Objective& objective, const Inputs& inputs,
                                               const std::vector<Tensor>& gradients,
                                               const GradcheckOptions& options) {
  double squares = 0;
  Index elements = 0;
  for (const Tensor& gradient : gradients) {
    squares += sum(gradient * gradient).item();
    elements += gradient.elements();
  }
  std::vector<Tensor> kept;
  for (const auto& [name, x] : inputs) kept.push_back(x.clone());
  std::vector<GradcheckInput> report;
  for (Index k = 0; k < options.directions; ++k) {
    // Drawn anew for each move: a direction is as large as the model.
    const auto for_each_part = [&](const auto& use) {
      Generator random(options.seed, static_cast<std::uint64_t>(k + 1));
      for (std::size_t i = 0; i < inputs.size(); ++i)
        use(i,
            affine(random_like(inputs[i].second, random), 1 / std::sqrt(static_cast<double>(elements)), 0));
    };
    const auto at = [&](double offset) {
      for_each_part(
          [&](std::size_t i, const Tensor& v) { inputs[i].second.copy_from(kept[i] + offset * v); });
      return objective();
    };
    double analytic = 0;
    for_each_part([&](std::size_t i, const Tensor& v) { analytic += sum(gradients[i] * v).item(); });
    GradcheckInput result;
    result.name = "direction " + std::to_string(k + 1);
    result.absolute_error = std::fabs(analytic - slope_of(at, options.step, options));
    result.scale = std::sqrt(squares / static_cast<double>(elements));
    result.checked = elements;
    result.relative_error = result.absolute_error == 0 ? 0 : result.absolute_error / result.scale;
    result.passed = result.relative_error <= options.tolerance || result.absolute_error <= options.absolute;
    report.push_back(result);
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) inputs[i].second.copy_from(kept[i]);
  return report;
}

std::vector<GradcheckInput> compare(const Objective& objective, const Inputs& inputs,
                                    const std::vector<Tensor>& gradients, const GradcheckOptions& options) {
  if (options.directions > 0) return compare_directions(objective, inputs, gradients, options);
  std::vector<GradcheckInput> report;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    GradcheckInput result;
    result.name = inputs[i].first;
    const Elements values(inputs[i].second);
    const Tensor analytic = gradients[i].to(Device::cpu());
    const Index count = inputs[i].second.elements();
    const Index most = options.most_elements > 0 ? std::min(options.most_elements, count) : count;
    for (Index k = 0; k < most; ++k) {
      const Index element = k * count / most;
      if (options.skip && options.skip(i, element)) continue;
      const double numeric = difference(objective, values, element, options);
      const double error = std::fabs(analytic.at(element) - numeric);
      ++result.checked;
      result.scale = std::max(result.scale, std::fabs(numeric));
      if (error > result.absolute_error || std::isnan(error)) {
        result.absolute_error = error;
        result.worst_element = element;
      }
    }
    result.relative_error = result.absolute_error == 0 ? 0 : result.absolute_error / result.scale;
    result.passed = result.relative_error <= options.tolerance || result.absolute_error <= options.absolute;
    report.push_back(result);
  }
  return report;
}

std::vector<Tensor> tensors_of(const Inputs& inputs) {
  std::vector<Tensor> tensors;
  for (const auto& [name, x] : inputs) tensors.push_back(x);
  return tensors;
}

double larger(double a, double b) { return b > a || std::isnan(b) ? b : a; }

void watch(Tape& tape, const Inputs& inputs) {
  for (const auto& [name, x] : inputs) tape.watch(x);
}

}  // namespace

bool GradcheckReport::passed() const {
  const auto good = [](const GradcheckInput& input) { return input.passed; };
  return std::all_of(inputs.begin(), inputs.end(), good) &&
         std::all_of(second_inputs.begin(), second_inputs.end(), good);
}

double GradcheckReport::worst_relative_error() const {
  double worst = 0;
  for (const auto* part : {&inputs, &second_inputs}) {
    for (const GradcheckInput& input : *part) {
      // If the gradient is zero in theory, the ratio is of two rounding errors.
      if (input.absolute_error < 1e-12 && input.scale < 1e-9) continue;
      worst = larger(worst, input.relative_error);
    }
  }
  return worst;
}

double GradcheckReport::worst_absolute_error() const {
  double worst = 0;
  for (const auto* part : {&inputs, &second_inputs}) {
    for (const GradcheckInput& input : *part) worst = larger(worst, input.absolute_error);
  }
  return worst;
}

std::string GradcheckReport::text() const {
  std::string text;
  const auto append = [&](const char* order, const std::vector<GradcheckInput>& part) {
    for (const GradcheckInput& input : part) {
      char line[256], relative[32] = "zero in theory   ";
      if (!input.zero_in_theory()) {
        std::snprintf(relative, sizeof relative, "relative %.2e", input.relative_error);
      }
      std::snprintf(line, sizeof line, "%-6s %-40s %s  absolute %.2e  at %lld of %lld checked  %s\n", order,
                    input.name.c_str(), relative, input.absolute_error,
                    static_cast<long long>(input.worst_element), static_cast<long long>(input.checked),
                    input.passed ? "ok" : "WRONG");
      text += line;
    }
  };
  append("first", inputs);
  append("second", second_inputs);
  return text;
}

GradcheckReport gradcheck(const std::function<Tensor()>& function, const Inputs& inputs,
                          const GradcheckOptions& options) {
  for (const auto& [name, x] : inputs) {
    if (x.dtype() != DType::f64) {
      throw DTypeError("[gradcheck] inputs must be f64; got " + name + "=" + x.describe() +
                       "; try to(DType::f64)");
    }
  }
  const NoGradGuard pause;
  Generator random(options.seed);
  const Tensor projection = random_like(function(), random);
  GradcheckReport report;
  {
    Tape tape;
    if (options.on_tape) options.on_tape(tape);
    watch(tape, inputs);
    const std::vector<Tensor> gradients = tape.gradients(function(), tensors_of(inputs), projection);
    const NoGradGuard evaluation;
    report.inputs = compare([&] { return sum(function() * projection).item(); }, inputs, gradients, options);
  }
  if (!options.second_order) return report;

  // The function to check is a random projection of the gradients.
  std::vector<Tensor> projections;
  for (const auto& [name, x] : inputs) projections.push_back(random_like(x, random));
  const auto projected = [&](const std::vector<Tensor>& gradients) {
    Tensor total = sum(gradients[0] * projections[0]);
    for (std::size_t i = 1; i < gradients.size(); ++i) total = total + sum(gradients[i] * projections[i]);
    return total;
  };
  Tape tape;
  if (options.on_tape) options.on_tape(tape);
  watch(tape, inputs);
  const Tensor first = projected(tape.gradients(function(), tensors_of(inputs), projection, true));
  // A function that is linear in everything has a constant gradient, unknown to the tape.
  std::vector<Tensor> second;
  if (tape.tracks(first)) {
    second = tape.gradients(first, tensors_of(inputs));
  } else {
    for (const auto& [name, x] : inputs) second.push_back(Tensor::zeros(x.shape(), DType::f64, x.device()));
  }
  report.second_inputs = compare(
      [&] {
        Tape inner;
        watch(inner, inputs);
        const std::vector<Tensor> gradients = inner.gradients(function(), tensors_of(inputs), projection);
        const NoGradGuard evaluation;
        return projected(gradients).item();
      },
      inputs, second, options);
  return report;
}

}  // namespace tapeformer
