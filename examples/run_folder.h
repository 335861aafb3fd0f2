#pragma once

#include <tapeformer/nn/checkpoint.h>
#include <tapeformer/optim/optimizer.h>

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <vector>

namespace tapeformer {

using Json = nlohmann::ordered_json;  // to look into one takes <nlohmann/json.hpp>

/// The files of one training: config.json, vocabularies, weights.safetensors (the best so far),
/// weights-STEP.safetensors (the last ones, where they are kept), checkpoint.safetensors (everything that
/// resuming needs) and metrics.jsonl.
class RunFolder {
 public:
  explicit RunFolder(std::string path) : path_(std::move(path)) {}

  /// Makes the folder for a new training.
  /// Throws: DataError if it cannot be written or holds a training already
  void create() const;
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }
  bool has_checkpoint() const;
  /// Throws: DataError if the folder holds a training or a model already
  void refuse_if_used() const;
  /// What config.json says. Throws: CheckpointError
  Json config() const;

  /// Writes a file whole or not at all.
  void write(const std::string& name, const std::string& content) const;

  /// Model, optimizer and `state` in one file, by one rename.
  void save_checkpoint(Module& model, Optimizer& optimizer, const Json& state) const;
  /// The state alone, to build model and optimizer from. Throws: CheckpointError
  Json checkpoint_state() const;
  /// Fills model and optimizer to the last bit. Throws: CheckpointError
  void load_checkpoint(Module& model, Optimizer& optimizer) const;

  /// Writes weights-STEP.safetensors, and removes all of these but the last `count`.
  void keep_weights(Module& model, Index step, Index count) const;
  /// The steps whose weights are kept, the latest first.
  std::vector<Index> kept_steps() const;
  /// The file that keeps the weights of a step.
  std::string kept_weights(Index step) const;

  void append_metrics(const Json& line) const;
  /// Drops the lines of metrics.jsonl that come after `step`: the resumed run writes them again.
  void cut_metrics(Index step) const;

 private:
  std::string path_;
};

}  // namespace tapeformer
