#include <doctest/doctest.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/nn/formats/strict_json.h>
#include <tapeformer/tests/reference/support.h>

#include <cmath>
#include <cstdlib>

using namespace tapeformer;

namespace {

Tensor function(const std::string& name, const Tensor& x) {
  if (name.rfind("pow ", 0) == 0) return pow(x, std::atof(name.c_str() + 4));
  for (const Unary f : kUnaries) {
    if (name == name_of(f)) return unary(f, x);
  }
  throw ShapeError("there is no function " + name);
}

/// Both NaN, both the same infinity, or equal apart from rounding, `slack` and numbers below the type's
/// normal ones.
bool agree(double got, double expected, double slack, DType type) {
  if (std::isnan(expected) || std::isinf(expected))
    return std::isnan(expected) ? std::isnan(got) : got == expected;
  const double smallest = type == DType::f64 ? 0x1p-1022 : 0x1p-126;
  const double most = type == DType::f64 ? 1e-13 : 1e-5;
  return std::fabs(got - expected) <= most * std::fabs(expected) + smallest + slack;
}

}  // namespace

TEST_CASE("zeros, infinities, NaN and the ends of the range give what PyTorch gives, derivatives too") {
  const auto golden = parse_json(read_file(TAPEFORMER_SOURCE_DIR "/tests/golden/special_values.json"));
  for (const DType type : {DType::f64, DType::f32}) {
    for (const auto& entry : golden.at(type == DType::f64 ? "float64" : "float32").items()) {
      const std::string name = entry.key();  // a lambda may not capture a structured binding
      const auto& rows = entry.value();
      for (const auto& row : rows) {
        const auto number = [&](std::size_t i) {
          return std::strtod(row[i].get<std::string>().c_str(), nullptr);
        };
        const Tensor x = Tensor::full({}, number(0), type);
        const auto check = [&](const char* what, const Tensor& got, double expected) {
          // PyTorch multiplies an infinity by the bell curve's zero here; the limit is 0.
          const bool vanishes = (name == "erf" || name == "gelu") && std::isfinite(number(0));
          const double wanted = vanishes && std::isnan(expected) ? 0 : expected;
          INFO(std::string(name_of(type)), " ", name, " at ", row[0], ": ", std::string(what), " ",
               got.item(), " for ", wanted);
          // PyTorch's gelu adds erf to one, which loses all of a far smaller result.
          const double slack = name == "gelu" && number(0) < 0 ? 1e-16 : 0;
          CHECK(agree(got.item(), wanted, slack, type));
        };
        Tape tape;
        tape.watch(x);
        const Tensor y = function(name, x);
        check("value", y, number(1));
        check("derivative", tape.gradients(y, {x})[0], number(2));
        const Tensor first = tape.gradients(y, {x}, {}, true)[0];
        check("derivative, recorded,", first, number(2));
        check("second derivative",
              tape.tracks(first) ? tape.gradients(first, {x})[0] : Tensor::full({}, 0, type), number(3));
      }
    }
  }
}
