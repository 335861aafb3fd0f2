#pragma once

#include <tapeformer/nn/formats/checkpoint.h>
#include <tapeformer/optim/optimizer.h>

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <vector>

namespace tapeformer {

class Command;

using Json = nlohmann::ordered_json;  // to look into one takes <nlohmann/json.hpp>

/// Keeps other trainings out of a run folder until it goes or the process ends, however that ends. Reading
/// stays free. Where the file system has no locks, it says so and keeps nobody out.
class RunLock {
 public:
  /// Makes the folder where there is none. In the end those that it made go again if they are empty.
  /// Throws: DataError naming the process and the host that have it, or why the folder cannot be written
  explicit RunLock(const std::string& folder);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  std::string path_;               // of the locked file, which names the process
  std::vector<std::string> made_;  // folders, the inner one first
  int file_ = -1;
};

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
  /// Gives the model the mean of the last `count` weights that are kept. Throws: CheckpointError, or Error if
  /// fewer are
  void load_average(Index count, Module& model) const;

  void append_metrics(const Json& line) const;
  /// Whether metrics.jsonl has the line that ends a training of so many steps.
  bool has_ending(Index step) const;
  /// Drops the lines of metrics.jsonl that come after `step`: the resumed run writes them again.
  void cut_metrics(Index step) const;

 private:
  std::string path_;
};

/// The option --average of a command that uses a model; 0 for the best weights.
void add_average_option(const Command& command, Index& average);

}  // namespace tapeformer
