#include <tapeformer/autograd/ops/additive_attention.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/loss.h>
#include <tapeformer/autograd/ops/normalization.h>
#include <tapeformer/autograd/ops/softmax.h>
#include <tapeformer/nn/formats/strict_json.h>
#include <tapeformer/tests/autograd/ops/attention_case.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

using namespace tapeformer;

namespace {

using Json = nlohmann::ordered_json;

/// The draws of golden_accuracy.py: uniform numbers of standard deviation `scale` that are exact in f32.
Tensor numbers(std::uint64_t stream, const Shape& shape, double scale) {
  const Tensor x = Tensor::empty(shape, DType::f32, Device::cpu());
  for (Index i = 0; i < x.elements(); ++i) {
    std::uint64_t mixed = (static_cast<std::uint64_t>(i) + 1 + 1000003 * stream) * 0x9E3779B97F4A7C15;
    mixed = (mixed ^ (mixed >> 32)) * 0xD6E8FEB86659FD93;
    const double uniform = std::ldexp(static_cast<double>((mixed ^ (mixed >> 32)) >> 40), -24) - 0.5;
    x.data<float>()[i] = static_cast<float>(uniform * (std::sqrt(12.0) * scale));
  }
  return x;
}

AttentionOptions masked(const Json& one) {
  AttentionOptions options;
  const Index rows = one.at("rows");
  const std::string mask = one.value("mask", "none");
  options.causal = mask == "causal";
  if (mask == "some") {
    options.mask = Tensor::empty({rows, rows}, DType::boolean, Device::cpu());
    for (Index i = 0; i < rows * rows; ++i)
      options.mask.data<bool>()[i] = (3 * (i / rows) + 5 * (i % rows)) % 7 < 4;
  }
  return moved(options, default_device());
}

/// The inputs after query, key and value are the modifier's parameters.
Op modified_by(AttentionFunction function, const Json& one) {
  AttentionOptions options = masked(one);
  const std::string modifier = one.at("modifier");
  if (modifier == "sigmoid") options.weighting = AttentionWeighting::sigmoid;
  if (modifier == "softcap") options.score_function = ScoreFunction::softcap;
  return [=](const std::vector<Tensor>& x) {
    AttentionOptions given = options;
    if (modifier == "softcap") given.score_parameter = x[3] + 5.0;
    if (modifier == "relative") given.relative_bias = x[3];
    if (modifier == "mask") given.mask = x[3];
    if (modifier == "sinks") given.sinks = x[3];
    return function(x[0], x[1], x[2], given);
  };
}

/// A case computed by the kernels, or by the composed fallback if the operation has one.
std::vector<Op> operations(const Json& one) {
  const std::string name = one.at("op");
  if (name == "attention") {
    const AttentionOptions options = masked(one);
    return {attention_by(scaled_dot_product_attention, options), attention_by(composed_attention, options)};
  }
  if (name == "modified_attention")
    return {modified_by(scaled_dot_product_attention, one), modified_by(composed_attention, one)};
  using X = std::vector<Tensor>;
  if (name == "additive_attention")
    return {[](const X& x) { return additive_attention(x[0], x[1], x[2], x[3]); },
            [](const X& x) { return composed_additive_attention(x[0], x[1], x[2], x[3]); }};
  if (name == "softmax") return {[](const X& x) { return softmax(x[0]); }};
  if (name == "log_softmax") return {[](const X& x) { return log_softmax(x[0]); }};
  if (name == "cross_entropy") {
    const Index rows = one.at("rows"), width = one.at("width");
    const Tensor targets = Tensor::empty({rows}, DType::i32, Device::cpu());
    for (Index i = 0; i < rows; ++i)
      targets.data<std::int32_t>()[i] = static_cast<std::int32_t>(i * 7 % width);
    return {[targets](const X& x) { return cross_entropy(x[0], targets.to(default_device())); }};
  }
  if (name == "layer_norm") return {[](const X& x) { return layer_norm(x[0], x[1], x[2]); }};
  if (name == "rms_norm") return {[](const X& x) { return rms_norm(x[0], x[1]); }};
  throw ShapeError("there is no operation " + name);
}

/// A draw of the inputs of a case, and the seed that its output gets.
std::vector<Tensor> drawn_inputs(const Json& one, std::uint64_t stream) {
  std::vector<Tensor> inputs;
  for (std::size_t i = 0; i < one.at("shapes").size(); ++i) {
    const std::vector<Index> sizes = one.at("shapes")[i];
    inputs.push_back(
        numbers(stream + i, Shape(sizes.data(), static_cast<int>(sizes.size())), one.at("scales")[i]));
  }
  float* const first = inputs[0].data<float>();
  for (Index i = 0; i < inputs[0].elements(); ++i)
    first[i] = static_cast<float>(first[i] + one.value("shift", 0.0));
  for (Tensor& x : inputs) x = x.to(default_device());
  return inputs;
}

/// sqrt(sum (f32 - f64)^2 / sum f64^2) of the output and of each gradient, over the draws of a case, of large
/// ones a quarter: a maximum would depend on the processor's roundings, and so would few numbers without the
/// mean over cases.
std::vector<double> root_mean_squares(const Json& one, const Op& op) {
  std::vector<double> errors(one.at("errors").size()), squares(errors.size());
  const auto add = [&](std::size_t i, const Tensor& got, const Tensor& exact) {
    if (absolute_error(exact, exact * 0.0) < std::numeric_limits<float>::min())
      return;  // f32 has fewer digits
    for (Index k = 0; k < exact.elements(); ++k) {
      errors[i] += std::pow(got.at(k) - exact.at(k), 2);
      squares[i] += std::pow(exact.at(k), 2);
    }
  };
  const Index all = one.at("draws"), draws = one.at("rows") > 5 ? (all + 3) / 4 : all;
  for (Index draw = 0; draw < draws; ++draw) {
    const std::uint64_t stream =
        one.at("stream").get<std::uint64_t>() + 10 * static_cast<std::uint64_t>(draw);
    const std::vector<Tensor> inputs = drawn_inputs(one, stream);
    const Tensor seed = numbers(stream + 9, op(inputs).shape(), 1).to(default_device());
    const OpResult exact = run_op(op, in_type(inputs, DType::f64), seed), got = run_op(op, inputs, seed);
    add(0, got.y.to(Device::cpu()), exact.y.to(Device::cpu()));
    for (std::size_t i = 0; i < inputs.size(); ++i)
      add(i + 1, got.gradients[i].to(Device::cpu()), exact.gradients[i].to(Device::cpu()));
  }
  for (std::size_t i = 0; i < errors.size(); ++i)
    errors[i] = errors[i] == 0 ? 0 : std::sqrt(errors[i] / squares[i]);
  return errors;
}

/// PyTorch's error may be exceeded by this factor. Its products were fused with the sums; where they are
/// rounded first (in libraries on processors without such instructions, in builds that do not fuse) there are
/// twice as many roundings.
double most_times(bool composed) {
#if defined(__FMA__) && !defined(__clang__)
  constexpr bool kFuses = true;
#else
  constexpr bool kFuses = false;
#endif
  return kFuses && !composed ? 3 : 6;
}

}  // namespace

TEST_CASE("values and gradients in f32 are at most three times as far from those in f64 as PyTorch's") {
  std::map<std::string, std::vector<double>> logarithms;  // of the ratios, over sizes and masks
  for (const Json& one : parse_json(read_file(TAPEFORMER_SOURCE_DIR "/tests/golden/single_precision.json"))) {
    const Index numbers =
        one.at("rows").get<Index>() * one.at("width").get<Index>() * one.at("draws").get<Index>();
    if (default_device().is_cuda() && numbers > 10000) continue;  // minutes
    std::vector<Op> ops = operations(one);
    if (default_device().is_cuda() && one.at("op") == "modified_attention") ops.resize(1);  // half a minute
    for (std::size_t path = 0; path < ops.size(); ++path) {
      const std::vector<double> errors = root_mean_squares(one, ops[path]);
      for (std::size_t i = 0; i < errors.size(); ++i) {
        const double rounding = unit_roundoff(DType::f32), of_pytorch = one.at("errors")[i];
        if (of_pytorch > 0.5) continue;  // a gradient so small that f32 has no digit of it
        std::ostringstream name;
        name << one.at("op") << one.value("modifier", "") << one.at("scales")
             << (path > 0 ? " composed, " : ", ") << (i == 0 ? "output" : "gradient ") << i;
        logarithms[name.str()].push_back(
            std::log(std::max(errors[i], rounding) / std::max(of_pytorch, rounding)));
      }
    }
  }
  for (const auto& [name, ratios] : logarithms) {
    CAPTURE(name);
    const double mean =
        std::accumulate(ratios.begin(), ratios.end(), 0.0) / static_cast<double>(ratios.size());
    CHECK_BELOW(std::exp(mean) - 1, most_times(name.find("composed") != std::string::npos) - 1);
  }
}
