#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/gradcheck/differences.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/autograd/random.h>
#include <tapeformer/autograd/tape/tape.h>

#include <algorithm>
#include <cmath>

namespace tapeformer {
namespace {

using Inputs = std::vector<std::pair<std::string, Tensor>>;
using Objective = std::function<double()>;

Tensor random_like(const Tensor& x, Generator& random) {
  return Tensor::randn(x.shape(), random, DType::f64, x.device());
}

bool is_zero(const Tensor& x) {
  const std::vector<double> elements = x.to_vector<double>();
  return std::all_of(elements.begin(), elements.end(), [](double element) { return element == 0; });
}

bool is_same_memory(const Tensor& a, const Tensor& b) {
  return a.state()->storage.get() == b.state()->storage.get();
}

/// f(), after which restore() is called, even if f throws.
template <class F, class Restore>
std::vector<double> restored_after(const F& f, const Restore& restore) {
  std::vector<double> values;
  try {
    values = f();
  } catch (...) {
    restore();
    throw;
  }
  restore();
  return values;
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

GradcheckInput named(const std::string& name) {
  GradcheckInput result;
  result.name = name;
  return result;
}

/// The state of one gradcheck().
class Check {
 public:
  Check(const std::function<Tensor()>& function, const Inputs& inputs, const GradcheckOptions& options)
      : function_(function), inputs_(inputs), options_(options), random_(options.seed) {
    if (inputs.empty())
      throw Error("[gradcheck] there must be inputs; got none; try the tensors that the function reads");
    for (const auto& [name, x] : inputs) {
      if (x.dtype() != DType::f64) {
        throw DTypeError("[gradcheck] inputs must be f64; got " + name + "=" + x.describe() +
                         "; try to(DType::f64)");
      }
      tensors_.push_back(x);
    }
    for (const std::string& name : options.constants) {
      if (std::any_of(inputs.begin(), inputs.end(), [&](const auto& input) { return input.first == name; }))
        continue;
      throw Error("[gradcheck] a constant must be one of the inputs; got " + name +
                  "; try the name of an input");
    }
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const bool is_known = std::any_of(moved_.begin(), moved_.end(), [&](std::size_t other) {
        return is_same_memory(tensors_[i], tensors_[other]);
      });
      if (!is_known && !is_constant(i)) moved_.push_back(i);
    }
    projection_ = random_like(function(), random_);
  }

  GradcheckReport report() {
    GradcheckReport report;
    const auto objective = [&] { return sum(function_() * projection_).item(); };
    std::vector<Tensor> gradients;
    {
      Tape tape;
      begin(tape);
      const Tensor y = function_();
      gradients = tape.gradients(y, tensors_, projection_);
      if (options_.repeats) repeat(report, gradients, tape.gradients(y, tensors_, projection_));
    }
    if (options_.repeats) {
      Tape tape;
      begin(tape);
      repeat(report, gradients, tape.gradients(function_(), tensors_, projection_));
    }
    report.inputs = against_differences(objective, gradients);
    if (options_.forward) forward(report, of_memory(gradients));
    if (options_.second_order) second_order(report);
    return report;
  }

 private:
  using Directions = std::vector<Tensor>;  // of each input; undefined for one that stays

  bool is_constant(std::size_t input) const {
    const auto& names = options_.constants;
    return std::find(names.begin(), names.end(), inputs_[input].first) != names.end();
  }

  void begin(Tape& tape) const {
    if (options_.on_tape) options_.on_tape(tape);
    for (const Tensor& x : tensors_) tape.watch(x);
  }

  /// The gradient of each input's memory: inputs that share memory move together.
  std::vector<Tensor> of_memory(const std::vector<Tensor>& gradients) const {
    std::vector<Tensor> totals = gradients;
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      std::vector<const Tensor::State*> added{tensors_[i].state()};
      for (std::size_t j = 0; j < tensors_.size(); ++j) {
        if (!is_same_memory(tensors_[i], tensors_[j])) continue;
        if (std::find(added.begin(), added.end(), tensors_[j].state()) != added.end()) continue;
        added.push_back(tensors_[j].state());
        totals[i] = totals[i] + reshape(gradients[j], totals[i].shape());
      }
    }
    return totals;
  }

  /// A random direction of length 1 on average, of one input or of all. The same for the same stream.
  Directions directions(std::uint64_t stream, std::size_t only) const {
    Index elements = 0;
    for (const std::size_t i : moved_) elements += only == kAll || i == only ? tensors_[i].elements() : 0;
    const double scale = 1 / std::sqrt(static_cast<double>(std::max<Index>(elements, 1)));
    Generator random(options_.seed, stream);
    Directions v(tensors_.size());
    for (const std::size_t i : moved_)
      if (only == kAll || i == only) v[i] = random_like(tensors_[i], random) * scale;
    return v;
  }

  /// The differences of f() as the inputs move along v.
  CentralDifferences along(const Directions& v, const std::function<std::vector<double>()>& f) const {
    std::vector<Tensor> kept(v.size());
    for (std::size_t i = 0; i < v.size(); ++i)
      if (v[i].defined()) kept[i] = tensors_[i].clone();
    const auto move = [this, v, kept](double offset) {
      for (std::size_t i = 0; i < v.size(); ++i)
        if (v[i].defined()) tensors_[i].copy_from(offset == 0 ? kept[i] : kept[i] + offset * v[i]);
    };
    const auto moved = [move, f](double offset) {
      move(offset);
      return restored_after(f, [&] { move(0); });
    };
    return {moved, options_.step, options_.four_point};
  }

  /// Compares along v; a `scale` of 0 means the numeric derivative itself.
  GradcheckInput compare_along(const Directions& v, const Objective& objective, double analytic,
                               const std::string& name, double scale) const {
    CentralDifferences differences = along(v, [&] { return std::vector<double>{objective()}; });
    return compare_elements(
        name, {{-1, analytic, differences.usual()[0]}}, scale, options_,
        [&](std::size_t place, double wanted) { return differences.extrapolated(place, wanted); });
  }

  double product(const std::vector<Tensor>& gradients, const Directions& v) const {
    double total = 0;
    for (std::size_t i = 0; i < v.size(); ++i)
      if (v[i].defined()) total += sum(gradients[i] * v[i]).item();
    return total;
  }

  GradcheckInput constant(std::size_t input, const Tensor& gradient) const {
    GradcheckInput result = named(inputs_[input].first);
    result.compare(gradient, Tensor::zeros(gradient.shape(), DType::f64));
    result.relative_error = result.absolute_error == 0 ? 0 : result.absolute_error / result.scale;
    result.passed = is_zero(gradient);
    if (!result.passed) result.fault = "it should get no gradient";
    return result;
  }

  GradcheckInput elements(const Objective& objective, std::size_t input, const Tensor& gradient) const {
    const Elements x(tensors_[input]);
    const auto differences_of = [&](Index element) {
      const double kept = x[element], h = options_.step * std::max(1.0, std::fabs(kept));
      const auto at = [&objective, &x, element, kept](double offset) {
        x.set(element, kept + offset);
        return restored_after([&] { return std::vector<double>{objective()}; },
                              [&] { x.set(element, kept); });
      };
      return CentralDifferences(at, h, options_.four_point);
    };
    const Tensor analytic = gradient.to(Device::cpu());
    const Index count = analytic.elements();
    const Index most = options_.most_elements > 0 ? std::min(options_.most_elements, count) : count;
    std::vector<ComparedElement> compared;
    for (Index k = 0; k < most; ++k) {
      const Index element = k * count / most;
      if (options_.skip && options_.skip(input, element)) continue;
      compared.push_back({element, analytic.at(element), differences_of(element).usual()[0]});
    }
    GradcheckInput result =
        compare_elements(inputs_[input].first, compared, 0, options_, [&](std::size_t place, double wanted) {
          return differences_of(compared[place].element).extrapolated(0, wanted);
        });
    if (!result.passed && result.fault.empty() && is_zero(gradient)) result.fault = "it gets no gradient";
    return result;
  }

  std::vector<GradcheckInput> along_directions(const Objective& objective,
                                               const std::vector<Tensor>& gradients) const {
    double squares = 0;
    Index elements = 0;
    for (const std::size_t i : moved_) {
      squares += sum(gradients[i] * gradients[i]).item();
      elements += gradients[i].elements();
    }
    std::vector<GradcheckInput> report;
    const auto stream = [](Index k) { return static_cast<std::uint64_t>(k + 1); };
    for (Index k = 0; k < options_.directions; ++k) {
      const Directions v = directions(stream(k), kAll);
      const double scale = std::sqrt(squares / static_cast<double>(elements));
      report.push_back(
          compare_along(v, objective, product(gradients, v), "direction " + std::to_string(k + 1), scale));
      report.back().checked = elements;
    }
    for (const std::size_t i : moved_) {
      if (!is_zero(gradients[i])) continue;
      GradcheckInput result = compare_along(directions(stream(0), i), objective, 0, inputs_[i].first, 0);
      if (result.passed) continue;
      if (result.fault.empty()) result.fault = "it gets no gradient";
      report.push_back(result);
    }
    return report;
  }

  std::vector<GradcheckInput> against_differences(const Objective& objective,
                                                  const std::vector<Tensor>& gradients) const {
    const std::vector<Tensor> totals = of_memory(gradients);
    std::vector<GradcheckInput> report;
    if (options_.directions > 0) report = along_directions(objective, totals);
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      if (is_constant(i)) {
        report.push_back(constant(i, gradients[i]));
      } else if (options_.directions == 0) {
        report.push_back(elements(objective, i, totals[i]));
      }
    }
    return report;
  }

  void repeat(GradcheckReport& report, const std::vector<Tensor>& first,
              const std::vector<Tensor>& again) const {
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      GradcheckInput result = named(inputs_[i].first);
      result.compare_bits(again[i], first[i]);
      report.repeated_inputs.push_back(result);
    }
  }

  void forward(GradcheckReport& report, const std::vector<Tensor>& gradients) const {
    const Tensor seed = projection_.clone();
    Tape tape;
    begin(tape);
    tape.watch(seed);
    const std::vector<Tensor> back = of_memory(tape.gradients(function_(), tensors_, seed, true));
    const auto check = [&](const std::string& name, const Directions& v) {
      Tensor total = Tensor::scalar(0, DType::f64, seed.device());  // v'(J'u)
      for (const std::size_t i : moved_)
        if (v[i].defined()) total = total + sum(back[i] * v[i]);
      const bool depends = tape.tracks(total);
      const Tensor forward = depends ? tape.gradients(total, {seed})[0]  // J v
                                     : Tensor::zeros(seed.shape(), DType::f64, seed.device());
      const NoGradGuard evaluation;
      CentralDifferences differences = along(v, [&] { return function_().to_vector<double>(); });
      const std::vector<double> analytic = forward.to_vector<double>(), numeric = differences.usual();
      std::vector<ComparedElement> compared;
      for (std::size_t i = 0; i < analytic.size(); ++i)
        compared.push_back({static_cast<Index>(i), analytic[i], numeric[i]});
      report.forward_inputs.push_back(compare_elements(
          name, compared, 0, options_,
          [&](std::size_t place, double wanted) { return differences.extrapolated(place, wanted); }));

      GradcheckInput by_product = named(name);
      const Tensor terms = projection_ * forward;  // of u'(J v), which may cancel
      by_product.compare(-1, sum(terms).item(), product(gradients, v));
      by_product.scale = std::sqrt(sum(terms * terms).item());
      by_product.judge(options_);
      report.adjoint_inputs.push_back(by_product);
    };
    for (Index k = 0; k < options_.directions; ++k)
      check("direction " + std::to_string(k + 1), directions(static_cast<std::uint64_t>(k + 1), kAll));
    if (options_.directions > 0) return;
    for (const std::size_t i : moved_) check(inputs_[i].first, directions(i + 1, i));
  }

  void second_order(GradcheckReport& report) const {
    // The function to check is a random projection of the gradients.
    std::vector<Tensor> projections;
    for (const Tensor& x : tensors_) projections.push_back(random_like(x, random_));
    const auto projected = [&](const std::vector<Tensor>& gradients) {
      Tensor total = sum(gradients[0] * projections[0]);
      for (std::size_t i = 1; i < gradients.size(); ++i) total = total + sum(gradients[i] * projections[i]);
      return total;
    };
    Tape tape;
    begin(tape);
    const Tensor first = projected(tape.gradients(function_(), tensors_, projection_, true));
    // A function that is linear in everything has a constant gradient, unknown to the tape.
    std::vector<Tensor> second;
    if (tape.tracks(first)) {
      second = tape.gradients(first, tensors_);
    } else {
      for (const Tensor& x : tensors_) second.push_back(Tensor::zeros(x.shape(), DType::f64, x.device()));
    }
    const NoGradGuard evaluation;
    report.second_inputs = against_differences(
        [&] {
          Tape inner;
          for (const Tensor& x : tensors_) inner.watch(x);
          const std::vector<Tensor> gradients = inner.gradients(function_(), tensors_, projection_);
          const NoGradGuard paused;
          return projected(gradients).item();
        },
        second);
  }

  static constexpr std::size_t kAll = static_cast<std::size_t>(-1);
  const std::function<Tensor()>& function_;
  const Inputs& inputs_;
  const GradcheckOptions& options_;
  std::vector<Tensor> tensors_;  // the inputs
  // The inputs that differences move: one of each group with shared memory, and no constants.
  std::vector<std::size_t> moved_;
  mutable Generator random_;
  Tensor projection_;
};

}  // namespace

GradcheckReport gradcheck(const std::function<Tensor()>& function, const Inputs& inputs,
                          const GradcheckOptions& options) {
  const NoGradGuard pause;
  return Check(function, inputs, options).report();
}

}  // namespace tapeformer
