#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/nn/formats/ends_with.h>
#include <tapeformer/nn/formats/little_endian.h>
#include <tapeformer/nn/formats/pickle.h>
#include <tapeformer/nn/formats/safetensors.h>
#include <tapeformer/nn/formats/strict_json.h>
#include <tapeformer/nn/formats/zip.h>

#include <algorithm>

// Source:  torch/serialization.py of PyTorch, _save and _legacy_save
namespace tapeformer {
namespace {

constexpr std::uint64_t kMostPickle = 1 << 24;  // bytes; a tensor takes some 200
constexpr std::string_view kLegacy("\x80\2\x8a\12l\xfc\x9c\x46\xf9 j\xa8P\31.", 15);  // torch's magic number

/// Values that several tensors may share.
struct TorchStorage {
  std::string dtype;                // as in safetensors
  std::uint64_t at = 0, bytes = 0;  // in the file
};
using TorchStorages = std::map<std::string, TorchStorage>;

const PickleValue& item(const PickleValue& tuple, std::size_t i, PickleValue::Kind kind) {
  if (i >= tuple.items.size() || tuple.items[i]->kind != kind) throw CheckpointError("is damaged");
  return *tuple.items[i];
}
const std::string& text_in(const PickleValue& tuple, std::size_t i) {
  return item(tuple, i, PickleValue::Kind::text).text;
}
std::vector<Index> counts_in(const PickleValue& tuple, std::size_t i) {
  const PickleValue& counts = item(tuple, i, PickleValue::Kind::tuple);
  std::vector<Index> numbers;
  for (std::size_t at = 0; at < counts.items.size(); ++at) {
    numbers.push_back(item(counts, at, PickleValue::Kind::number).number);
    if (numbers.back() < 0) throw CheckpointError("is damaged");
  }
  return numbers;
}

/// The storages by key, without their places in the file.
TorchStorages storages_in(const Pickle& pickle) {
  static const std::map<std::string, const char*> kTypes{
      {"torch FloatStorage", "F32"},     {"torch DoubleStorage", "F64"}, {"torch HalfStorage", "F16"},
      {"torch BFloat16Storage", "BF16"}, {"torch LongStorage", "I64"},   {"torch IntStorage", "I32"},
      {"torch ByteStorage", "U8"},       {"torch BoolStorage", "BOOL"}};
  TorchStorages storages;
  for (const PickleValuePtr& object : pickle.objects) {
    const std::string& type = item(*object, 1, PickleValue::Kind::name).text;
    const auto known = kTypes.find(type);
    if (known == kTypes.end())
      throw CheckpointError("has tensors of the type " + type + ", which are not supported");
    storages[text_in(*object, 2)].dtype = known->second;
  }
  return storages;
}

/// The storages of an archive, each in a file next to data.pkl.
Pickle read_archive(const OpenedFile<CheckpointError>& file, TorchStorages& storages) {
  constexpr std::string_view kPickle = "/data.pkl";
  const std::vector<ZipEntry> entries = zip_entries(file);
  const auto found = std::find_if(entries.begin(), entries.end(),
                                  [&](const ZipEntry& entry) { return ends_with(entry.name, kPickle); });
  if (found == entries.end() || found->bytes > kMostPickle) throw CheckpointError("has no data.pkl");
  const std::string prefix = found->name.substr(0, found->name.size() - kPickle.size()) + "/data/";
  const Pickle pickle = Pickle::read(bytes_at(file, found->at, found->bytes));
  storages = storages_in(pickle);
  for (const ZipEntry& entry : entries) {
    if (entry.name.compare(0, prefix.size(), prefix) != 0) continue;
    const auto storage = storages.find(entry.name.substr(prefix.size()));
    if (storage != storages.end()) storage->second.at = entry.at, storage->second.bytes = entry.bytes;
  }
  return pickle;
}

/// The storages of a file from before PyTorch 1.6: in the order of a list of keys, each after its length.
Pickle read_legacy(const OpenedFile<CheckpointError>& file, const std::string& head,
                   std::size_t (*bytes_of)(const std::string&, const std::vector<Index>&),
                   TorchStorages& storages) {
  std::size_t at = kLegacy.size();
  for (int i = 0; i < 2; ++i) at = Pickle::read(head, at).end;  // the version, and the machine
  const Pickle pickle = Pickle::read(head, at), keys = Pickle::read(head, pickle.end);
  storages = storages_in(pickle);
  std::uint64_t end = keys.end;
  for (const PickleValuePtr& key : keys.listed) {
    const auto storage = storages.find(key->text);
    if (storage == storages.end()) throw CheckpointError("is damaged");
    const auto elements = number_at<Index>(bytes_at(file, end, sizeof(Index)), 0);
    TorchStorage& here = storage->second;
    here.at = end + sizeof(Index), here.bytes = bytes_of(here.dtype, {elements});
    end = here.at + here.bytes;
    if (elements < 0 || here.bytes > file.size() || end > file.size()) throw CheckpointError("is cut short");
  }
  return pickle;
}

}  // namespace

SafetensorsFile SafetensorsFile::open_torch(const std::string& path) {
  SafetensorsFile file(path);
  const auto add = [&](const std::string& name, const PickleValue& tensor, const TorchStorages& storages) {
    const auto storage = storages.find(text_in(item(tensor, 0, PickleValue::Kind::tuple), 2));
    const Index first = item(tensor, 1, PickleValue::Kind::number).number;
    if (storage == storages.end() || first < 0) throw CheckpointError("is damaged");
    const auto& [dtype, at, available] = storage->second;
    Entry entry{name, dtype, counts_in(tensor, 2)};
    const std::vector<Index> strides = counts_in(tensor, 3);
    const std::size_t before = bytes_of_shape(dtype, {first}), bytes = bytes_of_shape(dtype, entry.sizes);
    if (before > available || bytes > available - before) throw CheckpointError("is cut short");
    Index stride = 1;
    for (std::size_t i = entry.sizes.size(); bytes > 0 && i-- > 0; stride *= entry.sizes[i])
      if (strides.size() != entry.sizes.size() || (entry.sizes[i] != 1 && strides[i] != stride))
        throw CheckpointError("is not stored row by row; try save_pretrained() of transformers");
    entry.begin = at + before, entry.end = entry.begin + bytes;
    if (!file.by_name_.emplace(name, file.entries_.size()).second) throw CheckpointError("appears twice");
    file.entries_.push_back(std::move(entry));
  };
  naming(path, [&] {
    TorchStorages storages;
    const std::string head = bytes_at(file.file_, 0, std::min(file.file_.size(), kMostPickle));
    const Pickle pickle = head.compare(0, kLegacy.size(), kLegacy) == 0
                              ? read_legacy(file.file_, head, bytes_of_shape, storages)
                              : read_archive(file.file_, storages);
    for (const auto& [key, tensor] : pickle.tensors)
      naming("tensor '" + key->text + "'",
             [&, &name = key->text, &value = *tensor] { add(name, value, storages); });
    if (file.entries_.empty()) throw CheckpointError("has no dictionary of tensors");
  });
  return file;
}

}  // namespace tapeformer
