#include <tapeformer/autograd/communication/mpi.h>
#include <tapeformer/autograd/config/json.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/autograd/system/file.h>
#include <tapeformer/examples/report/tensorboard_log.h>
#include <tapeformer/examples/shared/command_line.h>
#include <tapeformer/examples/shared/run_folder.h>
#include <tapeformer/nn/formats/safetensors.h>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace tapeformer {
namespace {

namespace fs = std::filesystem;

constexpr const char* kCheckpoint = "checkpoint.safetensors";
constexpr const char* kLock = "training.lock";
constexpr const char* kMetrics = "metrics.jsonl";
constexpr const char* kModelPrefix = "model.";
constexpr const char *kKeptWeights = "weights-", *kKeptCheckpoint = "checkpoint-";

std::string kept_name(const std::string& prefix, Index step) {
  return prefix + std::to_string(step) + ".safetensors";
}

[[noreturn]] void refuse(const std::string& path, const char* what, int system_error) {
  throw DataError(path, 0, std::string(what) + ": " + system_error_text(system_error));
}

/// Collects the optimizer's counters as JSON and its tensors as a list.
struct CollectState : OptimizerVisitor {
  std::vector<std::pair<std::string, Tensor>> tensors;
  Json counters = Json::object();
  void tensor(const std::string& name, const Tensor& value) override { tensors.emplace_back(name, value); }
  void counter(const std::string& name, std::int64_t& value) override { counters[name] = value; }
};

/// A counter in a checkpoint: a whole number, not negative.
template <class Number>
Number counter_in(const Json& counters, const std::string& name, const SafetensorsFile& file) {
  const Json& value = counters.at(name);
  const bool fits =
      value.is_number_unsigned() && value.get<std::uint64_t>() <= std::numeric_limits<Number>::max();
  if (!fits) throw CheckpointError(file.path() + ": the counter " + name + " is not a whole number");
  return value.get<Number>();
}

/// The step of a line of metrics; `otherwise` if it has none.
Index step_of(const Json& line, Index otherwise) {
  const auto step = line.find("step");
  return step != line.end() && step->is_number_integer() ? step->get<Index>() : otherwise;
}

/// A line of metrics as text.
std::string text_of(const Json& line) {
  return line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

struct RestoreState : OptimizerVisitor {
  RestoreState(const SafetensorsFile& source, const Json& numbers) : file(source), counters(numbers) {}
  const SafetensorsFile& file;
  const Json& counters;
  void tensor(const std::string& name, const Tensor& value) override { value.copy_from(file.tensor(name)); }
  void counter(const std::string& name, std::int64_t& value) override {
    value = counter_in<std::int64_t>(counters, name, file);
  }
};

}  // namespace

void make_folder(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) refuse(path, "cannot be made", error.value());
}

RunLock::RunLock(const std::string& folder) : folder_(folder), path_(folder + "/" + kLock) {
  std::error_code error;
  for (fs::path path = folder; !path.empty() && !fs::exists(path, error); path = path.parent_path())
    made_.push_back(path);
  make_folder(folder);
  while (true) {
    // Writable, because network file systems require that for locks.
    file_ = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (file_ < 0) refuse(path_, "cannot be written", errno);
    const int locked = flock(file_, LOCK_EX | LOCK_NB), problem = errno;
    if (locked == 0 && is_at(path_, file_)) break;
    close(file_);
    if (locked == 0) continue;  // its owner has removed it since
    if (problem == EWOULDBLOCK) {
      std::string holder;
      std::getline(std::ifstream(path_), holder);
      throw DataError(folder, 0,
                      "is in use by " + (holder.empty() ? "another process" : holder) +
                          "; wait until it has saved and ended, or name another --run folder");
    }
    std::fprintf(stderr, "note: %s cannot be locked (%s): do not start another run there\n", folder.c_str(),
                 std::strerror(problem));
    file_ = -1;
    break;
  }
  std::ofstream(path_) << "process " << getpid() << " on " << host_name() << "\n";
}

RunLock::~RunLock() {
  std::error_code ignored;
  if (file_ < 0 || is_at(path_, file_)) fs::remove(path_, ignored);
  if (file_ >= 0) close(file_);
  for (const std::string& folder : made_) fs::remove(folder, ignored);  // if it is empty
}

void RunLock::check() const {
  if (file_ < 0 || is_at(path_, file_)) return;  // below 0: the file system has no locks
  throw DataError(folder_, 0,
                  "was moved or removed during training, or its training.lock was: nothing more is written "
                  "there; the last save is intact, and --resume continues in a moved folder");
}

ScratchFolder::ScratchFolder() : path_((fs::temp_directory_path() / "tapeformer-XXXXXX").string()) {
  if (mkdtemp(path_.data()) == nullptr)
    throw DataError(path_, 0, "cannot be made: " + system_error_text(errno) + "; try another TMPDIR");
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

void RunFolder::refuse_if_used() const {
  if (!writes_) return;
  if (has_checkpoint() || fs::exists(file(kBestWeights)))
    throw DataError(path_, 0, "holds a run already; try --resume to continue it, or another --run folder");
  // A run that was killed before its first checkpoint has left a config.json too.
  const bool has_other = fs::exists(file("config.json")) && !config().contains("training");
  if (has_other || fs::exists(file("train.tokens")))
    throw DataError(path_, 0,
                    "holds another program's model or prepared tokens, which a run would change; try "
                    "another --run folder");
}

Json RunFolder::config() const { return parse_json(read_file(file("config.json")), file("config.json")); }

void RunFolder::create() const {
  if (!writes_) return;
  refuse_if_used();
  make_folder(path_);
  write(kMetrics, "");
}

bool RunFolder::has_checkpoint() const { return fs::exists(file(kCheckpoint)); }

/// The path of a file, for writing.
std::string RunFolder::to_write(const std::string& name) const {
  check_lock();
  return file(name);
}

void RunFolder::check_lock() const {
  if (lock_ != nullptr) lock_->check();
}

void RunFolder::write(const std::string& name, const std::string& content) const {
  if (writes_) write_atomically(to_write(name), content);
}

void RunFolder::save_best_weights(Module& model) const {
  if (!writes_) return;
  std::error_code ignored;
  fs::remove(to_write(kEvaluationFile), ignored);
  save_weights(to_write(kBestWeights), model);
}

std::future<void> RunFolder::save_checkpoint(Module& model, const VisitState& optimizer,
                                             const Json& state) const {
  if (!writes_) {
    OptimizerVisitor passes_over;  // another process writes this one's share of the state
    optimizer(passes_over);
    return {};
  }
  CollectState collect;
  for (const auto& [name, value] : weights_of(model))
    collect.tensors.emplace_back(kModelPrefix + name, value);
  optimizer(collect);
  Json counters = Json::object();
  for (const auto& [name, value] : model.named_counters()) counters[name] = *value;
  const std::map<std::string, std::string> metadata = {{"state", state.dump()},
                                                       {"model_counters", counters.dump()},
                                                       {"optimizer_counters", collect.counters.dump()}};
  const auto is_on_gpu = [](const auto& tensor) { return tensor.second.device().is_cuda(); };
  const bool meanwhile = std::all_of(collect.tensors.begin(), collect.tensors.end(), is_on_gpu);
  for (auto& [name, tensor] : collect.tensors) tensor = tensor.to(Device::cpu());
  const auto write = [metadata, tensors = std::move(collect.tensors), path = to_write(kCheckpoint),
                      metrics = file(kMetrics)] {
    if (fs::exists(metrics)) sync_to_disk(metrics);  // no checkpoint is ahead of them
    save_safetensors(path, tensors, metadata);
  };
  if (meanwhile) return std::async(std::launch::async, write);
  write();
  return {};
}

void RunFolder::keep_checkpoint(Index step, Index count) const {
  if (!writes_) return;
  const std::string kept = to_write(kept_name(kKeptCheckpoint, step));
  std::error_code error;
  fs::remove(kept, error);
  fs::create_hard_link(file(kCheckpoint), kept, error);
  if (error) fs::copy_file(file(kCheckpoint), kept, error);  // a file system without links
  if (error) refuse(kept, "cannot be written", error.value());
  remove_all_but(count, kKeptCheckpoint, step);
}

/// The command that replaces a damaged checkpoint by the last sound one that was kept; "" if there is none.
std::string RunFolder::earlier_checkpoint() const {
  for (const Index step : steps_of(kKeptCheckpoint)) {
    const std::string kept = file(kept_name(kKeptCheckpoint, step));
    try {
      SafetensorsFile::open(kept);
    } catch (const CheckpointError&) {
      continue;
    }
    return format("; that of step {} is intact, and --resume continues from it after: {}", step,
                  command_text({"mv", kept, file(kCheckpoint)}));
  }
  return "";
}

Json RunFolder::checkpoint_state() const {
  if (!has_checkpoint()) {
    const std::string earlier = earlier_checkpoint();
    throw CheckpointError(path_ + ": there is no checkpoint to resume from" +
                          (earlier.empty() ? "; try the command without --resume" : earlier));
  }
  std::map<std::string, std::string> metadata;
  try {
    metadata = SafetensorsFile::open(file(kCheckpoint)).metadata();
  } catch (const DamagedFile& error) {
    const std::string earlier = earlier_checkpoint();
    throw CheckpointError(error.what() + (earlier.empty() ? "; try a copy of it, or a new run --from " +
                                                                path_ + ", which begins with the best weights"
                                                          : earlier));
  }
  if (metadata.count("state") == 0)
    throw CheckpointError(file(kCheckpoint) + ": is not a training checkpoint: it has no state");
  return parse_json(metadata.at("state"), file(kCheckpoint) + ": the state");
}

void RunFolder::refuse_state(const std::string& reason) const {
  throw CheckpointError(path_ +
                        ": the checkpoint's state does not fit this program; does the run belong to another "
                        "program or version? (" +
                        reason + ")");
}

void RunFolder::load_checkpoint(Module& model, const VisitState& optimizer) const {
  const SafetensorsFile source = SafetensorsFile::open(file(kCheckpoint));
  load_weights(source, kModelPrefix, model);
  const auto numbers_in = [&](const char* name) {
    return parse_json(source.metadata().at(name), file(kCheckpoint) + ": " + name);
  };
  try {
    const Json counters = numbers_in("model_counters");
    for (const auto& [name, value] : model.named_counters())
      *value = counter_in<std::uint64_t>(counters, name, source);
    const Json numbers = numbers_in("optimizer_counters");
    RestoreState restore(source, numbers);
    optimizer(restore);
  } catch (const std::out_of_range&) {
    throw CheckpointError(file(kCheckpoint) + ": is not a training checkpoint: it has no counters");
  } catch (const Json::exception& error) {
    throw CheckpointError(file(kCheckpoint) + ": the counters do not fit the model: " + reason_of(error));
  }
}

/// The steps in the names of files with this prefix, latest first.
std::vector<Index> RunFolder::steps_of(const std::string& prefix) const {
  std::vector<Index> steps;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(path_, error)) {
    const std::string name = entry.path().filename().string();
    if (name.rfind(prefix, 0) != 0) continue;
    const Index found = std::atoll(name.c_str() + prefix.size());
    if (name == kept_name(prefix, found)) steps.push_back(found);
  }
  std::sort(steps.begin(), steps.end(), std::greater<>());
  return steps;
}

void RunFolder::remove_all_but(Index count, const std::string& prefix, Index step) const {
  for (const Index found : steps_of(prefix)) {
    // Later files are of a course that the run has left; where it gets there, it writes its own.
    if (found <= step && --count >= 0) continue;
    const std::string path = file(kept_name(prefix, found));
    std::error_code error;
    fs::remove(path, error);
    if (error) refuse(path, "cannot be removed", error.value());
  }
}

void RunFolder::load_average(Index count, Module& model) const {
  const std::vector<Index> kept = steps_of(kKeptWeights);
  if (static_cast<Index>(kept.size()) < count) {
    throw Error(
        format("--average {} is more than the {} weights that {} keeps; train with --keep-checkpoints", count,
               kept.size(), path_));
  }
  std::vector<std::string> files;
  for (Index i = 0; i < count; ++i)
    files.push_back(file(kept_name(kKeptWeights, kept[static_cast<std::size_t>(i)])));
  average_weights(files, model);
}

void RunFolder::keep_weights(Module& model, Index step, Index count) const {
  if (!writes_) return;
  save_weights(to_write(kept_name(kKeptWeights, step)), model);
  remove_all_but(count, kKeptWeights, step);
}

void RunFolder::append_metrics(const Json& line) const {
  if (!writes_) return;
  append_to_file(to_write(kMetrics), text_of(line));
  if (!events_) return;
  std::vector<std::pair<std::string, double>> scalars;
  for (const auto& [name, value] : line.items())
    if (name != "step" && value.is_number()) scalars.emplace_back(name, value.get<double>());
  events_->add(step_of(line, 0), scalars);
}

std::vector<Json> RunFolder::metric_lines(std::size_t most) const {
  std::error_code missing;
  const std::uintmax_t bytes = fs::file_size(file(kMetrics), missing);
  if (!missing && bytes > kMostBytesRead)
    throw CheckpointError(format("{}: {} bytes are too many; the limit is {}; try to move the file away",
                                 file(kMetrics), bytes, kMostBytesRead));
  const auto has = [](const std::string& line, const char* part) { return line.find(part) != line.npos; };
  const auto for_each_line = [&](const auto& use) {
    std::ifstream text(file(kMetrics));
    for (std::string line; std::getline(text, line);)
      use(line, has(line, "\"validation_loss\"") ? 1 : has(line, "\"bad_step\":") ? 2 : 0);
    // An unreadable file must not pass for an empty one, which cut_metrics() would write.
    if (text.bad() || (!text.is_open() && !missing)) refuse(file(kMetrics), "cannot be read", errno);
  };
  std::size_t counts[3] = {}, read[3] = {}, best = 0;  // best: the number of the line with the best loss
  for_each_line([&](const std::string& line, int kind) {
    ++counts[kind];
    if (has(line, "\"best\":true")) best = counts[1];
  });
  std::vector<Json> lines;
  for_each_line([&](const std::string& line, int kind) {
    const bool is_kept = ++read[kind] % (counts[kind] / most + 1) == 0 || read[kind] == counts[kind] ||
                         (kind == 1 && read[1] == best) || has(line, "\"best_");
    if (!is_kept) return;
    try {
      if (Json entry = parse_json(line); entry.is_object()) lines.push_back(std::move(entry));
    } catch (const CheckpointError&) {
    }
  });
  return lines;
}

double RunFolder::elapsed() const {
  double seconds = 0;
  for (const Json& line : metric_lines())
    if (line.contains("elapsed") && line["elapsed"].is_number()) seconds = line["elapsed"].get<double>();
  return seconds;
}

bool RunFolder::has_ending(Index step) const {
  for (const Json& line : metric_lines())
    if (step_of(line, -1) == step && line.contains("seconds")) return true;
  return false;
}

void RunFolder::cut_metrics(Index step) const {
  std::string kept;
  for (const Json& line : metric_lines())
    if (step_of(line, 0) <= step) kept += text_of(line);
  write(kMetrics, kept);
  if (events_) events_->restart(step);
}

}  // namespace tapeformer
