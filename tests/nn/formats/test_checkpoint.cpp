#include <tapeformer/nn/formats/checkpoint.h>
#include <tapeformer/nn/linear.h>
#include <tapeformer/tests/nn/formats/temporary_folder.h>
#include <tapeformer/tests/nn/module_case.h>

#include <limits>

using namespace tapeformer;

namespace {

struct Net : Module {
  Net(Index hidden, Generator& random)
      : scale(Tensor::full({2}, 0.25)),
        up({3, hidden, true, {}}, random),
        down({hidden, 3, false, {}}, random),
        tied({3, hidden, false, {}}, random) {
    tied.weight() = up.weight();
  }
  void visit(ParameterVisitor& visitor) override {
    visitor.buffer("scale", scale);
    visitor.child("up", up);
    visitor.child("down", down);
    visitor.child("tied", tied);
  }
  Tensor scale;
  Linear up, down, tied;
};

Net net_of(Index hidden, std::uint64_t seed) {
  Generator random(test_seed(seed));
  return Net(hidden, random);
}

}  // namespace

TEST_CASE_FIXTURE(InFolder, "saved weights load bit for bit, special values included") {
  for (const DType type : {DType::f32, DType::f64}) {
    Net net = net_of(4, 1), other = net_of(4, 2);
    net.to(type);
    other.to(type);
    const Tensor bias = net.up.bias().value();
    const Tensor special = values({-0.0, std::numeric_limits<double>::infinity(), 1e-42, std::nan("")});
    bias.copy_from(special.to(type));
    save_weights(folder.file("weights"), net);
    load_weights(folder.file("weights"), other);
    const auto expected = weights_of(net), found = weights_of(other);
    REQUIRE(found.size() == expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) CHECK(same_bits(found[i].second, expected[i].second));
    CHECK(other.tied.weight() == other.up.weight());
  }
  CHECK(folder.count() == 1);
}

TEST_CASE_FIXTURE(InFolder, "weights load from a part of a file by prefix, in the precision of the model") {
  Net net = net_of(4, 1), other = net_of(4, 2);
  other.to(DType::f64);
  NamedTensors tensors = {{"step", Tensor::scalar(3)}};
  for (const auto& [name, value] : weights_of(net)) tensors.emplace_back("model." + name, value);
  save_safetensors(folder.file("checkpoint"), tensors);
  load_weights(SafetensorsFile::open(folder.file("checkpoint")), "model.", other);
  CHECK(other.down.weight().value().dtype() == DType::f64);
  CHECK(absolute_error(other.down.weight().value(), net.down.weight().value()) == 0);
}

TEST_CASE_FIXTURE(InFolder, "a mismatch names every tensor that does not fit, and changes nothing") {
  Net net = net_of(4, 1);
  const NamedTensors tensors = {{"up.weight", Tensor::zeros({5, 3})},
                                {"up.bias", Tensor::zeros({4})},
                                {"scale", Tensor::zeros({2})},
                                {"sideways.weight", Tensor::zeros({1})}};
  save_safetensors(folder.file("weights"), tensors);
  const Tensor before = net.up.bias().value().clone();
  const std::string message = message_of<CheckpointError>([&] { load_weights(folder.file("weights"), net); });
  CHECK(message == folder.file("weights") +
                       ": the weights do not fit the model:"
                       "\n  up.weight is [5,3] in the file and [4,3] in the model"
                       "\n  down.weight is missing"
                       "\n  scale is not in the model"
                       "\n  sideways.weight is not in the model");
  CHECK(same_bits(net.up.bias().value(), before));
  CHECK(net.scale.at(0) == 0.25);
}

TEST_CASE_FIXTURE(InFolder, "shadows in bf16 are loaded too") {
  Net net = net_of(4, 1), other = net_of(4, 2);
  other.compute_in(DType::bf16);
  save_weights(folder.file("weights"), net);
  load_weights(folder.file("weights"), other);
  CHECK(absolute_error(other.up.weight().used(), net.up.weight().value().to(DType::bf16)) == 0);
}

TEST_CASE_FIXTURE(InFolder, "the mean of files of weights, with sums in double") {
  const auto save = [&](const char* name, const std::vector<float>& weight, const std::vector<float>& bias) {
    save_safetensors(folder.file(name),
                     {{"weight", Tensor::from(weight, {2, 2})}, {"bias", Tensor::from(bias)}});
    return folder.file(name);
  };
  const std::string big = save("big", {1e8f, 2, 3, 4}, {0, 3}),
                    minus = save("minus", {-1e8f, 2, -3, 4}, {0, 3}),
                    small = save("small", {3, 2, 3, 7}, {1.5, -3}), none = folder.file("none");
  Generator random(test_seed(7));
  Linear model({2, 2, true, {}}, random), bare({2, 2, false, {}}, random);
  model.to(DType::f64);
  average_weights({big, small, minus}, model);
  CHECK(model.weight().value().to_vector<double>() == std::vector<double>{1, 2, 1, 5});
  CHECK(model.bias().value().to_vector<double>() == std::vector<double>{0.5, 1});
  CHECK_THROWS_AS(average_weights({small, none}, model), CheckpointError);
  CHECK_THROWS_AS(average_weights({}, model), CheckpointError);
  CHECK(model.bias().value().at(0) == 0.5);
  CHECK(message_of<CheckpointError>([&] {
          average_weights({small}, bare);
        }).find(small + ": the weights do not fit the model:\n  bias is not in the model") == 0);
}
