#include <tapeformer/tests/autograd/kernels/modifiers_case.h>
#include <tapeformer/tests/reference/random_cases.h>

#include <map>

using namespace tapeformer;
using kernels::AttentionWeighting;

namespace {

using NamedErrors = std::map<std::string, double>;

/// Adds the errors of what there is.
void add_errors(const NamedTensors& got, const NamedTensors& exact, NamedErrors& errors) {
  for (std::size_t i = 0; i < exact.size(); ++i) {
    if (exact[i].second.defined()) errors[exact[i].first] += relative_error(got[i].second, exact[i].second);
  }
}

/// With results in the type that kernels give them.
NamedTensors rounded(NamedTensors results, DType type) {
  for (std::size_t i = 0; i < 4; ++i) results[i].second = as_type(results[i].second, type);
  return results;
}

/// Outputs are at most twice, gradients three times as far off as those of plain loops.
void check_errors(const NamedErrors& got, NamedErrors& naive) {
  for (const auto& [name, error] : got) {
    CAPTURE(name);
    CHECK(error > 0);
    CHECK_BELOW(error, (name == "y" ? 2 : 3) * naive[name]);
  }
}

}  // namespace

TEST_SUITE("autograd/kernels/cuda_attention_modifiers_rounded") {
  TEST_CASE("f32 and bf16 errors are at most twice, of gradients three times, those of plain loops") {
    struct Path {
      const char* name;
      DType type;
      ToBf16 to_bf16;
    };
    for (const Path& path :
         {Path{"plain", DType::f32, ToBf16::nothing}, Path{"plain", DType::bf16, ToBf16::outputs},
          Path{"tensor_cores", DType::bf16, ToBf16::factors}}) {
      const AttentionBy by(path.name);
      CAPTURE(path.name);
      CAPTURE(name_of(path.type));
      NamedErrors got, naive;  // summed over all, because the largest error is luck
      for (const Modifiers& m : kEach) {
        for (int draw = 0; draw < 3; ++draw) {
          Generator random(test_seed(static_cast<std::uint64_t>(100 + draw)));
          AttentionCase plain = case_on_cpu(1, 20, 40, 2, 1, 16, 24, random);
          plain.options.causal = draw % 2 == 0;
          if (draw > 0) plain.options.mask = host_normal({2, 1, 40}, random);
          const ModifiedAttention c = modified(plain, m, random, path.type);
          const Tensor seed = seed_of(c, random, path.type);
          const NamedTensors exact = modified_oracle<double>(c, seed);
          add_errors(modified_by_kernels(c, seed, path.type), exact, got);
          add_errors(rounded(modified_oracle<float>(c, seed, path.to_bf16), path.type), exact, naive);
        }
      }
      check_errors(got, naive);
    }
  }

  TEST_CASE("bf16 by tensor cores, of each width, with masks of every kind and without") {
    const AttentionBy by("tensor_cores");
    NamedErrors got, naive;
    for (const Index width : {32, 64, 128, 256}) {
      for (const bool is_masked : {false, true}) {
        Generator random(test_seed(static_cast<std::uint64_t>(width + is_masked)));
        AttentionCase plain = case_on_cpu(1, 40, 70, 2, 1, width, 24, random);
        plain.options.causal = true;
        if (is_masked) {
          plain.options.query_starts = integers({0, 10, 40}, {3});
          plain.options.key_starts = integers({0, 13, 70}, {3});
          plain.options.key_mask = random_mask({1, 70}, random);
          plain.options.mask = random_pair_mask({1, 2, 40, 70}, true, 0, random);
          plain.options.dropout = 0.25;
        }
        Modifiers m;
        m.function = ScoreFunction::softcap, m.of_heads = m.has_relative = m.has_sinks = true;
        const ModifiedAttention c = modified(plain, m, random, DType::bf16);
        const Tensor seed = seed_of(c, random, DType::bf16);
        const NamedTensors exact = modified_oracle<double>(c, seed);
        ModifiedAttention given = c;
        given.in = spoiled(c, kNan);
        add_errors(modified_by_kernels(given, seed, DType::bf16), exact, got);
        add_errors(rounded(modified_oracle<float>(c, seed, ToBf16::factors), DType::bf16), exact, naive);
      }
    }
    check_errors(got, naive);
  }

  TEST_CASE("few queries and many keys, in parts and whole") {
    const AttentionBy by("tensor_cores");
    for (const bool in_parts : {false, true}) {
      CAPTURE(in_parts);
      for (const Modifiers& m : {kEach[4], kEach[6]}) {
        CAPTURE(described(m));
        for (const DType type : {DType::f64, DType::bf16}) {
          Generator random(test_seed(45));
          const Index B = in_parts ? 2 : 270, S = in_parts ? 300 : 129;
          AttentionCase plain = case_on_cpu(B, in_parts ? 3 : 1, S, 2, in_parts ? 1 : 2, 8, 8, random);
          plain.options.key_lengths = random_ids({B}, S + 1, random);
          plain.options.mask = host_normal({S}, random);
          const ModifiedAttention c = modified(plain, m, random, type);
          const Tensor exact = modified_oracle<double>(c, {}).front().second,
                       got = modified_by_kernels(c, {}, type).front().second;
          if (type == DType::f64) CHECK_BELOW(relative_error(got, exact), 1e-11);
          if (type == DType::bf16) {
            const Tensor naive = modified_oracle<float>(c, {}, ToBf16::factors).front().second;
            CHECK_BELOW(relative_error(got, exact), 2 * relative_error(as_type(naive, type), exact));
          }
        }
      }
    }
  }

  TEST_CASE("bf16 by the fastest kernels that take it") {
    for (const Modifiers& m : kEach) {
      CAPTURE(described(m));
      Generator random(test_seed(46));
      AttentionCase plain = case_on_cpu(1, 64, 70, 2, 1, 64, 40, random);
      plain.options.causal = true;
      const ModifiedAttention c = modified(plain, m, random, DType::bf16);
      const Tensor seed = seed_of(c, random, DType::bf16);
      const auto by = [&](const char* path) {
        const AttentionBy chosen(path);
        return modified_by_kernels(c, seed, DType::bf16);
      };
      const NamedTensors fastest = by("hopper"), plain_results = by("plain"),
                         exact = modified_oracle<double>(c, seed);
      NamedErrors got, naive;
      add_errors(fastest, exact, got);
      add_errors(rounded(modified_oracle<float>(c, seed, ToBf16::factors), DType::bf16), exact, naive);
      double difference = 0;
      for (std::size_t i = 0; i < 4; ++i) {
        CHECK_BELOW(got[exact[i].first], (i == 0 ? 2 : 3) * naive[exact[i].first]);
        difference += absolute_error(fastest[i].second, plain_results[i].second);
      }
      CHECK((difference > 0) == (m.weighting == AttentionWeighting::softmax));  // else the plain ones do it
    }
  }
}
