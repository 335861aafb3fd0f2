#include <tapeformer/nn/formats/safetensors_folder.h>
#include <tapeformer/tests/nn/formats/temporary_folder.h>
#include <tapeformer/tests/reference/support.h>

#include <doctest/doctest.h>

using namespace tapeformer;

namespace {

constexpr const char* kIndex = "model.safetensors.index.json";

/// Two files, "a" and "b" in one, "c" in the other, and an index of this content.
struct Sharded : TemporaryFolder {
  explicit Sharded(const std::string& index) {
    save_safetensors(file("one.safetensors"),
                     {{"a", Tensor::from<float>({1, 2})}, {"b", Tensor::from<float>({3})}});
    save_safetensors(file("two.safetensors"), {{"c", Tensor::from<float>({4, 5, 6})}});
    write_bytes(file(kIndex), index);
  }
};

std::string map_of(const std::string& entries) { return "{\"weight_map\": {" + entries + "}}"; }

constexpr const char* kSound = R"("a": "one.safetensors", "b": "one.safetensors", "c": "two.safetensors")";

/// The error message for a folder with this index, without the index's path at its start.
std::string folder_refusal(const std::string& index) {
  const Sharded folder(index);
  const std::string said = message_of<CheckpointError>([&] { SafetensorsFolder::open(folder.path()); });
  const std::string path = folder.file(kIndex) + ": ";
  return said.compare(0, path.size(), path) == 0 ? said.substr(path.size()) : said;
}

}  // namespace

TEST_CASE("an index leads to the tensors of several files") {
  const Sharded folder(R"({"metadata": {"total_size": 24}, "weight_map": {)" + std::string(kSound) + "}}");
  const SafetensorsFolder tensors = SafetensorsFolder::open(folder.path());
  CHECK(tensors.names() == std::vector<std::string>{"a", "b", "c"});
  CHECK(tensors.tensor("b").to_vector<float>() == std::vector<float>{3});
  CHECK(tensors.tensor("c").to_vector<float>() == std::vector<float>{4, 5, 6});
  CHECK(tensors.shape("c") == Shape{3});
  CHECK(tensors.file("c").path() == folder.file("two.safetensors"));
  CHECK(tensors.path() == folder.file(kIndex));
  CHECK(tensors.contains("a"));
  CHECK_FALSE(tensors.contains("d"));
  CHECK(message_of<CheckpointError>([&] { tensors.tensor("d"); }) ==
        folder.file(kIndex) + ": has no tensor 'd'");
}

TEST_CASE("a single file is preferred to an index") {
  const Sharded folder(map_of(kSound));
  CHECK(SafetensorsFolder::open(folder.path()).contains("a"));
  save_safetensors(folder.file("model.safetensors"), {{"whole", Tensor::scalar(1)}});
  CHECK(SafetensorsFolder::open(folder.path()).names() == std::vector<std::string>{"whole"});
  std::filesystem::remove(folder.file("model.safetensors"));
  std::filesystem::remove(folder.file(kIndex));
  CHECK(message_of<CheckpointError>([&] { SafetensorsFolder::open(folder.path()); }) ==
        folder.path() +
            ": has neither model.safetensors nor pytorch_model.bin, nor an index of several; try "
            "save_pretrained() of transformers, which writes them");
}

TEST_CASE("an index that is damaged is refused") {
  const Sharded folder(map_of(kSound));
  CHECK(folder_refusal("{").find("the index is not JSON: ") == 0);
  CHECK(folder_refusal("[]") == "has no object 'weight_map'");
  CHECK(folder_refusal("{\"weight_map\": []}") == "has no object 'weight_map'");
  CHECK(folder_refusal(map_of(std::string(kSound) + ", \"a\": \"two.safetensors\"")) ==
        "the index has \"a\" twice");
  CHECK(folder_refusal(map_of(R"("a": 1)")) == "tensor 'a' is in no file");
  for (const char* const outside :
       {"../one.safetensors", "/etc/passwd", "", "x/../one.safetensors", "a\\u0000"}) {
    CHECK(folder_refusal(map_of(R"("a": ")" + std::string(outside) + "\"")) ==
          "tensor 'a' is in a file outside the folder");
  }
}

TEST_CASE("an index and files that do not agree are refused") {
  CHECK(folder_refusal(map_of(R"("a": "one.safetensors", "c": "one.safetensors")")) ==
        "tensor 'c' is not in one.safetensors");
  CHECK(folder_refusal(map_of(R"("a": "one.safetensors")")).find("does not list tensor 'b' of ") == 0);
  CHECK(folder_refusal(map_of(R"("a": "three.safetensors")"))
            .find("three.safetensors: cannot be opened: No such file") != std::string::npos);
  CHECK(folder_refusal(map_of(R"("a": ".")")).find("is not a file") != std::string::npos);
  const Sharded folder(map_of(kSound));
  save_safetensors(folder.file("two.safetensors"), {{"c", Tensor::scalar(1)}, {"a", Tensor::scalar(2)}});
  CHECK(message_of<CheckpointError>([&] { SafetensorsFolder::open(folder.path()); }) ==
        folder.file(kIndex) + ": tensor 'a' is in " + folder.file("one.safetensors") + " and in " +
            folder.file("two.safetensors"));
}
