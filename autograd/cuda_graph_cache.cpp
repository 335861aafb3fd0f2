#include <tapeformer/autograd/cuda_graph_cache.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/autograd/profile.h>
#include <tapeformer/autograd/storage_watch.h>
#include <tapeformer/autograd/tape/tape.h>

#include <algorithm>
#include <unordered_set>

namespace tapeformer {
namespace {

constexpr std::size_t kMostWorks = 256;      // keys that are remembered
constexpr std::uint64_t kRunsUnused = 1000;  // a graph may be discarded after this many runs of others
constexpr int kStepBits = 32;                // a step of a Dropout layer draws from 2^32 blocks
// A capture pays off after this many replays; work is given up after this many graphs in a row that were
// discarded earlier.
constexpr Index kWorthwhileReplays = 4, kMostInVain = 3;

/// While it lives, the counters that a capture may advance, and the addresses from which replays read their
/// advances.
struct MovableCounters {
  MovableCounters(const std::vector<std::uint64_t*>& all, const std::uint64_t* to)
      : counters(all), moves(to) {
    current = this;
  }
  ~MovableCounters() { current = nullptr; }
  inline static thread_local const MovableCounters* current = nullptr;
  const std::vector<std::uint64_t*>& counters;
  const std::uint64_t* moves;
};
thread_local CudaGraphCache::Counts counts_of_thread;

/// The memory outside the graph's own that a capture uses; the graph keeps it alive.
class OutsideMemory {
 public:
  explicit OutsideMemory(Device device)
      : device_(device), watch_([this](const Handle<Storage>& storage) { see(storage); }) {}
  std::vector<Handle<Storage>> take() { return std::move(found_); }

 private:
  void see(const Handle<Storage>& storage) {
    if (storage->device != device_ || cuda::is_graph_memory(device_.index, storage->data)) return;
    if (known_.insert(storage.get()).second) found_.push_back(storage);
  }

  Device device_;
  std::unordered_set<const Storage*> known_;
  std::vector<Handle<Storage>> found_;
  StorageWatch watch_;
};

/// A tensor of the same elements, without ownership.
Tensor unowned(const Tensor& x) {
  Handle<Storage> storage(new Storage(x.state()->storage->data, static_cast<std::size_t>(x.bytes()), [] {}));
  storage->device = x.device();
  return Tensor::adopt(std::move(storage), x.shape(), x.dtype());
}

std::uint64_t word(const void* address) { return reinterpret_cast<std::uintptr_t>(address); }
std::uint64_t address_word(const Tensor& x) { return x.defined() ? word(x.state()->storage->data) : 0; }

}  // namespace

/// Work with one key.
struct CudaGraphCache::Work {
  Index seen = 0;
  bool is_refused = false;
  std::uint64_t last_run = 0;
  std::int64_t warm_up_bytes = 0;  // the most memory that the body used
  std::unique_ptr<cuda::Graph> graph;
  std::vector<Tensor> inputs;  // the graph reads these
  Tensor result;               // in memory that all graphs share, so that another graph overwrites it
  std::vector<Handle<Storage>> outside;  // other memory that it reads and writes
  std::vector<std::size_t> brought;      // the parameters that got their first gradient
  std::vector<std::uint64_t> counters;   // at the capture
  std::vector<std::uint64_t> advances;   // by the body
  Index replays = 0;                     // replays of this graph
  Index in_vain = 0;                     // recent graphs in a row that were discarded after few replays

  void drop_graph() {
    graph.reset();
    inputs.clear();
    outside.clear();
    result = Tensor();
  }
};

CudaGraphCache::CudaGraphCache(ModelState model, Index most_graphs)
    : most_graphs_(most_graphs), model_(std::move(model)) {}

CudaGraphCache::~CudaGraphCache() = default;

const CudaGraphCache::Counts& CudaGraphCache::counts_of_all() { return counts_of_thread; }

void CudaGraphCache::count(Index Counts::*which) {
  ++(counts_.*which);
  ++(counts_of_thread.*which);
}

CudaGraphCache::GraphKey CudaGraphCache::key_of(const std::vector<Tensor>& inputs) const {
  GraphKey words;
  words.reserve(8 * inputs.size() + 4 * model_.parameters.size() + model_.buffers.size() +
                model_.modes.size() + 1);
  for (const Tensor& x : inputs) {
    words.push_back(x.defined());
    if (!x.defined()) continue;
    words.push_back(static_cast<std::uint64_t>(x.dtype()));
    words.push_back(static_cast<std::uint64_t>(x.rank()));
    for (const Index size : x.shape()) words.push_back(static_cast<std::uint64_t>(size));
  }
  words.push_back(static_cast<std::uint64_t>(matmul_precision()));
  for (const Parameter& parameter : model_.parameters) {
    const ParameterState& state = *parameter.state();
    words.push_back(address_word(state.value));
    words.push_back(address_word(state.shadow));
    words.push_back(address_word(state.gradient));
    words.push_back((state.has_gradient ? 1u : 0u) + (state.trainable ? 2u : 0u));
  }
  for (const Tensor* buffer : model_.buffers) words.push_back(address_word(*buffer));
  for (const bool* mode : model_.modes) words.push_back(*mode);
  return words;
}

CudaGraphCache::Work& CudaGraphCache::work(const std::string& tag, GraphKey key) {
  const auto [found, is_new] = works_.try_emplace({tag, std::move(key)});
  if (is_new) found->second = std::make_unique<Work>();
  found->second->last_run = ++runs_;
  if (works_.size() > kMostWorks) {
    const auto older = [](const auto& a, const auto& b) { return a.second->last_run < b.second->last_run; };
    works_.erase(std::min_element(works_.begin(), works_.end(), older));
  }
  return *found->second;
}

/// True if there is room for another graph. If necessary, discards the least recently used one, if that has
/// been unused for kRunsUnused runs.
bool CudaGraphCache::has_room() {
  Index graphs = 0;
  Work* oldest = nullptr;
  for (const auto& [key, work] : works_) {
    if (work->graph && work->graph->is_evicted()) give_up(*work);
    if (!work->graph) continue;
    ++graphs;
    if (oldest == nullptr || work->last_run < oldest->last_run) oldest = work.get();
  }
  if (graphs < most_graphs_) return true;
  if (oldest == nullptr || runs_ - oldest->last_run < kRunsUnused) return false;
  *oldest = Work();
  return true;
}

void CudaGraphCache::refuse(Work& work, const std::string& why) {
  work.is_refused = true;
  if (refusal_.empty()) refusal_ = why;
}

/// Forgets a graph that was discarded for memory.
void CudaGraphCache::give_up(Work& work) {
  count(&Counts::given_up);
  work.in_vain = work.replays < kWorthwhileReplays ? work.in_vain + 1 : 0;
  work.drop_graph();
  if (work.in_vain < kMostInVain) return;
  refuse(work,
         format("[memory] {} graphs in a row were evicted by other work before they had run again {} times; "
                "try a smaller batch, --recompute-layers or --precision bf16",
                kMostInVain, kWorthwhileReplays));
}

Tensor CudaGraphCache::run(const std::string& tag, const std::vector<Tensor>& inputs, const Body& body) {
  const bool can = most_graphs_ > 0 && !model_.parameters.empty() && Tape::current() == nullptr &&
                   !is_profiled() && !cuda::is_capturing();
  const Device device =
      model_.parameters.empty() ? Device::cpu() : model_.parameters.front().value().device();
  const auto is_elsewhere = [&](const Tensor& x) { return x.defined() && x.device() != device; };
  if (!can || !device.is_cuda() || std::any_of(inputs.begin(), inputs.end(), is_elsewhere)) {
    count(&Counts::run);
    return body(inputs);
  }
  Work& now = work(tag, key_of(inputs));
  ++now.seen;
  if (now.graph) {
    const Tensor result = replay(now, inputs);
    if (result.defined()) return result;
    give_up(now);
  }
  if (now.is_refused || now.seen == 1 || !has_room()) return warm_up(now, device, inputs, body);
  return capture(now, device, inputs, body);
}

Tensor CudaGraphCache::warm_up(Work& work, Device device, const std::vector<Tensor>& inputs,
                               const Body& body) {
  count(&Counts::run);
  cuda::exchange_recent_peak(device.index);
  Tensor result = body(inputs);
  work.warm_up_bytes = cuda::exchange_recent_peak(device.index);
  return result;
}

Tensor CudaGraphCache::capture(Work& work, Device device, const std::vector<Tensor>& inputs,
                               const Body& body) {
  if (!moves_.defined() && !model_.counters.empty())
    moves_ = Tensor::zeros({static_cast<Index>(model_.counters.size())}, DType::f64, device);
  work.inputs.clear();
  for (const Tensor& x : inputs) work.inputs.push_back(x.defined() ? x.clone() : Tensor());
  work.counters.clear();
  for (const std::uint64_t* counter : model_.counters) work.counters.push_back(*counter);
  std::vector<bool> had_gradient, had_buffer;
  for (const Parameter& parameter : model_.parameters) {
    had_gradient.push_back(parameter.state()->has_gradient);
    had_buffer.push_back(parameter.state()->gradient.defined());
  }
  const auto undo = [&] {
    for (std::size_t i = 0; i < model_.counters.size(); ++i) *model_.counters[i] = work.counters[i];
    for (std::size_t i = 0; i < model_.parameters.size(); ++i) {
      ParameterState& state = *model_.parameters[i].state();
      state.has_gradient = had_gradient[i];
      if (!had_buffer[i]) state.gradient = Tensor();
    }
    work.drop_graph();
  };

  std::int64_t kept_bytes = 0;
  Tensor result;
  try {
    cuda::Capture capture(device.index, work.warm_up_bytes);
    {
      const MovableCounters movable(
          model_.counters,
          moves_.defined() ? reinterpret_cast<const std::uint64_t*>(moves_.address<double>()) : nullptr);
      OutsideMemory outside(device);
      const Tensor captured = body(work.inputs);
      if (!captured.defined()) throw cuda::NotCapturable("[cuda] a graph needs a result; got none");
      work.result = cuda::is_graph_memory(device.index, captured.state()->storage->data) ? unowned(captured)
                                                                                         : captured.detach();
      work.outside = outside.take();
    }
    kept_bytes = capture.kept_bytes();
    work.graph = capture.finish();
    result = Tensor::empty_like(work.result);  // allocated before the graph runs, which this may discard
  } catch (const cuda::NotCapturable& refused) {
    undo();
    refuse(work, refused.what());
    count(&Counts::run);
    return body(inputs);
  } catch (...) {
    undo();
    throw;
  }
  count(&Counts::captured);
  work.replays = 0;
  if (work.graph->is_evicted()) {
    give_up(work);
    undo();
    result = Tensor();  // the body may need all of the memory
    count(&Counts::run);
    return body(inputs);
  }
  nodes_ = static_cast<Index>(work.graph->nodes());
  work.advances.clear();
  for (std::size_t i = 0; i < model_.counters.size(); ++i)
    work.advances.push_back(*model_.counters[i] - work.counters[i]);
  work.brought.clear();
  for (std::size_t i = 0; i < model_.parameters.size(); ++i)
    if (model_.parameters[i].state()->has_gradient && !had_gradient[i]) work.brought.push_back(i);

  // The capture has already advanced the counters; the graph starts where the capture did.
  if (moves_.defined()) moves_.copy_from(Tensor::zeros(moves_.shape(), DType::f64, device));
  work.graph->launch();
  result.copy_from(work.result);
  if (kept_bytes > 0) {  // correct this once, but another run would overwrite memory that outlives the body
    refuse(work,
           format("[cuda] a graph cannot hold work that keeps memory of its own; kept {} bytes", kept_bytes));
    work.drop_graph();
  }
  return result;
}

/// Undefined if the graph has been discarded.
Tensor CudaGraphCache::replay(Work& work, const std::vector<Tensor>& inputs) {
  const Tensor result = Tensor::empty_like(work.result);  // before the graph runs, as above
  if (work.graph->is_evicted()) return {};
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i].defined()) work.inputs[i].copy_from(inputs[i]);
  move_counters(work);
  work.graph->launch();
  for (const std::size_t i : work.brought) model_.parameters[i].state()->has_gradient = true;
  count(&Counts::replayed);
  ++work.replays;
  nodes_ = static_cast<Index>(work.graph->nodes());
  result.copy_from(work.result);
  return result;
}

void CudaGraphCache::move_counters(const Work& work) {
  const auto draws = [](std::uint64_t advance) { return advance != 0; };
  if (std::none_of(work.advances.begin(), work.advances.end(), draws)) return;
  std::vector<std::uint64_t> moves;
  for (std::size_t i = 0; i < model_.counters.size(); ++i) {
    moves.push_back((*model_.counters[i] - work.counters[i]) << kStepBits);
    *model_.counters[i] += work.advances[i];
  }
  cuda::set_numbers(moves_.device().index, reinterpret_cast<std::uint64_t*>(moves_.address<double>()),
                    moves.data(), static_cast<Index>(moves.size()));
}

const std::uint64_t* moved_when_replayed(const std::uint64_t& counter) {
  if (!cuda::is_capturing()) return nullptr;
  if (const MovableCounters* movable = MovableCounters::current) {
    const auto& counters = movable->counters;
    const auto found = std::find(counters.begin(), counters.end(), &counter);
    if (found != counters.end()) return movable->moves + (found - counters.begin());
  }
  throw cuda::NotCapturable("[cuda] a graph cannot hold random draws of a layer outside the model");
}

}  // namespace tapeformer
