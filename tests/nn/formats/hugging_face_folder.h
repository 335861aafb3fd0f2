#pragma once

#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/nn/formats/hugging_face.h>
#include <tapeformer/nn/formats/safetensors_folder.h>
#include <tapeformer/optim/adamw.h>
#include <tapeformer/tests/nn/formats/temporary_folder.h>
#include <tapeformer/tests/reference/golden.h>
#include <tapeformer/tests/reference/sanitized.h>
#include <tapeformer/tests/reference/support.h>
#include <tapeformer/tests/reference/text.h>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace tapeformer {

inline std::string folder_of(const std::string& name) {
  return TAPEFORMER_SOURCE_DIR "/tests/golden/hugging_face/" + name;
}

/// A copy of a golden folder, to be damaged.
template <class Model = DecoderOnly>
struct Copy : TemporaryFolder {
  explicit Copy(const std::string& name) {
    std::filesystem::copy(folder_of(name), path());
    for (const auto& entry : std::filesystem::directory_iterator(path())) {
      std::filesystem::permissions(entry, std::filesystem::perms::owner_all);
    }
  }
  /// The error message, without the folder's path.
  std::string refusal() const {
    const std::string said = message_of<CheckpointError>([&] { load_hugging_face<Model>(path()); });
    return said.compare(0, path().size(), path()) == 0 ? said.substr(path().size()) : said;
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
      const SafetensorsFolder files = SafetensorsFolder::open(path());
      for (const std::string& name : files.names()) tensors.emplace_back(name, files.tensor(name));
    }
    change(tensors);
    save_safetensors(file("model.safetensors"), tensors);
  }
};

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

/// Exports to a folder, which is kept for tests/golden/check_export.py if TAPEFORMER_EXPORT_FOLDER names it.
struct Export : TemporaryFolder {
  explicit Export(const std::string& name) {
    const char* const kept = std::getenv("TAPEFORMER_EXPORT_FOLDER");
    folder = kept != nullptr ? std::string(kept) + "/" + name : file(name);
    std::filesystem::create_directories(folder);
  }
  std::string folder;
};

/// A step's part of batches [steps, B, T]: columns [first, first + count) of its rows.
template <class T = std::int32_t>
Tensor batch_of(const Tensor& batches, Index step, Index first, Index count) {
  const Index B = batches.size(1), whole = batches.size(2);
  const Tensor batch = Tensor::empty({B, count}, batches.dtype());
  for (Index b = 0; b < B; ++b)
    std::copy_n(batches.data<T>() + (step * B + b) * whole + first, count, batch.data<T>() + b * count);
  return batch;
}

/// The loss of a language model on a step's tokens in batches [steps, B, T + 1].
inline Tensor next_token_loss(const DecoderOnly& model, const Tensor& batches, Index step) {
  const Index T = batches.size(2) - 1;
  return model.loss(batch_of(batches, step, 0, T), batch_of(batches, step, 1, T));
}

/// The largest error of f32 logits, as a multiple of PyTorch's. It consists of about twenty roundings, so
/// that one processor has up to twice that of another, and 1.4 times that where products are rounded before
/// they are added.
constexpr double kMostTimesPyTorch = 6;

/// A third of the rows, tokens or steps where everything takes long: on an emulated GPU, or under the
/// sanitizers.
inline Index third_if_slow(Index all) {
  return default_device().is_cuda() || is_sanitized() ? (all + 2) / 3 : all;
}

/// The losses of fine-tuning in a golden file are those of the model, whose loss on batch i is loss_of(i).
template <class Model, class LossOf>
void check_fine_tuning(const Golden& golden, const std::string& name, Model& model, const LossOf& loss_of) {
  const DType type = model.parameters().front().value().dtype();
  if (is_sanitized() && type == DType::f32) return;  // whose passes other cases run
  INFO(name, " in ", std::string(name_of(type)));
  const auto options = golden.options(name);
  AdamWConfig adamw;
  adamw.beta1 = options.at("beta1"), adamw.beta2 = options.at("beta2");
  adamw.epsilon = options.at("adam_epsilon"), adamw.weight_decay = options.at("weight_decay");
  AdamW optimizer(model.parameters(), adamw);
  const Tensor losses = golden.tensor(name, type == DType::f64 ? "losses" : "losses_f32");
  for (Index i = 0; i < third_if_slow(losses.size(0)); ++i) {
    optimizer.clear_gradients();
    Tape tape;
    const Tensor loss = loss_of(i);
    tape.backward(loss);
    optimizer.step(options.at("learning_rate"));
    // In ten steps of AdamW, which divides gradients by their size, roundings of f32 grow a hundredfold.
    CHECK_BELOW(std::abs(loss.item() - losses.at(i)), type == DType::f64 ? 1e-11 : 1e-4);
  }
}

/// A folder has the tensors of another, in f32; those that differ from ours by 1, to half a unit in the last
/// place: the gains of Gemma, Qwen 3 Next and Qwen 3.5, and a tap of convolutions.
inline void check_same_tensors(const std::string& folder, const std::string& expected) {
  const SafetensorsFolder before = SafetensorsFolder::open(expected), after = SafetensorsFolder::open(folder);
  REQUIRE(after.names() == before.names());
  for (const std::string& tensor : before.names()) {
    INFO(tensor);
    const Tensor a = after.tensor(tensor), b = before.tensor(tensor).to(DType::f32);
    REQUIRE(a.describe() == b.describe());
    if (((has(expected, "gemma") || has(expected, "qwen3_next") || has(expected, "qwen3_5")) &&
         has(tensor, "norm")) ||
        has(tensor, "conv1d"))
      CHECK(absolute_error(a, b) <= std::exp2(-24));
    else
      CHECK(std::memcmp(a.raw(), b.raw(), static_cast<std::size_t>(a.bytes())) == 0);
  }
}

}  // namespace tapeformer
