#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/linear_attention.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/tests/autograd/ops/op_case.h>
#include <tapeformer/tests/reference/rounding.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>

using namespace tapeformer;

namespace {

/// Which of the optional inputs there are: the kinds of the papers, and others.
struct Kind {
  const char* name;
  bool decays, by_channel, deltas, starts;
};
constexpr Kind kKinds[] = {
    {"linear", false, false, false, false},      {"linear from a state", false, false, false, true},
    {"gla", true, true, false, false},           {"one decay", true, false, false, true},
    {"deltanet", false, false, true, false},     {"deltanet from a state", false, false, true, true},
    {"gated deltanet", true, false, true, true}, {"kda", true, true, true, true},
};

struct Sizes {
  Index B, T, H, D, E;
};

/// query, key (normal / sqrt(D), so that recalled values stay small), value, and the kind's other inputs.
std::vector<Tensor> random_inputs(const Kind& kind, const Sizes& n, Generator& random) {
  const Shape keys{n.B, n.T, n.H, n.D};
  const double deviation = 1 / std::sqrt(static_cast<double>(n.D));
  std::vector<Tensor> in = {random_normal(keys, random), deviation * random_normal(keys, random),
                            random_normal({n.B, n.T, n.H, n.E}, random)};
  if (kind.decays) {
    in.push_back(random_uniform(kind.by_channel ? keys : Shape{n.B, n.T, n.H}, -2, 0, random));
    for (Index i = 0; i < in.back().elements(); i += 7) in.back().data<double>()[i] *= 30;  // forgets all
  }
  if (kind.deltas) in.push_back(random_uniform({n.B, n.T, n.H}, 0, 1, random));
  if (kind.starts) in.push_back(random_normal({n.B, n.H, n.D, n.E}, random));
  return in;
}

LinearAttentionOptions options_of(const Kind& kind, const std::vector<Tensor>& in) {
  LinearAttentionOptions options;
  std::size_t next = 3;
  if (kind.decays) options.log_decay = in[next++];
  if (kind.deltas) options.beta = in[next++];
  if (kind.starts) options.state = in[next++];
  return options;
}

/// y and the last state, joined.
Tensor both(const Kind& kind, const std::vector<Tensor>& in, bool composed) {
  LinearAttentionOptions options = options_of(kind, in);
  Tensor last;
  options.last_state = &last;
  const Tensor y = (composed ? composed_linear_attention : linear_attention)(in[0], in[1], in[2], options);
  return concat({reshape(y, {y.elements()}), reshape(last, {last.elements()})}, 0);
}

Tensor call(const Kind& kind, const std::vector<Tensor>& in) {
  return linear_attention(in[0], in[1], in[2], options_of(kind, in));
}

}  // namespace

TEST_CASE("three tokens worked by hand") {
  // One head of one key and one value: S = 1 * 3, then half of it corrected towards 5, then towards 1.
  const Shape row{1, 3, 1, 1};
  LinearAttentionOptions options;
  options.beta = values({1, 0.5, 1}, {1, 3, 1});
  const Tensor ones = values({1, 1, 1}, row);
  CHECK(linear_attention(ones, ones, values({3, 5, 1}, row), options).to_vector<double>() ==
        std::vector<double>{3, 4, 1});
  options.beta = {};
  options.log_decay = values({0, std::log(0.5), std::log(0.25)}, {1, 3, 1});
  Tensor last;
  options.last_state = &last, options.scale = 2;
  const Tensor y = linear_attention(ones, ones, values({4, 6, 1}, row), options);
  CHECK_BELOW(relative_error(y, values({8, 16, 6}, row)), kFewRoundings);
  CHECK(last.shape() == Shape{1, 1, 1, 1});
  CHECK_BELOW(relative_error(last, values({3}, last.shape())), kFewRoundings);
}

TEST_CASE("values, the last state and gradients are those of plain operations at every size") {
  Generator random(test_seed(1));
  std::vector<Sizes> all = {{1, 1, 1, 1, 1}, {2, 5, 3, 4, 7}, {1, 16, 1, 8, 8}, {2, 17, 1, 3, 5}};
  for (const Index size : {31, 32, 33}) all.push_back({1, size, 2, size, size + 2});
  all.push_back({1, 257, 1, 6, 5});
  for (const Kind& kind : kKinds) {
    for (const Sizes& n : all) {
      CAPTURE(kind.name);
      CAPTURE(n.T);
      CAPTURE(n.D);
      const std::vector<Tensor> in = random_inputs(kind, n, random);
      const Tensor seed = random_normal({n.B * n.H * (n.T + n.D) * n.E}, random);
      const auto run = [&](bool composed) {
        return run_op([&](const std::vector<Tensor>& x) { return both(kind, x, composed); }, in, seed);
      };
      const OpResult got = run(false), expected = run(true);
      CHECK_BELOW(relative_error(got.y, expected.y), 1e-12);
      for (std::size_t i = 0; i < in.size(); ++i) {
        CAPTURE(i);
        CHECK_BELOW(relative_error(got.gradients[i], expected.gradients[i]), 1e-11);
      }
    }
  }
}

TEST_CASE("in f32 errors are at most three times those of plain operations, of gradients six times") {
  Generator random(test_seed(2));
  for (const Kind& kind : kKinds) {
    CAPTURE(kind.name);
    const Sizes n{1, 40, 2, 24, 20};
    // Errors of y and of each gradient, summed over the problems: their ratio, 1 for y and up to 2 for the
    // gradients of decays, varies by a tenth.
    std::vector<double> plain_errors(7), errors(7);
    const int problems = default_device().is_cuda() ? 5 : 15;  // which take an emulator seconds
    for (int problem = 0; problem < problems; ++problem) {
      const std::vector<Tensor> rounded = in_type(random_inputs(kind, n, random), DType::f32),
                                exact_in = in_type(rounded, DType::f64);
      const Index outputs = n.B * n.T * n.H * n.E + n.B * n.H * n.D * n.E;
      const Tensor seed = random_normal({outputs}, random, DType::f32);
      const auto run = [&](const std::vector<Tensor>& x, bool composed) {
        return run_op([&](const std::vector<Tensor>& in) { return both(kind, in, composed); }, x, seed);
      };
      const OpResult exact = run(exact_in, true), plain = run(rounded, true), got = run(rounded, false);
      plain_errors[6] += rms_error(plain.y, exact.y);
      errors[6] += rms_error(got.y, exact.y);
      for (std::size_t i = 0; i < rounded.size(); ++i) {
        plain_errors[i] += rms_error(plain.gradients[i], exact.gradients[i]);
        errors[i] += rms_error(got.gradients[i], exact.gradients[i]);
      }
    }
    CHECK_BELOW(errors[6], 3 * plain_errors[6]);
    for (std::size_t i = 0; i < 6; ++i) {
      CAPTURE(i);
      CHECK_BELOW(errors[i], 6 * plain_errors[i]);
    }
  }
}

TEST_CASE("golden values") {
  const Golden golden("linear_attention");
  for (const char* name : {"gla", "deltanet", "kda", "gated_deltanet"}) {
    CAPTURE(name);
    std::vector<std::string> names = {"query", "key", "value"};
    const std::vector<std::string> has = golden.names(name, "in.");
    const auto add = [&](const char* input) {
      if (std::find(has.begin(), has.end(), input) != has.end()) names.push_back(input);
      return names.back() == input;
    };
    Kind kind{name, add("log_decay"), false, add("beta"), add("state")};
    for (const bool composed : {false, true})
      check_golden(
          golden, name, names, [&](const auto& in) { return both(kind, in, composed); }, 1e-13);
  }
}

TEST_CASE("gradients of both orders, added to another use's") {
  Generator random(test_seed(3));
  for (const Kind& kind : kKinds) {
    std::vector<Tensor> in = random_inputs(kind, {2, 4, 2, 3, 2}, random);
    if (kind.decays) in[3] = random_uniform(in[3].shape(), -2, -0.1, random);
    std::vector<std::pair<std::string, Tensor>> named;
    for (std::size_t i = 0; i < in.size(); ++i) named.emplace_back("input " + std::to_string(i), in[i]);
    check_both_orders(
        std::string("linear_attention, ") + kind.name,
        [&] {
          const Tensor y = call(kind, in);
          return concat({reshape(y * y, {y.elements()}), both(kind, in, false)}, 0);
        },
        named);
  }
}

TEST_CASE("the same tokens in pieces, each from the last one's state") {
  Generator random(test_seed(4));
  for (const Kind& kind : kKinds) {
    CAPTURE(kind.name);
    std::vector<Tensor> in = random_inputs(kind, {2, 75, 2, 9, 6}, random);
    const Tensor whole = call(kind, in);
    LinearAttentionOptions options = options_of(kind, in);
    const LinearAttentionOptions all = options;
    Index from = 0;
    for (const Index tokens : {1, 1, 0, 20, 53}) {
      const auto part = [&](const Tensor& x) { return x.defined() ? slice(x, 1, from, tokens) : x; };
      options.log_decay = part(all.log_decay), options.beta = part(all.beta);
      options.last_state = &options.state;
      const Tensor y = linear_attention(part(in[0]), part(in[1]), part(in[2]), options);
      if (tokens > 0) CHECK_BELOW(relative_error(y, part(whole)), 1e-13);
      from += tokens;
    }
  }
}

TEST_CASE("a decay of 0 starts over, whatever the state held") {
  Generator random(test_seed(5));
  for (const bool by_channel : {false, true}) {
    const Kind kind{"forgets", true, by_channel, true, true};
    std::vector<Tensor> in = random_inputs(kind, {1, 40, 2, 6, 5}, random);
    const Index numbers = in[3].elements() / 40;
    std::fill_n(in[3].data<double>() + 19 * numbers, numbers, -kInfinity);
    const Tensor whole = call(kind, in);
    std::vector<Tensor> rest;
    for (std::size_t i = 0; i < 5; ++i) rest.push_back(slice(in[i], 1, 19, 21));
    rest.push_back(Tensor::zeros(in[5].shape(), DType::f64));
    std::fill_n(rest[3].data<double>(), numbers, 0.0);
    CHECK_BELOW(relative_error(slice(whole, 1, 19, 21), call(kind, rest)), 1e-13);
  }
}

TEST_CASE("nothing in, nothing out, and a gradient of zero") {
  for (const Shape& shape : {Shape{0, 4, 2, 3}, Shape{2, 0, 2, 3}, Shape{2, 4, 0, 3}}) {
    const Tensor x = Tensor::empty(shape, DType::f64);
    const OpResult got =
        run_op([](const std::vector<Tensor>& in) { return call(kKinds[0], in); }, {x, x, x}, x);
    CHECK(got.y.shape() == shape);
    CHECK(got.gradients[0].shape() == shape);
  }
  const Tensor none = Tensor::empty({2, 0, 2, 3}, DType::f64);
  Generator random(test_seed(6));
  LinearAttentionOptions options;
  options.state = random_normal({2, 2, 3, 3}, random);
  Tensor last;
  options.last_state = &last;
  linear_attention(none, none, none, options);
  CHECK(last.to_vector<double>() == options.state.to_vector<double>());
}

TEST_CASE("what does not fit is refused") {
  const Tensor q = Tensor::zeros({2, 4, 3, 5}), v = Tensor::zeros({2, 4, 3, 6});
  const auto refused = [&](const LinearAttentionOptions& options, const std::string& rule, const char* got) {
    const std::string text = message_of<ShapeError>([&] { linear_attention(q, q, v, options); });
    CHECK(text.find("[linear_attention] " + rule + "; got query=f32[2,4,3,5], key=f32[2,4,3,5]") == 0);
    CHECK(text.find(got) != std::string::npos);
  };
  refused({Tensor::zeros({2, 4, 3, 6}), {}, {}}, "log_decay must be [B, T, H] or [B, T, H, D]",
          "log_decay=f32[2,4,3,6]");
  refused({{}, Tensor::zeros({2, 4}), {}}, "beta must be [B, T, H]", "beta=f32[2,4]");
  refused({{}, {}, Tensor::zeros({2, 3, 6, 5})}, "state must be [B, H, D, E]", "state=f32[2,3,6,5]");
  CHECK(message_of<ShapeError>([&] { linear_attention(q, v, v); }) ==
        "[linear_attention] query and key must be [B, T, H, D], value [B, T, H, E], D and E at least 1; got "
        "query=f32[2,4,3,5], key=f32[2,4,3,6], value=f32[2,4,3,6], log_decay=undefined, beta=undefined, "
        "state=undefined; try the same number of heads in all of them");
  LinearAttentionOptions options;
  options.beta = Tensor::zeros({2, 4, 3}, DType::f64);
  CHECK_THROWS_AS(linear_attention(q, q, v, options), DTypeError);
}
