#pragma once

#include <tapeformer/nn/formats/checkpoint.h>
#include <tapeformer/optim/optimizer.h>

#include <nlohmann/json_fwd.hpp>

#include <future>
#include <limits>

namespace tapeformer {

using Json = nlohmann::ordered_json;  // declared only: its use needs <nlohmann/json.hpp>

constexpr const char* kBestWeights = "weights.safetensors";
constexpr const char* kEvaluationFile = "evaluation.json";  // the last measurement of `evaluate`

/// Makes a folder and its parents, where they do not exist. Throws: DataError
void make_folder(const std::string& path);

/// Keeps other runs out of a run folder while it exists, at most until the process ends. Does not affect
/// reading. If the file system has no locks, prints a note and locks nothing.
class RunLock {
 public:
  /// Makes the folder if there is none. The destructor removes folders that it made if they are empty.
  /// Throws: DataError naming the process and host of the lock, or the reason why the folder cannot be
  ///         written
  explicit RunLock(const std::string& folder);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

  /// Throws: DataError if the folder or its lock was moved or removed, so that another run may use the folder
  void check() const;

 private:
  std::string folder_, path_;      // path_: the locked file, which names the process
  std::vector<std::string> made_;  // the folders made, the innermost first
  int file_ = -1;
};

/// A temporary folder, which is removed with its files at the end of its scope. Throws: DataError
class ScratchFolder {
 public:
  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

class TensorBoardLog;

/// Shows a visitor the state of training besides the model: that of the optimizer and of the moving average.
using VisitState = std::function<void(OptimizerVisitor&)>;

/// The files of one run: config.json, vocabularies, weights.safetensors (the best so far),
/// weights-STEP.safetensors (the last ones, if kept), checkpoint.safetensors (everything that resuming
/// needs), checkpoint-STEP.safetensors (earlier ones, if kept) and metrics.jsonl.
class RunFolder {
 public:
  /// Without `writes`, functions that write do nothing: another process of the run writes. With a `lock` they
  /// throw DataError if it is no longer valid.
  explicit RunFolder(std::string path, bool writes = true, std::shared_ptr<const RunLock> lock = {})
      : path_(std::move(path)), writes_(writes), lock_(std::move(lock)) {}
  bool writes() const { return writes_; }
  /// Throws: DataError if the lock is no longer valid
  void check_lock() const;

  /// Makes the folder for a new run.
  /// Throws: DataError, CheckpointError if it cannot be written; as refuse_if_used()
  void create() const;
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }
  bool has_checkpoint() const;
  /// Throws: DataError if the folder holds a run, another program's model or prepared tokens already
  void refuse_if_used() const;
  /// The content of config.json. Throws: DataError if it cannot be read, CheckpointError if it is not JSON
  Json config() const;

  /// Writes a file whole or not at all. Throws: CheckpointError
  void write(const std::string& name, const std::string& content) const;

  /// Writes weights.safetensors, and removes the evaluation of the former weights.
  void save_best_weights(Module& model) const;
  /// Writes model, optimizer and `state` to one file, by one rename. A model on a GPU is copied at once and
  /// written while training continues: the result is then valid(), must be waited for, and rethrows an
  /// exception from writing. Where processes share the optimizer's state, all must call this.
  std::future<void> save_checkpoint(Module& model, const VisitState& optimizer, const Json& state) const;
  /// To be called before the next checkpoint is saved: keeps the last one, of `step`, as
  /// checkpoint-STEP.safetensors, and removes such files except the last `count` up to that step.
  void keep_checkpoint(Index step, Index count) const;
  /// The state alone, from which model and optimizer can be built. Throws: CheckpointError, which names an
  /// earlier checkpoint to resume from if this one is damaged
  Json checkpoint_state() const;
  /// Refuses an incomplete state. Throws: CheckpointError
  [[noreturn]] void refuse_state(const std::string& reason) const;
  /// Restores model and optimizer to the last bit. Throws: CheckpointError
  void load_checkpoint(Module& model, const VisitState& optimizer) const;

  /// Writes weights-STEP.safetensors, and removes such files except the last `count` up to that step.
  void keep_weights(Module& model, Index step, Index count) const;
  /// Sets the model to the mean of the last `count` kept weights. Throws: CheckpointError; Error if there are
  /// fewer
  void load_average(Index count, Module& model) const;

  /// From now on every number of append_metrics() goes to `log` too.
  void write_events(std::shared_ptr<TensorBoardLog> log) { events_ = std::move(log); }
  void append_metrics(const Json& line) const;
  /// The lines of metrics.jsonl, except damaged ones, as the last may be after a kill: at most about `most`
  /// lines of training, of validation and of bad steps each, evenly spread, and those with the best losses.
  std::vector<Json> metric_lines(std::size_t most = std::numeric_limits<std::size_t>::max()) const;
  /// The seconds that the run has taken so far, by metrics.jsonl.
  double elapsed() const;
  /// True if metrics.jsonl has the last line of a session that ended at `step`.
  bool has_ending(Index step) const;
  /// Drops the lines of metrics.jsonl after `step`, which the resumed run writes again.
  void cut_metrics(Index step) const;

 private:
  std::string to_write(const std::string& name) const;
  std::vector<Index> steps_of(const std::string& prefix) const;
  void remove_all_but(Index count, const std::string& prefix, Index step) const;
  std::string earlier_checkpoint() const;

  std::string path_;
  bool writes_;
  std::shared_ptr<const RunLock> lock_;
  std::shared_ptr<TensorBoardLog> events_;
};

}  // namespace tapeformer
