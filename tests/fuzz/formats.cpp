#include <tapeformer/data/hash.h>
#include <tapeformer/data/token_file.h>
#include <tapeformer/nn/formats/npz.h>
#include <tapeformer/nn/formats/safetensors_folder.h>
#include <tapeformer/tests/fuzz/parsers.h>

#include <filesystem>
#include <nlohmann/json.hpp>

namespace tapeformer {
namespace {

constexpr const char* kIndex = R"({"metadata": {"total_size": 36}, "weight_map": {
  "a": "one.safetensors", "b": "one.safetensors", "c": "two.safetensors"}})";

/// The bytes of a file that save_safetensors writes.
std::string safetensors_of(const std::vector<std::pair<std::string, Tensor>>& tensors,
                           const std::map<std::string, std::string>& metadata = {}) {
  save_safetensors(input_path("seed.safetensors"), tensors, metadata);
  return content_of(input_path("seed.safetensors"));
}

/// Another program's file, without the checksum, which would refuse nearly every input of a fuzzer.
std::string foreign_safetensors(std::string header, const std::string& data) {
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(header.size() >> (8 * i) & 255);
  return bytes + header + data;
}

template <class Tensors>
void read_all(const Tensors& tensors) {
  for (const std::string& name : tensors.names()) tensors.tensor(name);
}

Seeds safetensors_seeds() {
  const Tensor matrix = Tensor::from(std::vector<float>{1, 2, 3, 4, 5, 6}, {2, 3});
  Seeds seeds{
      safetensors_of({{"matrix", matrix}, {"wide", Tensor::zeros({2}, DType::f64)}}, {{"key", "value"}}),
      safetensors_of({{"none", Tensor::zeros({0, 3})}, {"mask", Tensor::zeros({3}, DType::boolean)}})};
  const std::map<const char*, std::size_t> bytes_of_four{{"BOOL", 4}, {"U8", 4},   {"F16", 8},  {"BF16", 8},
                                                         {"I32", 16}, {"I64", 32}, {"F32", 16}, {"F64", 32}};
  for (const auto& [type, bytes] : bytes_of_four) {
    const std::string dtype = std::string(R"({"x":{"dtype":")") + type;
    seeds.push_back(
        foreign_safetensors(dtype + R"(","shape":[4],"data_offsets":[0,)" + std::to_string(bytes) + "]}}",
                            std::string(bytes, '\0')));
  }
  return seeds;
}

void read_safetensors(const std::string& input) {
  const SafetensorsFile file = SafetensorsFile::open(put_input("x.safetensors", input));
  read_all(file);
}

Seeds sharded_index_seeds() {
  const Tensor x = Tensor::zeros({3});
  return {joined({kIndex, safetensors_of({{"a", x}, {"b", x}}), safetensors_of({{"c", x}})})};
}

void read_sharded_index(const std::string& input) {
  const std::vector<std::string> files = separated(input, 3);
  std::filesystem::create_directories(input_path("sharded"));
  put_input("sharded/model.safetensors.index.json", files[0]);
  put_input("sharded/one.safetensors", files[1]);
  put_input("sharded/two.safetensors", files[2]);
  read_all(SafetensorsFolder::open(input_path("sharded")));
}

Seeds token_file_seeds() {
  Seeds seeds;
  for (const Index vocabulary : {300, 70000}) {
    TokenFileWriter writer(input_path("seed.tokens"), vocabulary, 7);
    writer.append({0, 1, 2, 299, 4, 5});
    writer.finish();
    seeds.push_back(content_of(input_path("seed.tokens")));
  }
  return seeds;
}

void read_token_file(const std::string& input) {
  constexpr std::size_t kVersionAt = 8, kIdsChecksumAt = 40, kChecksumAt = 56, kHeader = 64;
  std::string repaired = input;  // authors of hostile files write fitting checksums
  const auto put = [&](std::size_t at, std::uint64_t sum) {
    for (std::size_t i = 0; i < 8; ++i) repaired[at + i] = static_cast<char>(sum >> (8 * i) & 255);
  };
  if (repaired.size() >= kHeader) {
    if (repaired[kVersionAt] == 2)
      put(kIdsChecksumAt, checksum(repaired.data() + kHeader, repaired.size() - kHeader));
    put(kChecksumAt, hash_text(repaired.substr(0, kChecksumAt)));
  }
  const TokenFile file = TokenFile::open(put_input("x.tokens", repaired));
  std::vector<std::int32_t> ids(static_cast<std::size_t>(file.size()));
  file.read(0, file.size(), ids.data());
  file.check();
}

Seeds npz_seeds() {
  const std::string path = input_path("seed.npz");
  save_npz(path, {{"none", {"<f4", {0, 2}, ""}}, {"text", {"|i1", {4}, "a: 1"}}});
  return {content_of(path)};
}

void read_npz(const std::string& input) { load_npz(put_input("x.npz", input)); }

Seeds torch_seeds() {
  const std::string golden = TAPEFORMER_SOURCE_DIR "/tests/golden/torch_";
  return {content_of(golden + "archive.bin"), content_of(golden + "legacy.bin")};
}

void read_torch(const std::string& input) {
  read_all(SafetensorsFile::open_torch(put_input("x.bin", input)));
}

}  // namespace

std::vector<Parser> format_parsers() {
  return {{"safetensors", safetensors_seeds, read_safetensors},
          {"sharded_index", sharded_index_seeds, read_sharded_index},
          {"token_file", token_file_seeds, read_token_file},
          {"npz", npz_seeds, read_npz},
          {"torch", torch_seeds, read_torch}};
}

}  // namespace tapeformer
