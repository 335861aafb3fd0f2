#include <tapeformer/autograd/ops/loss.h>
#include <tapeformer/autograd/ops/matmul.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/autograd/profile.h>
#include <tapeformer/tests/autograd/ops/op_case.h>

#include <nlohmann/json.hpp>

#include <algorithm>

using namespace tapeformer;

namespace {

LinearCrossEntropyOptions options_of(Index chunk, double smoothing = 0, Index ignored = -1,
                                     double softcap = 0) {
  LinearCrossEntropyOptions options;
  options.chunk = chunk, options.smoothing = smoothing, options.ignored = ignored, options.softcap = softcap;
  return options;
}

/// in is x, weight and, unless left out, bias.
Op fused(const Tensor& targets, const LinearCrossEntropyOptions& options) {
  return [=](const std::vector<Tensor>& in) {
    return linear_cross_entropy(in[0], in[1], in.size() > 2 ? in[2] : Tensor(), targets, options);
  };
}
Op plain(const Tensor& targets, const CrossEntropyOptions& options) {
  return [=](const std::vector<Tensor>& in) {
    return cross_entropy(linear(in[0], in[1], in.size() > 2 ? in[2] : Tensor()), targets, options);
  };
}

/// x [rows, width], weight [classes, width], bias [classes]
std::vector<Tensor> inputs_of(Index rows, Index width, Index classes, bool biased, Generator& random) {
  std::vector<Tensor> inputs{random_normal({rows, width}, random), random_normal({classes, width}, random)};
  if (biased) inputs.push_back(random_normal({classes}, random));
  return inputs;
}

Tensor seed() { return Tensor::scalar(-3, DType::f64); }

}  // namespace

TEST_CASE("loss and every gradient equal the plain path's, whatever the chunk") {
  Generator random(test_seed(1));
  int problem = 0;  // whose number says which options it has
  for (const Index rows : {1, 9, 33}) {
    for (const Index width : {5, 64}) {  // fewer and more than the rows: dweight or dz is kept
      for (const Index classes : {1, 2, 31, 32, 33, 257}) {
        const std::vector<Tensor> inputs =
            inputs_of(rows, width, classes, (problem / 12 + problem) % 2 != 0, random);
        const double smoothing = problem / 2 % 2 != 0 ? 0.2 : 0, softcap = problem / 4 % 2 != 0 ? 2 : 0;
        ++problem;
        const Tensor targets = ids_with_gaps({rows}, classes, random);
        const OpResult expected = run_op(plain(targets, {-1, smoothing, softcap}), inputs, seed());
        for (const Index chunk : {Index{0}, Index{1}, Index{2}, Index{7}, rows, rows + 1}) {
          INFO(rows, " rows, width ", width, ", ", classes, " classes, chunk ", chunk);
          const LinearCrossEntropyOptions options = options_of(chunk, smoothing, -1, softcap);
          const OpResult got = run_op(fused(targets, options), inputs, seed());
          CHECK_BELOW(deviation(got.y.item(), expected.y.item()), 1e-13);
          for (std::size_t i = 0; i < inputs.size(); ++i) {
            CAPTURE(i);
            CHECK_BELOW(absolute_error(got.gradients[i], expected.gradients[i]), 1e-13);
          }
        }
      }
    }
  }
}

TEST_CASE("in single precision it is as far off as the roundings of its logits") {
  Generator random(test_seed(2));
  for (const Index chunk : {3, 100}) {
    for (const Index width : {48, 300}) {
      const std::vector<Tensor> single = in_type(inputs_of(200, width, 1001, true, random), DType::f32),
                                inputs = in_type(single, DType::f64);
      const Tensor targets = ids_with_gaps({200}, 1001, random);
      const OpResult exact = run_op(plain(targets, {-1, 0.1}), inputs, seed()),
                     got = run_op(fused(targets, options_of(chunk, 0.1)), single, seed());
      CHECK_BELOW(relative_error(got.y, exact.y), 16 * unit_roundoff(DType::f32));
      // A logit is a sum of `width` products as large as one: in the mean its roundings grow to as many u.
      const double off = 4 * static_cast<double>(width) * unit_roundoff(DType::f32);
      for (std::size_t i = 0; i < inputs.size(); ++i)
        CHECK_BELOW(relative_error(got.gradients[i], exact.gradients[i]), off);
    }
  }
}

TEST_CASE("gradients are added to another use's, a parameter's too") {
  Generator random(test_seed(5));
  for (const Index chunk : {2, 9}) {
    const std::vector<Tensor> inputs = inputs_of(9, 20, 33, true, random);
    const Tensor targets = ids_with_gaps({9}, 33, random), other = random_ids({9}, 33, random);
    const auto both = [&](const Op& first, const Op& second) {
      return run_op([&](const auto& in) { return add(first(in), second(in)); }, inputs, seed());
    };
    const OpResult got = both(fused(targets, options_of(chunk)), fused(other, options_of(chunk, 0.1)));
    const OpResult expected = both(plain(targets, {}), plain(other, {-1, 0.1}));
    for (std::size_t i = 0; i < 3; ++i)
      CHECK_BELOW(relative_error(got.gradients[i], expected.gradients[i]), 1e-13);

    const Parameter weight(inputs[1].clone());
    const auto step = [&](const Op& op) {
      Tape tape;
      tape.backward(op({inputs[0], weight.value(), inputs[2]}), seed());
    };
    step(fused(targets, options_of(chunk)));
    step(fused(other, options_of(chunk, 0.1)));
    CHECK_BELOW(relative_error(weight.gradient(), expected.gradients[1]), 1e-13);
  }
}

TEST_CASE("nothing but ignored rows, and no rows, give no loss and zero gradients") {
  Generator random(test_seed(7));
  for (const Index rows : {0, 9}) {
    for (const Index chunk : {0, 2}) {
      const std::vector<Tensor> inputs = inputs_of(rows, 5, 11, true, random);
      const Tensor targets = Tensor::full({rows}, 7, DType::i32);
      const OpResult got = run_op(fused(targets, options_of(chunk, 0.1, 7)), inputs, seed());
      CHECK(got.y.item() == 0);
      for (std::size_t i = 0; i < 3; ++i) {
        CHECK(got.gradients[i].shape() == inputs[i].shape());
        for (Index k = 0; k < got.gradients[i].elements(); ++k) CHECK(got.gradients[i].at(k) == 0);
      }
    }
  }
}

TEST_CASE("logits never exist all at once, and without a tape nothing is kept") {
  constexpr Index kClasses = 4096, kWidth = 3;
  const PoolStatistics before = pool_statistics();
  // Enough rows for the logits to exceed the largest memory of this process so far.
  const Index row_bytes = kClasses * 4;
  const Index rows = std::max<Index>(512, 2 * (before.peak_bytes - before.in_use_bytes) / row_bytes);
  Generator random(test_seed(8));
  const Tensor x = random_normal({rows, kWidth}, random, DType::f32),
               weight = random_normal({kClasses, kWidth}, random, DType::f32),
               targets = random_ids({rows}, kClasses, random);
  linear_cross_entropy(x, weight, {}, targets, options_of(16));
  CHECK(pool_statistics().in_use_bytes - before.in_use_bytes < 64 * rows + 2 * weight.bytes());
  Tape tape;
  tape.watch(x);
  tape.watch(weight);
  const Tensor loss = linear_cross_entropy(x, weight, {}, targets, options_of(16));
  CHECK(tape.memory().saved_bytes == 2 * (x.bytes() + weight.bytes()));
  tape.backward(loss);
  CHECK(pool_statistics().peak_bytes - before.in_use_bytes < rows * row_bytes * 3 / 4);
}

TEST_CASE("a batch of few rows keeps the smaller of dlogits and the weight's gradient") {
  Generator random(test_seed(9));
  const auto saved = [&](Index rows, Index chunk) {
    const Tensor x = random_normal({rows, 10}, random, DType::f32),
                 weight = random_normal({100, 10}, random, DType::f32);
    Tape tape;
    tape.watch(x);
    tape.watch(weight);
    linear_cross_entropy(x, weight, {}, random_ids({rows}, 100, random), options_of(chunk));
    return tape.memory().saved_bytes - x.bytes() - weight.bytes();
  };
  // On a GPU dloss is not known to the host, which would multiply by it: both gradients are kept.
  CHECK(saved(10, 0) == 4 * (default_device().is_cuda() ? 10 * 10 + 100 * 10 : 10 * 100));
  CHECK(saved(11, 0) == 4 * (11 * 10 + 100 * 10));
  CHECK(saved(10, 9) == 4 * (10 * 10 + 100 * 10));
}

TEST_CASE("unneeded gradients are neither computed nor kept; the others are those of the plain path") {
  Generator random(test_seed(12));
  const std::vector<Tensor> inputs = inputs_of(9, 20, 33, true, random);
  const Tensor targets = ids_with_gaps({9}, 33, random);
  const OpResult expected = run_op(plain(targets, {}), inputs, Tensor::scalar(1, DType::f64));
  const Index product = 2 * 9 * 20 * 33;
  for (const Index chunk : {4, 9}) {
    for (int wanted = 0; wanted < 8; ++wanted) {
      CAPTURE(wanted);
      const auto is_wanted = [=](std::size_t i) { return (wanted >> i & 1) != 0; };
      Tape tape;
      std::vector<Tensor> leaves;
      Index bytes = 0;  // kept: the inputs, and the gradients that are wanted
      for (std::size_t i = 0; i < 3; ++i) {
        leaves.push_back(inputs[i].detach());
        if (is_wanted(i)) tape.watch(leaves[i]);
        bytes += wanted == 0 ? 0 : (is_wanted(i) ? 2 : 1) * inputs[i].bytes();
      }
      const Profile profile;
      const Tensor loss = fused(targets, options_of(chunk))(leaves);
      Index flops = 0;
      for (const ProfileLine& line : profile.lines()) flops += line.flops;
      CHECK_BELOW(absolute_error(loss, expected.y), 1e-14);
      CHECK(tape.tracks(loss) == (wanted != 0));
      if (chunk == 4) CHECK(flops == (1 + (wanted & 1) + (wanted >> 1 & 1)) * product);
      if (chunk == 4) CHECK(tape.memory().saved_bytes == bytes);
      for (std::size_t i = 0; i < 3; ++i)
        if (is_wanted(i))
          CHECK_BELOW(absolute_error(tape.gradients(loss, {leaves[i]})[0], expected.gradients[i]), 1e-14);
    }
  }
}

TEST_CASE("gradients of both orders") {
  Generator random(test_seed(11));
  for (const Index chunk : {3, 8}) {
    const auto check = [&](const std::string& name, const LinearCrossEntropyOptions& options) {
      const Tensor x = random_normal({2, 4, 9}, random), weight = random_normal({7, 9}, random),
                   bias = random_normal({7}, random), targets = ids_with_gaps({2, 4}, 7, random);
      check_both_orders(name, [&] { return linear_cross_entropy(x, weight, bias, targets, options); },
                        {{"x", x}, {"weight", weight}, {"bias", bias}});
    };
    check("linear_cross_entropy", options_of(chunk));
    check("linear_cross_entropy, smoothed", options_of(chunk, 0.1));
    check("linear_cross_entropy, capped", options_of(chunk, 0.1, -1, 2));
  }
}

TEST_CASE("golden values") {
  const Golden golden("fused");
  for (const char* kind : {"plain", "no_bias", "smoothed", "ignored", "ignored_smoothed"}) {
    const std::string name = std::string("linear_cross_entropy_") + kind;
    const auto given = golden.options(name);
    const Tensor targets = golden.tensor(name, "in.targets");
    std::vector<std::string> names{"x", "weight"};
    for (const std::string& in : golden.names(name, "in."))
      if (in == "bias") names.push_back(in);
    for (const Index chunk : {0, 4}) {
      const auto function = [&](const std::vector<Tensor>& in) {
        const Tensor loss = fused(
            targets, options_of(chunk, given["smoothing"].get<double>(), given["ignored"].get<Index>()))(in);
        return reshape(loss, {1});  // numpy keeps no scalars
      };
      check_golden(golden, name, names, function, 1e-14);
    }
  }
}

TEST_CASE("inputs that do not fit are refused with their shapes") {
  const Tensor x = Tensor::zeros({2, 3, 5}), weight = Tensor::zeros({7, 5}), bias = Tensor::zeros({7}),
               targets = Tensor::zeros({2, 3}, DType::i32);
  const auto says = [&](const std::string& text, const Tensor& w, const Tensor& b, const Tensor& t,
                        const LinearCrossEntropyOptions& options = {}) {
    CHECK(message_of<Error>([&] {
            linear_cross_entropy(x, w, b, t, options);
          }).find("[linear_cross_entropy] " + text) == 0);
  };
  const std::string fit = "x [..., In], weight [Out, In] and bias [Out] must fit; got x=f32[2,3,5], ";
  says(fit + "weight=f32[7,6], bias=f32[7]", Tensor::zeros({7, 6}), bias, targets);
  says(fit + "weight=f32[7,5], bias=f32[5]", weight, Tensor::zeros({5}), targets);
  says("targets must have the shape of the rows, without the last axis; got x=f32[2,3,5], targets=i32[6]",
       weight, bias, Tensor::zeros({6}, DType::i32));
  says("targets must be in [0, 7), or -1 (ignored); got 7 at [1,2] of targets=i32[2,3]", weight, bias,
       integers({0, 1, 2, 3, 4, 7}, {2, 3}));
  says("indices must be i32; got targets=f32[2,3]; try to(DType::i32)", weight, bias, Tensor::zeros({2, 3}));
  says("all operands must have one type", weight.to(DType::f64), {}, targets);
  says("smoothing must be in [0, 1]; got smoothing=1.5", weight, bias, targets, options_of(0, 1.5));
  says("softcap must not be negative; got softcap=-2", weight, bias, targets, options_of(0, 0, -1, -2));
  says("chunk must be at least 0; got chunk=-2", weight, bias, targets, options_of(-2));
}
