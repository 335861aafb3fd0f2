#pragma once

#include <tapeformer/tests/autograd/ops/attention_random.h>
#include <tapeformer/tests/autograd/ops/attention_rounding.h>
#include <tapeformer/tests/reference/check_below.h>
#include <tapeformer/tests/reference/threads.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <iostream>

namespace tapeformer {

// Random attention problems, as many as the environment asks for, by each way of computing them, against
// plain loops in f64. A problem with a wrong result is replaced by simpler ones that also fail, and printed
// as a line that runs it again:
//   TAPEFORMER_ATTENTION_CASES  their number by each way; without it, as many as a test run has time for
//   TAPEFORMER_ATTENTION_SEED   of the first problem; others count up from it
//   TAPEFORMER_ATTENTION_CASE   the text of such a line: a way and its only problem

/// The results of plain loops, and bounds of the errors of rounding.
struct ExpectedAttention {
  OpResult exact, bound;
};

inline ExpectedAttention expected_attention(const AttentionCase& c, const Tensor& seed, DType type,
                                            const Roundings& rounded) {
  const AttentionOracle exact = attention_oracle(c.in, c.options, seed),
                        bound = attention_rounding(c.in, c.options, seed, exact, wide(type), {}, rounded);
  return {{exact.y, joined(exact.gradients, exact.modifiers)},
          {bound.y, joined(bound.gradients, bound.modifiers)}};
}

/// One way to compute attention.
struct AttentionPath {
  std::string name;
  DType type;
  /// Output and gradients, or only the output.
  std::function<OpResult(const AttentionCase& c, const Tensor& seed, const AttentionProblem& problem)> run;
  /// Makes any problem one that this path supports, and leaves supported ones unchanged.
  std::function<void(AttentionProblem&)> fit = [](AttentionProblem&) {};
  Roundings rounded = {};
  /// Whether it takes modifiers of the scores, as inputs after the others.
  bool modifies = false;
  /// Scores that are not products.
  std::function<ExpectedAttention(const AttentionCase& c, const Tensor& seed,
                                  const AttentionProblem& problem)>
      expected = {};
};

/// The operation in `type` on `device`, with the problem's number of threads. Modifiers are in the wide type.
inline OpResult run_problem(const AttentionProblem& problem, const Op& op, std::vector<Tensor> inputs,
                            const std::vector<Tensor>& modifiers, const Tensor& seed, DType type,
                            Device device) {
  for (Tensor& x : inputs) x = x.to(type).to(device);
  for (const Tensor& x : modifiers) inputs.push_back(x.to(wide(type)).to(device));
  const Threads set(static_cast<int>(problem.threads));
  return run_op(op, inputs, seed.to(type).to(device));
}

inline AttentionPath path_by(const std::string& name, DType type, Device device, AttentionFunction function) {
  AttentionPath path{name, type, {}};
  path.run = [=](const AttentionCase& c, const Tensor& seed, const AttentionProblem& problem) {
    const Op op = attention_by(function, moved(c.options, device));
    return run_problem(problem, op, c.in.list(), list_of_modifiers(c.options), seed, type, device);
  };
  path.modifies = true;
  return path;
}

/// Some keys, and some queries that do not see them, get one entry each whose product overflows, where all
/// others have a zero: scores of masked pairs are infinite.
inline void overflow_masked(const AttentionCase& c, double large, Generator& random) {
  const AttentionInputs& in = c.in;
  const LeftIn left_in(moved(c.options, Device::cpu()), in);
  const Index B = in.B(), T = in.T(), H = in.H(), S = in.S(), G = in.G(), D = in.query.size(3);
  double *query = in.query.data<double>(), *key = in.key.data<double>();
  for (Index row = 0; row < B * S * G; ++row) key[row * D] = once_in(3, random) ? large : 0;
  for (Index row = 0; row < B * T * H; ++row) {
    const Index b = row / (T * H), t = row / H % T, h = row % H, g = h / (H / G);
    bool sees_large = false;
    for (Index s = 0; s < S && !sees_large; ++s)
      sees_large = key[((b * S + s) * G + g) * D] != 0 && left_in(b, h, t, s);
    query[row * D] = sees_large ? 0 : once_in(2, random) ? -large : large;
  }
}

/// x with unusable numbers in the rows of its last axis that are not real.
inline Tensor with_junk(const Tensor& x, const std::vector<bool>& is_real, const AttentionProblem& problem) {
  constexpr double kJunk[] = {kNan, kInfinity, -kInfinity, 3e38};
  constexpr Index kKinds = 4;
  Generator random(static_cast<std::uint64_t>(problem.seed), 100);
  return filled(x.shape(), [&](Index i) {
    if (is_real[static_cast<std::size_t>(i / x.size(-1))]) return x.at(i);
    return kJunk[problem.junk <= kKinds ? problem.junk - 1 : random.below(kKinds)];
  });
}

/// The inputs with such junk in masked rows.
inline AttentionInputs with_junk(const AttentionCase& c, const AttentionProblem& problem) {
  const Touched real = touched(c);
  const AttentionInputs in = on_cpu(c.in);
  return {with_junk(in.query, real.queries, problem), with_junk(in.key, real.keys, problem),
          with_junk(in.value, real.keys, problem)};
}

/// Describes how a result differs from the expected one by more than roundings; empty if it does not.
inline std::string wrong_in(const OpResult& got, const ExpectedAttention& expected,
                            const AttentionPath& path) {
  const double most = path.type == DType::f64 ? 2 : 1;  // the loops round as much
  std::string wrong;
  const auto compare = [&](const char* name, const Tensor& x, const Tensor& of_loops, const Tensor& allowed) {
    const double share = over_bound(x, of_loops, allowed);
    note_margin(share, most, "search:" + path.name + ' ' + name);
    if (!(share <= most)) wrong += std::string(name) + " off by " + std::to_string(share) + " bounds; ";
  };
  compare("y", got.y, expected.exact.y, expected.bound.y);
  constexpr const char* kNames[] = {"dquery", "dkey", "dvalue"};
  for (std::size_t i = 0; i < got.gradients.size(); ++i)
    compare(i < 3 ? kNames[i] : ("gradient " + std::to_string(i)).c_str(), got.gradients[i],
            expected.exact.gradients[i], expected.bound.gradients[i]);
  return wrong;
}

/// Describes how a path fails on a problem.
inline std::string wrong_with(const AttentionPath& path, const AttentionProblem& problem) {
  AttentionCase c = case_of(problem);
  Generator random(static_cast<std::uint64_t>(problem.seed), 101);
  c.in = on_cpu(c.in);
  if (problem.overflow != 0) overflow_masked(c, path.type == DType::f64 ? 1e200 : 1e30, random);
  c.in = as_type(c.in, path.type);
  for (Tensor* x : modifiers_of(c.options)) *x = as_type(*x, wide(path.type));
  const Tensor seed =
      as_type(random_normal({c.in.B(), c.in.T(), c.in.H(), c.in.value.size(3)}, random), path.type);
  const ExpectedAttention expected =
      path.expected ? path.expected(c, seed, problem) : expected_attention(c, seed, path.type, path.rounded);
  OpResult got;
  try {
    AttentionCase given = c;
    Tensor given_seed = seed;
    if (problem.junk != 0) {
      given.in = with_junk(c, problem);
      given_seed = with_junk(seed, touched(c).queries, problem);
    }
    got = path.run(given, given_seed, problem);
  } catch (const std::exception& error) {
    return std::string("throws ") + error.what();
  }
  return wrong_in(got, expected, path);
}

/// The simplest problem found on which the path still fails: each number in turn is made as simple as it may
/// be, or half as far from there, or one less, with the same seed or another.
inline AttentionProblem simplest_wrong(const AttentionPath& path, AttentionProblem problem) {
  const auto replace = [&](const ProblemField& field, Index value) {
    AttentionProblem next = problem;
    next.*field.value = value;
    path.fit(next);
    const auto distance = [&](const AttentionProblem& p) {
      return std::abs(p.*field.value - field.simplest);
    };
    if (distance(next) >= distance(problem)) return false;  // no simpler once it is supported
    for (const bool other : {false, true}) {
      if (other) next.seed = problem.seed % 1000 + 1;
      if (wrong_with(path, next).empty()) continue;
      problem = next;
      return true;
    }
    return false;
  };
  for (bool again = true; again;) {
    again = false;
    for (const ProblemField& field : kProblemFields) {
      const Index value = problem.*field.value, simplest = field.simplest;
      if (value == simplest) continue;
      again = replace(field, simplest) || replace(field, (value + simplest) / 2) ||
              replace(field, value > simplest ? value - 1 : value + 1) || again;
    }
  }
  return problem;
}

/// Reports a failure and how to reproduce it.
inline void report_wrong(const AttentionPath& path, const AttentionProblem& problem) {
  const std::string line = path.name + " " + text_of(problem);
  FAIL_CHECK(wrong_with(path, problem) << "\n  TAPEFORMER_ATTENTION_CASE='" << line << "'");
}

/// Halves the largest number of rows or heads until at most that many pairs are left, where each takes long.
inline void limit_pairs(AttentionProblem& p, Index most) {
  while (p.batch * p.groups * p.repeats * p.queries * p.keys > most) {
    Index* const sizes[] = {&p.batch, &p.groups, &p.repeats, &p.queries, &p.keys};
    Index& largest = **std::max_element(std::begin(sizes), std::end(sizes),
                                        [](const Index* a, const Index* b) { return *a < *b; });
    largest = (largest + 1) / 2;
  }
}

/// `cases` problems, unless the environment says otherwise.
inline void search(const AttentionPath& path, int cases, bool is_long = false) {
  if (const char* const only = std::getenv("TAPEFORMER_ATTENTION_CASE"); only != nullptr) {
    const std::string text = only, name = text.substr(0, text.find(" seed="));
    if (name != path.name) return;
    const AttentionProblem problem = problem_of(text.substr(name.size()));
    if (!wrong_with(path, problem).empty()) return report_wrong(path, problem);
    std::cout << text << " is right" << std::endl;
    return;
  }
  const auto number = [](const char* variable, long long otherwise) {
    const char* const text = std::getenv(variable);
    return text == nullptr ? otherwise : std::stoll(text);
  };
  const long long asked = number("TAPEFORMER_ATTENTION_CASES", 0), count = asked > 0 ? asked : cases,
                  first = number("TAPEFORMER_ATTENTION_SEED", 1);
  bool all_right = true;
  for (long long i = 0; i < count && all_right; ++i) {
    Generator random(test_seed(static_cast<std::uint64_t>(first + i)));
    AttentionProblem problem = random_problem(random, is_long);
    if (!path.modifies) problem.function = problem.relative = problem.sinks = problem.sigmoid = 0;
    path.fit(problem);
    all_right = wrong_with(path, problem).empty();
    if (!all_right) report_wrong(path, simplest_wrong(path, problem));
  }
  if (asked > 0 && all_right) std::cout << path.name << ": " << count << " random problems" << std::endl;
}

}  // namespace tapeformer
