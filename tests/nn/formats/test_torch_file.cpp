#include <tapeformer/nn/formats/safetensors_folder.h>
#include <tapeformer/tests/nn/formats/temporary_folder.h>
#include <tapeformer/tests/reference/support.h>

#include <doctest/doctest.h>

using namespace tapeformer;

namespace {

std::string torch_file(const std::string& name) {
  return std::string(TAPEFORMER_SOURCE_DIR "/tests/golden/torch_") + name + ".bin";
}

/// The message on a file of these bytes, without the path at its start.
std::string torch_refusal(const InFolder& in, const std::string& bytes) {
  const std::string path = in.folder.file("x.bin");
  write_bytes(path, bytes);
  const std::string said = message_of<CheckpointError>([&] { SafetensorsFile::open_torch(path); });
  return said.compare(0, path.size() + 2, path + ": ") == 0 ? said.substr(path.size() + 2) : said;
}

}  // namespace

TEST_CASE("the tensors of torch.save are read from both of its formats") {
  for (const char* name : {"archive", "legacy"}) {
    INFO(name);
    const SafetensorsFile file = SafetensorsFile::open_torch(torch_file(name));
    CHECK(file.names().size() == 10);
    CHECK(file.tensor("matrix").describe() == "f32[2,3]");
    CHECK(file.tensor("matrix").to_vector<float>() == std::vector<float>{0, 1, 2, 3, 4, 5});
    CHECK(file.tensor("half_").to_vector<float>() == std::vector<float>{0.5, -2});
    CHECK(file.tensor("brain_").to_vector<float>() == std::vector<float>{1.5, -3});
    CHECK(file.tensor("double_").describe() == "f64[]");
    CHECK(file.tensor("double_").item() == 0.1);
    CHECK(file.tensor("ids_").describe() == "i32[1,3]");
    CHECK(file.tensor("ids_").to_vector<std::int32_t>() == std::vector<std::int32_t>{0, 1, 2});
    CHECK(file.tensor("mask_").to_vector<bool>() == std::vector<bool>{true, false});
    CHECK(file.shape("none_") == Shape{0, 4});
    CHECK(file.tensor("first_").to_vector<float>() == std::vector<float>{0, 1, 2, 3});
    CHECK(file.tensor("last_").to_vector<float>() == std::vector<float>{4, 5, 6, 7, 8, 9});
    CHECK(file.tensor("parameter").item() == 7);
  }
}

TEST_CASE_FIXTURE(InFolder, "a folder with only pytorch_model.bin is read, but safetensors are preferred") {
  std::filesystem::copy_file(torch_file("legacy"), folder.file("pytorch_model.bin"));
  CHECK(SafetensorsFolder::open(folder.path()).contains("parameter"));
  save_safetensors(folder.file("model.safetensors"), {{"whole", Tensor::scalar(1)}});
  CHECK_FALSE(SafetensorsFolder::open(folder.path()).contains("parameter"));
}

TEST_CASE_FIXTURE(InFolder, "files of torch.save that hold something else, or are damaged, are refused") {
  const std::string archive = read_bytes(torch_file("archive")), legacy = read_bytes(torch_file("legacy"));
  const auto with = [](std::string content, const std::string& from, const std::string& to) {
    REQUIRE(content.rfind(from) != std::string::npos);
    return content.replace(content.rfind(from), from.size(), to);
  };
  CHECK(torch_refusal(*this, read_bytes(torch_file("turned"))) ==
        "tensor 'turned': is not stored row by row; try save_pretrained() of transformers");
  CHECK(torch_refusal(*this, "version https://git-lfs.github.com/spec/v1") == "is not a whole archive");
  CHECK(torch_refusal(*this, with(legacy, "torch._utils\n_rebuild_tensor_v2", "posix\nsystem")) ==
        "has an object of posix system, and only dictionaries of tensors are read");
  CHECK(torch_refusal(*this, with(legacy, "HalfStorage", "QIntStorage")) ==
        "has tensors of the type torch QIntStorage, which are not supported");
  CHECK(torch_refusal(*this, with(legacy, "matrix", "first_")) == "tensor 'first_': appears twice");
  CHECK(torch_refusal(*this, with(archive, "/data.pkl", "/data.pki")) == "has no data.pkl");
  for (const std::string& whole : {archive, legacy})
    for (std::size_t size = 0; size < whole.size(); size += 7)
      CHECK(torch_refusal(*this, whole.substr(0, size)) != "nothing was thrown");
}
