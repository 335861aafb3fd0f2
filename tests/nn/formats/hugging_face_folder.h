#pragma once

#include <tapeformer/autograd/error.h>
#include <tapeformer/nn/formats/hugging_face.h>
#include <tapeformer/nn/formats/safetensors_folder.h>
#include <tapeformer/tests/nn/formats/temporary_folder.h>
#include <tapeformer/tests/reference/support.h>

#include <doctest/doctest.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

namespace tapeformer {

inline std::string folder_of(const std::string& name) {
  return TAPEFORMER_SOURCE_DIR "/tests/golden/hugging_face/" + name;
}

/// A copy of a golden folder, to be spoilt.
template <class Model = DecoderOnly>
struct Copy : TemporaryFolder {
  explicit Copy(const std::string& name) {
    std::filesystem::copy(folder_of(name), folder());
    for (const auto& entry : std::filesystem::directory_iterator(folder())) {
      std::filesystem::permissions(entry, std::filesystem::perms::owner_all);
    }
  }
  std::string folder() const { return std::filesystem::path(file("x")).parent_path(); }
  /// The error message, without the folder's path.
  std::string refusal() const {
    const std::string said = message_of<CheckpointError>([&] { load_hugging_face<Model>(folder()); });
    return said.compare(0, folder().size(), folder()) == 0 ? said.substr(folder().size()) : said;
  }
  void replace(const std::string& name, const std::string& from, const std::string& to) const {
    std::string text = read_bytes(file(name));
    REQUIRE(text.find(from) != std::string::npos);
    write_bytes(file(name), text.replace(text.find(from), from.size(), to));
  }
  /// Writes model.safetensors again, after change(tensors).
  template <class F>
  void rewrite(const F& change) const {
    std::vector<std::pair<std::string, Tensor>> tensors;
    {
      const SafetensorsFolder files = SafetensorsFolder::open(folder());
      for (const std::string& name : files.names()) tensors.emplace_back(name, files.tensor(name));
    }
    change(tensors);
    save_safetensors(file("model.safetensors"), tensors);
  }
};

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

/// Exports to a folder that stays if TAPEFORMER_EXPORT_FOLDER names one, for tests/golden/check_export.py.
struct Export : TemporaryFolder {
  explicit Export(const std::string& name) {
    const char* const kept = std::getenv("TAPEFORMER_EXPORT_FOLDER");
    folder = kept != nullptr ? std::string(kept) + "/" + name : file(name);
    std::filesystem::create_directories(folder);
  }
  std::string folder;
};

}  // namespace tapeformer
