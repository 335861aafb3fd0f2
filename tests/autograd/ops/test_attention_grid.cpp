#include <tapeformer/tests/autograd/ops/attention_random.h>

using namespace tapeformer;

namespace {

constexpr int kCases = 300;

}  // namespace

TEST_SUITE("autograd/ops/attention") {
  TEST_CASE("all options in any combination: both paths equal plain loops") {
    for (int i = 0; i < kCases; ++i) {
      Generator random(static_cast<std::uint64_t>(1000 + i));
      const AttentionCase c = random_case(random);
      const std::string described = description(c);
      CAPTURE(i);
      CAPTURE(described);
      check_attention_paths(c.in, c.options, random);
    }
  }

  TEST_CASE("what the masks leave out may hold anything, changes nothing, and gets exactly zero gradient") {
    for (int i = 0; i < kCases; ++i) {
      Generator random(static_cast<std::uint64_t>(1000 + i));
      const AttentionCase c = random_case(random);
      const std::string described = description(c);
      CAPTURE(i);
      CAPTURE(described);
      const double junk = any_of({0, 1, 2}, random) == 0 ? kNan : once_in(2, random) ? kInfinity : -3e38;
      CAPTURE(junk);
      const AttentionInputs bad = spoiled(c, junk);
      const Tensor seed = random_normal({c.in.B(), c.in.T(), c.in.H(), c.in.value.size(3)}, random);
      for (const AttentionFunction path : kAttentionPaths) {
        CAPTURE(path == composed_attention);
        for (const DType type : {DType::f64, DType::f32}) {
          const auto run = [&](const AttentionInputs& in) {
            return run_op(attention_by(path, c.options),
                          {in.query.to(type), in.key.to(type), in.value.to(type)}, seed);
          };
          const OpResult clean = run(c.in), got = run(bad);
          CHECK(attention_error(got, clean, 0.1) <= (type == DType::f64 ? 1e-13 : 1e-5));
          for (std::size_t k = 0; k < 3; ++k) {
            const Tensor& dx = got.gradients[k];
            const std::vector<bool> real = touched(c, k == 0);
            const Index width = dx.size(2) * dx.size(3);
            for (Index element = 0; element < dx.elements(); ++element) {
              if (!real[static_cast<std::size_t>(element / width)]) REQUIRE(dx.at(element) == 0);
            }
          }
        }
      }
    }
  }
}
