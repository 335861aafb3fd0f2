#include <tapeformer/tests/autograd/kernels/modified_attention.h>
#include <tapeformer/tests/autograd/ops/attention_search.h>
#include <tapeformer/tests/emulator/in_order.h>
#include <tapeformer/tests/reference/random_cases.h>

#include <map>

using namespace tapeformer;
using kernels::AttentionWeighting;
using kernels::ScoreFunction;

namespace {

const int kCases = random_cases(90);

/// What may be done to scores, each alone or with others.
struct Modifiers {
  ScoreFunction function = ScoreFunction::none;
  AttentionWeighting weighting = AttentionWeighting::softmax;
  bool of_heads = false;  // a parameter and a relative bias for each
  bool has_relative = false, has_sinks = false, is_additive = false;
};

/// All the rest is the problem's, whose sizes it changes only if it has to.
ModifiedAttention modified(const AttentionCase& plain, const Modifiers& m, Generator& random, DType type) {
  ModifiedAttention c;
  static_cast<AttentionCase&>(c) = plain;
  c.in = as_type(on_cpu(plain.in), type);
  c.function = m.function, c.weighting = m.weighting;
  const Index H = c.in.H();
  const auto numbers = [&](const Tensor& x) { return as_type(x, wide(type)); };
  if (c.has_bias()) c.options.mask = numbers(c.options.mask);
  if (m.function != ScoreFunction::none)
    c.parameter = numbers(random_uniform({m.of_heads ? H : 1}, 0.5, 2, random));
  if (m.has_relative) {
    c.reach = std::max<Index>({c.in.T(), c.in.S(), 1}) - 1 + random.below(3);
    c.relative = numbers(random_normal({m.of_heads ? H : 1, 2 * c.reach + 1}, random));
  }
  if (m.has_sinks) c.sinks = numbers(random_normal({H}, random));
  if (m.is_additive) c.weight = as_type(random_normal({H, c.in.query.size(3)}, random), type);
  return c;
}

Modifiers random_modifiers(Generator& random) {
  Modifiers m;
  m.function = static_cast<ScoreFunction>(random.below(static_cast<Index>(ScoreFunction::count)));
  if (once_in(4, random)) m.weighting = AttentionWeighting::sigmoid;
  m.of_heads = once_in(2, random), m.has_relative = once_in(2, random);
  m.has_sinks = once_in(2, random) && m.weighting == AttentionWeighting::softmax;
  m.is_additive = once_in(4, random);
  return m;
}

Tensor seed_of(const ModifiedAttention& c, Generator& random, DType type) {
  return as_type(random_normal({c.in.B(), c.in.T(), c.in.H(), c.in.value.size(3)}, random), type);
}

AttentionCase simple_case(Index B, Index T, Index S, Index H, Index G, Index D, Index E, Generator& random) {
  return {on_cpu(random_inputs(B, T, S, H, G, D, E, random)), {}};
}

/// The error of one tensor; of what theory cancels, as the gradients of the scores of a single key, by 1.
double error_of(const Tensor& got, const Tensor& exact) {
  const double error = absolute_error(got, exact), size = largest(exact);
  return error == 0 ? 0 : error / std::max(size, 1.0);
}

void check_exact(const ModifiedAttention& c, const ModifiedAttention& given, const Tensor& seed,
                 const Tensor& given_seed) {
  const NamedTensors expected = modified_oracle<double>(c, seed),
                     got = modified_by_kernels(given, given_seed, DType::f64);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CAPTURE(expected[i].first);
    REQUIRE(got[i].second.defined() == expected[i].second.defined());
    if (got[i].second.defined()) CHECK(error_of(got[i].second, expected[i].second) <= 1e-11);
  }
}

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
    CHECK(error <= (name == "y" ? 2 : 3) * naive[name]);
  }
}

// function, weighting, of_heads, has_relative, has_sinks
constexpr Modifiers kEach[] = {{ScoreFunction::softcap},
                               {ScoreFunction::scaled, AttentionWeighting::softmax, true},
                               {ScoreFunction::none, AttentionWeighting::softmax, true, true},
                               {ScoreFunction::none, AttentionWeighting::softmax, false, true},
                               {ScoreFunction::none, AttentionWeighting::softmax, false, false, true},
                               {ScoreFunction::none, AttentionWeighting::sigmoid},
                               {ScoreFunction::softcap, AttentionWeighting::softmax, true, true, true},
                               {ScoreFunction::softcap, AttentionWeighting::sigmoid, true, true}};

std::string described(const Modifiers& m) {
  return "function " + std::to_string(static_cast<int>(m.function)) +
         (m.weighting == AttentionWeighting::sigmoid ? " sigmoid" : "") + (m.of_heads ? " of heads" : "") +
         (m.has_relative ? " relative" : "") + (m.has_sinks ? " sinks" : "");
}

}  // namespace

TEST_SUITE("autograd/kernels/cuda_attention_modifiers") {
  TEST_CASE("random attention, with anything done to its scores, in f64") {
    if (!has_gpu()) return;
    for (int i = 0; i < kCases; ++i) {
      Generator random(static_cast<std::uint64_t>(i));
      AttentionProblem problem = random_problem(random);
      limit_pairs(problem, 8000);
      const AttentionCase plain = case_of(problem);
      const std::string described = text_of(problem);
      CAPTURE(described);
      const ModifiedAttention c = modified(plain, random_modifiers(random), random, DType::f64);
      const Tensor seed = seed_of(c, random, DType::f64);
      ModifiedAttention given = c;
      Tensor given_seed = seed;
      if (problem.junk != 0) {
        const Touched real = touched(c);
        given.in = {with_junk(c.in.query, real.queries, problem), with_junk(c.in.key, real.keys, problem),
                    with_junk(c.in.value, real.keys, problem)};
        given_seed = with_junk(seed, real.queries, problem);
      }
      check_exact(c, given, seed, given_seed);
    }
  }

  TEST_CASE("many tiles of queries and keys, and more distances than a block has") {
    if (!has_gpu()) return;
    for (const bool of_heads : {false, true}) {
      CAPTURE(of_heads);
      for (const auto weighting : {AttentionWeighting::softmax, AttentionWeighting::sigmoid}) {
        Generator random(41);
        AttentionCase plain = simple_case(2, 70, 150, 2, 1, 5, 3, random);
        plain.options.causal = of_heads;
        plain.options.dropout = 0.25;
        plain.options.mask = host_normal({2, 1, 150}, random);
        Modifiers m;
        m.function = ScoreFunction::softcap, m.weighting = weighting, m.of_heads = of_heads;
        m.has_relative = true, m.has_sinks = weighting == AttentionWeighting::softmax;
        const ModifiedAttention c = modified(plain, m, random, DType::f64);
        const Tensor seed = seed_of(c, random, DType::f64);
        check_exact(c, c, seed, seed);
      }
    }
  }

  TEST_CASE("the gradient of an additive mask, broadcast along any axes") {
    if (!has_gpu()) return;
    for (Index repeated = 0; repeated < 16; ++repeated) {
      CAPTURE(repeated);
      Generator random(static_cast<std::uint64_t>(repeated));
      AttentionCase plain = simple_case(2, 35, 40, 2, 2, 4, 4, random);
      plain.options.mask = random_pair_mask({2, 2, 35, 40}, true, repeated, random);
      const ModifiedAttention c = modified(plain, {}, random, DType::f64);
      const Tensor seed = seed_of(c, random, DType::f64);
      check_exact(c, c, seed, seed);
    }
  }

  TEST_CASE("f32 and bf16 errors are at most twice, of gradients three times, those of plain loops") {
    if (!has_gpu()) return;
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
          Generator random(static_cast<std::uint64_t>(100 + draw));
          AttentionCase plain = simple_case(1, 20, 40, 2, 1, 16, 24, random);
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
    if (!has_gpu()) return;
    const AttentionBy by("tensor_cores");
    NamedErrors got, naive;
    for (const Index width : {32, 64, 128, 256}) {
      for (const bool is_masked : {false, true}) {
        Generator random(static_cast<std::uint64_t>(width + is_masked));
        AttentionCase plain = simple_case(1, 40, 70, 2, 1, width, 24, random);
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
    if (!has_gpu()) return;
    const AttentionBy by("tensor_cores");
    for (const bool in_parts : {false, true}) {
      CAPTURE(in_parts);
      for (const Modifiers& m : kEach) {
        CAPTURE(described(m));
        if (m.weighting == AttentionWeighting::sigmoid) continue;
        for (const DType type : {DType::f64, DType::bf16}) {
          Generator random(45);
          const Index B = in_parts ? 2 : 270, S = in_parts ? 300 : 129;
          AttentionCase plain = simple_case(B, in_parts ? 3 : 1, S, 2, in_parts ? 1 : 2, 8, 8, random);
          plain.options.key_lengths = random_ids({B}, S + 1, random);
          plain.options.mask = host_normal({S}, random);
          const ModifiedAttention c = modified(plain, m, random, type);
          const Tensor exact = modified_oracle<double>(c, {}).front().second,
                       got = modified_by_kernels(c, {}, type).front().second;
          if (type == DType::f64) CHECK(relative_error(got, exact) <= 1e-11);
          if (type == DType::bf16) {
            const Tensor naive = modified_oracle<float>(c, {}, ToBf16::factors).front().second;
            CHECK(relative_error(got, exact) <= 2 * relative_error(as_type(naive, type), exact));
          }
        }
      }
    }
  }

  TEST_CASE("bf16 by the fastest kernels that take it") {
    if (!has_gpu()) return;
    for (const Modifiers& m : kEach) {
      CAPTURE(described(m));
      Generator random(46);
      AttentionCase plain = simple_case(1, 64, 70, 2, 1, 64, 40, random);
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
        CHECK(got[exact[i].first] <= (i == 0 ? 2 : 3) * naive[exact[i].first]);
        difference += absolute_error(fastest[i].second, plain_results[i].second);
      }
      CHECK((difference > 0) == (m.weighting == AttentionWeighting::softmax));  // else the plain ones do it
    }
  }

  TEST_CASE("each modifier matters") {
    if (!has_gpu()) return;
    Generator random(42);
    const AttentionCase plain = simple_case(1, 33, 40, 2, 2, 8, 8, random);
    const ModifiedAttention without = modified(plain, {}, random, DType::f64);
    const Tensor seed = seed_of(without, random, DType::f64);
    const NamedTensors before = modified_by_kernels(without, seed, DType::f64);
    for (const Modifiers& m : kEach) {
      CAPTURE(described(m));
      const NamedTensors after =
          modified_by_kernels(modified(plain, m, random, DType::f64), seed, DType::f64);
      for (std::size_t i = 0; i < 4; ++i) CHECK(relative_error(after[i].second, before[i].second) > 1e-3);
    }
  }

  TEST_CASE("the same bits, whatever the order of blocks and threads") {
    if (!has_gpu()) return;
    for (const DType type : {DType::f32, DType::bf16}) {
      Generator random(43);
      AttentionCase plain = simple_case(2, 70, 90, 2, 1, 16, 8, random);
      plain.options.mask = host_normal({90}, random);
      plain.options.dropout = 0.2;
      Modifiers m;
      m.function = ScoreFunction::softcap, m.has_relative = m.has_sinks = true;
      const ModifiedAttention c = modified(plain, m, random, type);
      const Tensor seed = seed_of(c, random, type);
      const NamedTensors first = modified_by_kernels(c, seed, type);
      for (const std::uint64_t order : {0, 7}) {
        const InOrder in(order);
        const NamedTensors again = modified_by_kernels(c, seed, type);
        for (std::size_t i = 0; i < first.size(); ++i) {
          CAPTURE(first[i].first);
          if (first[i].second.defined()) CHECK(absolute_error(again[i].second, first[i].second) == 0);
        }
      }
    }
  }

  TEST_CASE("no queries, no keys: gradients of zero") {
    if (!has_gpu()) return;
    for (const Index queries : {0, 3}) {
      Generator random(44);
      AttentionCase plain = simple_case(1, queries, queries == 0 ? 3 : 0, 2, 1, 4, 4, random);
      plain.options.mask = host_normal({1, 1}, random);
      for (const Modifiers& m : kEach) {
        const ModifiedAttention c = modified(plain, m, random, DType::f64);
        const Tensor seed = seed_of(c, random, DType::f64);
        check_exact(c, c, seed, seed);
      }
    }
  }
}
