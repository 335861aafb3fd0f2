#include <tapeformer/autograd/error.h>
#include <tapeformer/nn/formats/ends_with.h>
#include <tapeformer/nn/formats/safetensors_folder.h>
#include <tapeformer/nn/formats/strict_json.h>

#include <filesystem>
#include <set>

namespace tapeformer {
namespace {

SafetensorsFile open_file(const std::string& path) {
  return ends_with(path, ".bin") ? SafetensorsFile::open_torch(path) : SafetensorsFile::open(path);
}

}  // namespace

SafetensorsFolder::SafetensorsFolder(const SafetensorsFile& file) : path_(file.path()), files_{file} {
  for (const std::string& name : file.names()) file_of_[name] = 0;
}

SafetensorsFolder SafetensorsFolder::open(const std::string& folder) {
  for (const char* name : {"/model.safetensors", "/pytorch_model.bin"}) {
    const std::string model = folder + name, index = model + ".index.json";
    if (std::filesystem::exists(model)) return SafetensorsFolder(open_file(model));
    if (std::filesystem::exists(index)) return open_index(folder, index);
  }
  throw CheckpointError(folder +
                        ": has neither model.safetensors nor pytorch_model.bin, nor an index of several; try "
                        "save_pretrained() of transformers, which writes them");
}

SafetensorsFolder SafetensorsFolder::open_index(const std::string& folder, const std::string& path) {
  const auto fail = [&](const std::string& what) { throw CheckpointError(path + ": " + what); };
  constexpr int kLevels = 8;  // two for the index, the rest for its metadata
  const auto index = parse_json(read_file<CheckpointError>(path), path + ": the index", kLevels);
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object())
    fail("has no object 'weight_map'");
  SafetensorsFolder tensors;
  tensors.path_ = path;
  std::map<std::string, std::size_t> opened;  // by their names in the index
  for (const auto& [name, file] : index["weight_map"].items()) {
    if (!file.is_string()) fail("tensor '" + name + "' is in no file");
    const std::string file_name = file.get<std::string>();
    if (file_name.empty() || file_name.find('/') != std::string::npos ||
        file_name.find('\0') != std::string::npos) {
      fail("tensor '" + name + "' is in a file outside the folder");
    }
    const auto [entry, is_new] = opened.emplace(file_name, tensors.files_.size());
    if (is_new) tensors.files_.push_back(open_file(folder + "/" + file_name));
    if (!tensors.files_[entry->second].contains(name)) fail("tensor '" + name + "' is not in " + file_name);
    tensors.file_of_[name] = entry->second;
  }
  for (const SafetensorsFile& file : tensors.files_) {
    for (const std::string& name : file.names()) {
      if (!tensors.contains(name)) fail("does not list tensor '" + name + "' of " + file.path());
      if (&tensors.file(name) != &file)
        fail("tensor '" + name + "' is in " + tensors.file(name).path() + " and in " + file.path());
    }
  }
  return tensors;
}

std::vector<std::string> SafetensorsFolder::names() const {
  std::vector<std::string> names;
  for (const auto& [name, file] : file_of_) names.push_back(name);
  return names;
}

const SafetensorsFile& SafetensorsFolder::file(const std::string& name) const {
  const auto found = file_of_.find(name);
  if (found == file_of_.end()) throw CheckpointError(path_ + ": has no tensor '" + name + "'");
  return files_[found->second];
}

void SafetensorsFolder::check_fit(const std::vector<std::pair<std::string, Shape>>& wanted,
                                  const std::function<bool(const std::string&)>& is_ignored) const {
  constexpr int kMostListed = 10;  // a file may have millions of tensors
  int count = 0;
  std::string problems;
  const auto add = [&](const std::string& problem) {
    if (++count <= kMostListed) problems += "\n  " + problem;
  };
  std::set<std::string> names;
  for (const auto& [name, shape_here] : wanted) {
    names.insert(name);
    if (!contains(name)) {
      add(name + " is missing");
    } else if (shape(name) != shape_here) {
      add(name + " is " + shape(name).text() + " in the file and " + shape_here.text() + " in the model");
    } else if (const std::string& type = file(name).dtype(name); type.find('F') == std::string::npos) {
      add(name + " is of type " + type + ", not of a floating one");
    }
  }
  for (const auto& [name, file] : file_of_)
    if (names.count(name) == 0 && !is_ignored(name)) add(name + " is not in the model");
  if (count > kMostListed) problems += "\n  and " + std::to_string(count - kMostListed) + " more";
  if (count > 0) throw CheckpointError(path_ + ": the weights do not fit the model:" + problems);
}

}  // namespace tapeformer
