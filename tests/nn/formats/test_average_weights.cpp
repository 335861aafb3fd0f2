#include <tapeformer/autograd/error.h>
#include <tapeformer/nn/formats/checkpoint.h>
#include <tapeformer/nn/linear.h>
#include <tapeformer/tests/nn/formats/temporary_folder.h>
#include <tapeformer/tests/reference/support.h>

#include <doctest/doctest.h>

using namespace tapeformer;

namespace {

Linear linear(Index outputs = 2, bool bias = true) {
  Generator random(test_seed(7));
  return Linear({2, outputs, bias, {}}, random);
}

void save(const std::string& path, const std::vector<float>& weight, const std::vector<float>& bias) {
  save_safetensors(path, {{"weight", Tensor::from(weight, {2, 2})}, {"bias", Tensor::from(bias)}});
}

}  // namespace

TEST_SUITE("nn/formats/average_weights") {
  TEST_CASE("the mean of three files, by hand") {
    const TemporaryFolder folder;
    save(folder.file("a"), {1, 2, 3, 4}, {0, 3});
    save(folder.file("b"), {2, 2, -3, 4}, {0, 3});
    save(folder.file("c"), {6, 2, 3, 7}, {1.5, -3});
    Linear model = linear();
    average_weights({folder.file("a"), folder.file("b"), folder.file("c")}, model);
    CHECK(model.weight().value().to_vector<float>() == std::vector<float>{3, 2, 1, 5});
    CHECK(model.bias().value().to_vector<float>() == std::vector<float>{0.5, 1});
  }

  TEST_CASE("sums are in double") {
    const TemporaryFolder folder;
    save(folder.file("big"), {1e8f, -1e8f, 0, 0}, {0, 0});
    save(folder.file("small"), {1, 1, 0, 0}, {0, 0});
    save(folder.file("minus"), {-1e8f, 1e8f, 0, 0}, {0, 0});
    Linear model = linear();
    average_weights({folder.file("big"), folder.file("small"), folder.file("minus"), folder.file("small")},
                    model);
    CHECK(model.weight().value().to_vector<float>() == std::vector<float>{0.5, 0.5, 0, 0});
  }

  TEST_CASE("one file is loaded as it is, in the type of the model") {
    const TemporaryFolder folder;
    Linear model = linear(), other = linear();
    save_weights(folder.file("a"), model);
    other.to(DType::f64);
    other.weight().value().copy_from(Tensor::zeros({2, 2}, DType::f64));
    average_weights({folder.file("a")}, other);
    CHECK(other.weight().value().dtype() == DType::f64);
    CHECK(absolute_error(other.weight().value(), model.weight().value()) == 0);
  }

  TEST_CASE("files that do not fit are refused, and nothing changes") {
    const TemporaryFolder folder;
    save(folder.file("a"), {1, 2, 3, 4}, {0, 3});
    Linear wide = linear(3), bare = linear(2, false);
    save_weights(folder.file("wide"), wide);
    save_weights(folder.file("bare"), bare);
    Linear model = linear();
    const std::vector<float> before = model.weight().value().to_vector<float>();
    const auto refusal = [&](const std::vector<std::string>& paths) {
      return message_of<CheckpointError>([&] { average_weights(paths, model); });
    };
    CHECK(refusal({folder.file("a"), folder.file("wide")}) ==
          folder.file("wide") +
              ": the weights do not fit the model:\n  weight is [3,2] in the file and [2,2] in the model\n"
              "  bias is [3] in the file and [2] in the model");
    CHECK(refusal({folder.file("a"), folder.file("bare")}) ==
          folder.file("bare") + ": the weights do not fit the model:\n  bias is missing");
    CHECK(refusal({folder.file("a"), folder.file("none")}).find("none: cannot be opened") !=
          std::string::npos);
    CHECK(refusal({}) == "there are no files of weights to average");
    CHECK(model.weight().value().to_vector<float>() == before);
    CHECK(message_of<CheckpointError>([&] {
            average_weights({folder.file("a")}, bare);
          }).find("bias is not in the model") != std::string::npos);
  }
}
