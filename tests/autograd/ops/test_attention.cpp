#include <tapeformer/autograd/ops/attention.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/tests/autograd/ops/op_case.h>

#include <cmath>

using namespace tapeformer;

namespace {

struct Inputs {
  Tensor query, key, value;
};

Inputs random_inputs(Index B, Index T, Index S, Index H, Index D, Index E, Generator& random) {
  return {random_normal({B, T, H, D}, random), random_normal({B, S, H, D}, random),
          random_normal({B, S, H, E}, random)};
}

/// Attention and its gradients in plain loops. `bias` [B, H, T, S] is added to the scores; minus infinity
/// forbids.
OpResult oracle(const Inputs& in, const Tensor& bias, double scale, const Tensor& dy) {
  const Index B = in.query.size(0), T = in.query.size(1), H = in.query.size(2), D = in.query.size(3);
  const Index S = in.key.size(1), E = in.value.size(3);
  OpResult result{Tensor::zeros({B, T, H, E}, DType::f64), {}};
  for (const Tensor& x : {in.query, in.key, in.value}) {
    result.gradients.push_back(Tensor::zeros(x.shape(), DType::f64));
  }
  double *y = result.y.data<double>(), *dq = result.gradients[0].data<double>();
  double *dk = result.gradients[1].data<double>(), *dv = result.gradients[2].data<double>();
  std::vector<double> weights(static_cast<std::size_t>(S)), dweights(weights);
  for (Index row = 0; row < B * H * T; ++row) {
    const Index b = row / (H * T), h = row / T % H, t = row % T;
    const auto at_t = [&](Index width) { return ((b * T + t) * H + h) * width; };
    const auto at_s = [&](Index s, Index width) { return ((b * S + s) * H + h) * width; };
    double total = 0, product = 0;
    for (Index s = 0; s < S; ++s) {
      double score = bias.at(row * S + s);
      for (Index d = 0; d < D; ++d) score += scale * in.query.at(at_t(D) + d) * in.key.at(at_s(s, D) + d);
      weights[static_cast<std::size_t>(s)] = std::exp(score);
      total += std::exp(score);
    }
    if (total == 0) continue;  // may attend to nothing
    for (Index s = 0; s < S; ++s) {
      double &w = weights[static_cast<std::size_t>(s)], &dw = dweights[static_cast<std::size_t>(s)];
      w /= total;
      dw = 0;
      for (Index e = 0; e < E; ++e) {
        y[at_t(E) + e] += w * in.value.at(at_s(s, E) + e);
        dv[at_s(s, E) + e] += w * dy.at(at_t(E) + e);
        dw += dy.at(at_t(E) + e) * in.value.at(at_s(s, E) + e);
      }
      product += w * dw;
    }
    for (Index s = 0; s < S; ++s) {
      const auto i = static_cast<std::size_t>(s);
      const double dscore = scale * weights[i] * (dweights[i] - product);
      for (Index d = 0; d < D; ++d) {
        dq[at_t(D) + d] += dscore * in.key.at(at_s(s, D) + d);
        dk[at_s(s, D) + d] += dscore * in.query.at(at_t(D) + d);
      }
    }
  }
  return result;
}

Op attention(const AttentionOptions& options) {
  return [options](const auto& in) { return scaled_dot_product_attention(in[0], in[1], in[2], options); };
}

/// Compares attention with the oracle, whose bias is minus infinity where `may_attend(b, h, t, s)` is false.
template <class F>
void check_masked(const Inputs& in, const AttentionOptions& options, const F& may_attend, Generator& random) {
  const Index B = in.query.size(0), T = in.query.size(1), H = in.query.size(2), S = in.key.size(1);
  const Tensor bias = filled({B, H, T, S}, [&](Index i) {
    return may_attend(i / S / T / H, i / S / T % H, i / S % T, i % S) ? 0 : -kInfinity;
  });
  const Tensor seed = random_normal({B, T, H, in.value.size(3)}, random);
  const double scale = 1 / std::sqrt(static_cast<double>(in.query.size(3)));
  check_op(attention(options), {in.query, in.key, in.value}, seed, oracle(in, bias, scale, seed));
}

}  // namespace

TEST_SUITE("autograd/ops/attention") {
  TEST_CASE("one query worked by hand: scores ln 3 and 0 give weights 3/4 and 1/4") {
    const Tensor query = values({2, 0}, {1, 1, 1, 2}),
                 key = values({std::log(3.0) / 2, 9, 0, 9}, {1, 2, 1, 2});
    const Tensor value = values({4, 8}, {1, 2, 1, 1});
    Tensor weights;
    AttentionOptions options;
    options.scale = 1, options.weights = &weights;
    const OpResult got = run_op(attention(options), {query, key, value}, values({1}, {1, 1, 1, 1}));
    CHECK(got.y.item() == doctest::Approx(5).epsilon(1e-15));
    CHECK(relative_error(weights, values({0.75, 0.25}, {1, 1, 1, 2})) < 1e-15);
    // dscores = w (v - 5) = (-3/4, 3/4)
    CHECK(relative_error(got.gradients[0], values({-0.375 * std::log(3.0), 0}, {1, 1, 1, 2})) < 1e-14);
    CHECK(relative_error(got.gradients[1], values({-1.5, 0, 1.5, 0}, {1, 2, 1, 2})) < 1e-14);
    CHECK(relative_error(got.gradients[2], values({0.75, 0.25}, {1, 2, 1, 1})) < 1e-15);
  }

  TEST_CASE("values and gradients equal plain loops at every length") {
    Generator random(1);
    for (const Index S : {1, 31, 32, 33, 257}) {
      for (const Index T : {1, 5, 33}) {
        CAPTURE(S);
        CAPTURE(T);
        check_masked(
            random_inputs(2, T, S, 3, 5, 7, random), {}, [](Index, Index, Index, Index) { return true; },
            random);
      }
    }
  }

  TEST_CASE("causal is aligned at the last query and the last key") {
    Generator random(2);
    AttentionOptions options;
    options.causal = true;
    for (const auto& [T, S] : {std::pair<Index, Index>{6, 6}, {3, 9}, {1, 4}, {7, 4}}) {
      CAPTURE(T);
      CAPTURE(S);
      // With more queries than keys the first ones see nothing.
      const Index offset = S - T;
      check_masked(
          random_inputs(2, T, S, 2, 3, 5, random), options,
          [&](Index, Index, Index t, Index s) { return s <= t + offset; }, random);
    }
  }

  TEST_CASE("a boolean mask broadcasts, and all masks apply together") {
    Generator random(3);
    const Inputs in = random_inputs(2, 5, 7, 3, 4, 6, random);
    for (const Shape& shape : {Shape{7}, Shape{5, 7}, Shape{3, 1, 7}, Shape{2, 1, 5, 7}, Shape{2, 3, 5, 7}}) {
      CAPTURE(shape.text());
      AttentionOptions options;
      options.mask = random_mask(shape, random);
      const Shape scores{2, 3, 5, 7};
      const auto allows = [&](Index b, Index h, Index t, Index s) {
        return broadcast_at(options.mask, scores, ((b * 3 + h) * 5 + t) * 7 + s) != 0;
      };
      check_masked(in, options, allows, random);
      options.causal = true;
      options.key_mask = random_mask({2, 7}, random), options.query_mask = random_mask({2, 5}, random);
      check_masked(
          in, options,
          [&](Index b, Index h, Index t, Index s) {
            return allows(b, h, t, s) && s <= t + 2 && options.key_mask.at(b * 7 + s) != 0 &&
                   options.query_mask.at(b * 5 + t) != 0;
          },
          random);
    }
  }

  TEST_CASE("a floating mask is added to the scores and has a gradient") {
    Generator random(4);
    const Inputs in = random_inputs(2, 3, 4, 2, 5, 3, random);
    const Tensor bias = random_normal({2, 3, 4}, random), seed = random_normal({2, 3, 2, 3}, random);
    AttentionOptions options;
    options.mask = bias, options.scale = 0.7;
    const Tensor whole = filled({2, 2, 3, 4}, [&](Index i) { return bias.at(i % 24); });
    const OpResult got = run_op(attention(options), {in.query, in.key, in.value}, seed);
    const OpResult expected = oracle(in, whole, 0.7, seed);
    CHECK(relative_error(got.y, expected.y) < 1e-13);
    for (std::size_t i = 0; i < 3; ++i)
      CHECK(relative_error(got.gradients[i], expected.gradients[i]) < 1e-13);
    check_both_orders("attention, floating mask",
                      [&] {
                        return attention(options)({in.query, in.key, in.value});
                      },
                      {{"query", in.query}, {"value", in.value}, {"mask", bias}});
  }

  TEST_CASE("what padding masks leave out may hold anything and gets exactly zero gradient") {
    Generator random(5);
    for (const double junk : {kNan, kInfinity, -kInfinity, 3e38, 1.0}) {
      CAPTURE(junk);
      for (const DType type : {DType::f64, DType::f32}) {
        Inputs in = random_inputs(2, 4, 6, 2, 3, 5, random);
        AttentionOptions options;
        options.key_mask = booleans({1, 1, 1, 1, 1, 1, 1, 1, 0, 1, 0, 0}, {2, 6});
        options.query_mask = booleans({1, 1, 1, 1, 1, 1, 1, 0}, {2, 4});
        const Tensor seed = random_normal({2, 4, 2, 5}, random);
        const OpResult clean = run_op(attention(options), {in.query, in.key, in.value}, seed);
        const auto spoil = [&](const Tensor& x, const Tensor& mask) {
          const Index width = x.size(2) * x.size(3);
          for (Index i = 0; i < x.elements(); ++i) {
            if (mask.at(i / width) == 0) x.data<double>()[i] = junk;
          }
          return x.to(type);
        };
        in = {spoil(in.query, options.query_mask), spoil(in.key, options.key_mask),
              spoil(in.value, options.key_mask)};
        const OpResult got = run_op(attention(options), {in.query, in.key, in.value}, seed);
        const double most = type == DType::f64 ? 1e-13 : 1e-5;
        CHECK(relative_error(got.y, clean.y) < most);
        for (std::size_t i = 0; i < 3; ++i) {
          CHECK(relative_error(got.gradients[i], clean.gradients[i]) < most);
          const Tensor& mask = i == 0 ? options.query_mask : options.key_mask;
          const Tensor& dx = got.gradients[i];
          const Index width = dx.size(2) * dx.size(3);
          for (Index k = 0; k < dx.elements(); ++k) {
            if (mask.at(k / width) == 0) REQUIRE(dx.at(k) == 0);
          }
        }
        for (Index k = 0; k < 10; ++k) CHECK(got.y.at(7 * 10 + k) == 0);  // the query that is not real
      }
    }
  }

  TEST_CASE("a query that may attend to nothing gives zeros and no gradient") {
    Generator random(6);
    const Inputs in = random_inputs(1, 2, 3, 1, 2, 2, random);
    for (const bool additive : {false, true}) {
      AttentionOptions options;
      options.mask = booleans({0, 0, 0, 1, 1, 1}, {2, 3});
      if (additive) options.mask = values({-kInfinity, -kInfinity, -kInfinity, 0, 0, 0}, {2, 3});
      const OpResult got =
          run_op(attention(options), {in.query, in.key, in.value}, random_normal({1, 2, 1, 2}, random));
      for (Index i = 0; i < 2; ++i) {
        CHECK(got.y.at(i) == 0);
        CHECK(got.gradients[0].at(i) == 0);
        CHECK(got.gradients[0].at(2 + i) != 0);
      }
    }
  }

  TEST_CASE("dropout acts on the weights; the weights handed out are those before it") {
    Generator random(7);
    const Inputs in = random_inputs(2, 4, 40, 2, 3, 5, random);
    Tensor weights;
    AttentionOptions options;
    options.dropout = 0.4, options.dropout_key = {1, 2, 3}, options.weights = &weights;
    const Tensor y = attention(options)({in.query, in.key, in.value});
    const Tensor kept = dropout(weights, 0.4, {1, 2, 3});
    const Tensor expected = filled({2, 4, 2, 5}, [&](Index i) {
      const Index e = i % 5, h = i / 5 % 2, t = i / 10 % 4, b = i / 40;
      double sum = 0;
      for (Index s = 0; s < 40; ++s) {
        sum += kept.at(((b * 2 + h) * 4 + t) * 40 + s) * in.value.at(((b * 40 + s) * 2 + h) * 5 + e);
      }
      return sum;
    });
    CHECK(relative_error(y, expected) < 1e-13);
    double total = 0;
    for (Index s = 0; s < 40; ++s) total += weights.at(s);
    CHECK(total == doctest::Approx(1));
  }

  TEST_CASE("one tensor may be query, key and value") {
    Generator random(8);
    const Tensor x = random_normal({2, 4, 2, 3}, random), seed = random_normal({2, 4, 2, 3}, random);
    const OpResult got =
        run_op([](const auto& in) { return scaled_dot_product_attention(in[0], in[0], in[0]); }, {x}, seed);
    const OpResult parts =
        oracle({x, x, x}, Tensor::zeros({2, 2, 4, 4}, DType::f64), 1 / std::sqrt(3.0), seed);
    CHECK(relative_error(got.gradients[0], parts.gradients[0] + parts.gradients[1] + parts.gradients[2]) <
          1e-13);
  }

  TEST_CASE("nothing in, nothing out; no keys give zeros") {
    Generator random(9);
    const auto shape_of = [&](Index B, Index T, Index S) {
      const Inputs in = random_inputs(B, T, S, 2, 3, 5, random);
      return attention({})({in.query, in.key, in.value}).shape();
    };
    CHECK(shape_of(0, 3, 4) == Shape{0, 3, 2, 5});
    CHECK(shape_of(2, 0, 4) == Shape{2, 0, 2, 5});
    const Inputs in = random_inputs(1, 2, 0, 1, 3, 2, random);
    CHECK(attention({})({in.query, in.key, in.value}).to_vector<double>() == std::vector<double>(4, 0));
  }

  TEST_CASE("gradients of both orders") {
    Generator random(10);
    const Inputs in = random_inputs(2, 3, 5, 2, 4, 3, random);
    const std::vector<std::pair<std::string, Tensor>> inputs{
        {"query", in.query}, {"key", in.key}, {"value", in.value}};
    const auto check = [&](const char* name, const AttentionOptions& options) {
      check_both_orders(
          name,
          [&] {
            return attention(options)({in.query, in.key, in.value});
          },
          inputs);
    };
    AttentionOptions options;
    check("attention", options);
    options.causal = true;
    check("attention, causal", options);
    options.causal = false;
    options.key_mask = booleans({1, 1, 1, 1, 1, 1, 1, 0, 0, 0}, {2, 5});
    options.query_mask = booleans({1, 1, 1, 1, 0, 1}, {2, 3});
    check("attention, padding", options);
    options.dropout = 0.3, options.dropout_key = {1, 2, 3};
    check("attention, padding and dropout", options);
  }

  TEST_CASE("golden values") {
    const Golden golden("ops");
    for (const char* name : {"attention", "attention_causal", "attention_causal_last", "attention_mask",
                             "attention_padding", "attention_additive", "attention_scale"}) {
      const auto given = golden.options(name);
      check_golden(name, {"query", "key", "value"}, [&](const auto& in) {
        AttentionOptions options;
        options.causal = given.value("causal", false);
        options.scale = given.value("scale", 0.0);
        const std::vector<std::string> arguments = golden.names(name, "in.");
        if (std::count(arguments.begin(), arguments.end(), "mask") > 0) {
          options.mask = golden.tensor(name, "in.mask", in[0].dtype());
        }
        return scaled_dot_product_attention(in[0], in[1], in[2], options);
      });
    }
    const Tensor mask = golden.tensor("attention_padding", "in.mask");
    check_golden("attention_padding", {"query", "key", "value"}, [&](const auto& in) {
      AttentionOptions options;
      options.key_mask = mask.alias({2, 9});
      return scaled_dot_product_attention(in[0], in[1], in[2], options);
    });
  }
}
