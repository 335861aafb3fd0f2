#include <tapeformer/nn/formats/gguf.h>
#include <tapeformer/tests/nn/formats/gguf_reader.h>
#include <tapeformer/tests/nn/formats/temporary_folder.h>
#include <tapeformer/tests/reference/support.h>

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

using namespace tapeformer;

namespace {

std::string saved(const GgufMetadata& metadata, const std::vector<GgufTensor>& tensors) {
  const TemporaryFolder folder;
  save_gguf(folder.file("it"), metadata, tensors);
  return read_bytes(folder.file("it"));
}

template <std::size_t N>
std::string bytes_of(const char (&text)[N]) {
  return {text, N - 1};
}

}  // namespace

TEST_CASE("metadata and tensors come back from an independent reader") {
  const Tensor a = Tensor::from<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  const GgufReader file(saved({{"text", std::string("words")},
                               {"yes", true},
                               {"half", 0.5f},
                               {"bytes", std::vector<std::uint8_t>{1, 255}},
                               {"ids", std::vector<std::int32_t>{-1, 7}},
                               {"none", std::vector<float>{}}},
                              {{"a", a}, {"b", a, GgufType::f16}, {"c", a, GgufType::q8_0}}));
  CHECK(file.texts.at("text") == "words");
  CHECK(file.texts.at("yes") == "true");
  CHECK(file.texts.at("half") == "0.500000");
  CHECK(file.lists.at("bytes") == std::vector<std::string>{"1", "255"});
  CHECK(file.lists.at("ids") == std::vector<std::string>{"-1", "7"});
  CHECK(file.lists.at("none").empty());
  CHECK(file.order == std::vector<std::string>{"a", "b", "c"});
  CHECK(file.tensors.at("a").sizes == std::vector<std::uint64_t>{3, 2});
  CHECK(file.floats("a") == std::vector<float>{1, 2, 3, 4, 5, 6});
  CHECK(file.tensors.at("b").bytes == bytes_of("\0\x3c\0\x40\0\x42\0\x44\0\x45\0\x46"));
  CHECK(file.tensors.at("c").type == 1);  // rows of three make no blocks
  CHECK(file.tensors.at("c").bytes == file.tensors.at("b").bytes);
}

TEST_CASE("blocks of 8-bit values have the scale of their greatest") {
  Tensor x = Tensor::zeros({2, 32}, DType::f32, Device::cpu());
  x.data<float>()[1] = -127, x.data<float>()[2] = 63.5f, x.data<float>()[3] = 1.4f;
  const GgufReader file(saved({}, {{"x", x, GgufType::q8_0}}));
  std::string expected = bytes_of("\0\x3c\0\x81\x40\x01");  // 63.5 is rounded away from zero
  expected.resize(68, '\0');
  CHECK(file.tensors.at("x").type == 8);
  CHECK(file.tensors.at("x").bytes == expected);
  x.data<float>()[1] = 1e-38f, x.data<float>()[2] = x.data<float>()[3] = 0;  // a scale without a reciprocal
  CHECK(GgufReader(saved({}, {{"x", x, GgufType::q8_0}})).tensors.at("x").bytes == std::string(68, '\0'));
}

TEST_CASE("half precision is rounded to the nearest, ties to even") {
  CHECK(to_half(0) == 0);
  CHECK(to_half(-0.0f) == 0x8000);
  CHECK(to_half(1) == 0x3c00);
  CHECK(to_half(1 + 0x1p-11f) == 0x3c00);
  CHECK(to_half(1 + 3 * 0x1p-11f) == 0x3c02);
  CHECK(to_half(std::nextafter(2.0f, 0.0f)) == 0x4000);
  CHECK(to_half(-65504) == 0xfbff);
  CHECK(to_half(65519) == 0x7bff);
  CHECK(to_half(65520) == 0x7c00);
  CHECK(to_half(0x1p-14f) == 0x0400);
  CHECK(to_half(0x1p-24f) == 0x0001);
  CHECK(to_half(0x1p-25f) == 0);
  CHECK(to_half(3 * 0x1p-25f) == 0x0002);
  CHECK(to_half(std::nextafter(0x1p-14f, 0.0f)) == 0x0400);
  CHECK((to_half(std::numeric_limits<float>::quiet_NaN()) & 0x7fff) == 0x7e00);
  CHECK(to_half(-std::numeric_limits<float>::infinity()) == 0xfc00);
}

TEST_CASE_FIXTURE(InFolder, "values that half precision cannot hold are refused, and leave no file") {
  const std::string path = folder.file("it");
  const Tensor x = Tensor::full({2}, 1e5), nan = Tensor::full({32}, std::nan(""));
  const auto refusal = [&](const GgufMetadata& metadata, const std::vector<GgufTensor>& tensors) {
    return message_of<CheckpointError>([&] { save_gguf(path, metadata, tensors); });
  };
  CHECK(refusal({}, {{"x", x, GgufType::f16}}) ==
        path + ": x has 100000, which half precision cannot hold; try --type f32");
  CHECK(refusal({}, {{"x", nan, GgufType::q8_0}}) ==
        path + ": x has nan, which blocks of 8 bits cannot hold; try --type f16");
  CHECK_FALSE(std::filesystem::exists(path));
}
