#include <tapeformer/autograd/cuda/runtime.h>

#include <algorithm>

namespace tapeformer::cuda {

thread_local GraphState* captured_here = nullptr;

namespace {

/// Drops unused memory after a failed capture: the next work may need it.
void drop_without_graphs(DeviceState& state) noexcept {
  const std::lock_guard<std::mutex> lock(state.listing);
  if (!state.graphs.empty()) return;
  try {
    order_behind_uploads(state);  // segments come from their stream
    drop_unused_segments(state);
  } catch (const DeviceError&) {  // it stays for the next graph
  }
}

}  // namespace

bool is_capturing() { return captured_here != nullptr; }

void refuse_in_capture(const char* what) {
  if (is_capturing()) throw NotCapturable(std::string("[cuda] a graph cannot hold ") + what);
}

Capture::Capture(int device, std::int64_t expected_bytes) {
  refuse_in_capture("another capture");
  DeviceState& state = device_state(device);
  synchronize(device);
  state_ = std::make_unique<GraphState>();
  state_->device = device;
  state_->watches = watches_for_graph(device);
  // Gaps between blocks take 1 to 6 % of a training step's memory. Without room for them the largest tensor
  // does not fit, and a segment of its own for it has cost up to a third more.
  const auto with_holes = static_cast<std::size_t>(expected_bytes + expected_bytes / 16);
  try {
    state.arena.reserve(with_holes, [&](std::size_t bytes) {
      // The pool's memory is in pieces, so it is given back first.
      check(cudaMemPoolTrimTo(state.pool, 0), "trimming the memory pool");
      return make_segment(state, bytes);
    });
  } catch (const DeviceError& lack) {
    throw NotCapturable(lack.what());
  }
  order_behind_uploads(state);
  state.arena.keep_used();
  // Relaxed: other calls of this thread (memory on the copies' stream, a library that loads its kernels) do
  // not concern the capture; calls that would make a graph wrong are refused by name.
  const std::lock_guard<std::mutex> lock(state.releasing);  // a captured stream frees no memory
  check(cudaStreamBeginCapture(state.kernels, cudaStreamCaptureModeRelaxed), "beginning a capture");
  is_open_ = true;
  captured_here = state_.get();
  state.captured = captured_here;
}

Capture::~Capture() {
  if (!is_open_) return;
  cudaGraph_t graph = nullptr;
  static_cast<void>(cudaStreamEndCapture(used_device_state(state_->device).kernels, &graph));
  static_cast<void>(cudaGetLastError());  // an earlier error may remain
  if (graph != nullptr) static_cast<void>(cudaGraphDestroy(graph));
  leave();
  drop_without_graphs(used_device_state(state_->device));
}

void Capture::leave() noexcept {
  DeviceState& state = used_device_state(captured_here->device);
  is_open_ = false;
  captured_here = nullptr;
  state.captured = nullptr;
  release_deferred(state);
}

std::int64_t Capture::kept_bytes() const { return device_state(state_->device).arena.fresh_bytes(); }

std::unique_ptr<Graph> Capture::finish() {
  DeviceState& state = device_state(state_->device);
  cudaGraph_t graph = nullptr;
  cudaError_t status = cudaStreamEndCapture(state.kernels, &graph);
  if (status == cudaSuccess) status = cudaGraphGetNodes(graph, nullptr, &state_->nodes);
  if (status == cudaSuccess) status = cudaGraphInstantiateWithFlags(&state_->exec, graph, 0);
  if (graph != nullptr) static_cast<void>(cudaGraphDestroy(graph));
  if (status != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    throw NotCapturable(std::string("[cuda] a capture gave no graph: ") + cudaGetErrorString(status));
  }
  order_behind_uploads(state);  // for segments that were added meanwhile
  auto made = std::make_unique<Graph>(std::move(state_));
  leave();  // not before the graph is listed, or another thread might drop its memory
  return made;
}

bool evict_graphs(DeviceState& state) noexcept {
  const std::lock_guard<std::mutex> lock(state.listing);
  const auto is_ours = [](const GraphState* graph) { return graph->maker == std::this_thread::get_id(); };
  // Another thread may be capturing one, about to launch one, or to read what one has left.
  if (state.captured != nullptr) return false;
  if (!std::all_of(state.graphs.begin(), state.graphs.end(), is_ours)) return false;
  for (GraphState* graph : state.graphs)
    static_cast<void>(cudaGraphExecDestroy(std::exchange(graph->exec, nullptr)));
  state.graphs.clear();
  drop_unused_segments(state);
  return true;
}

Graph::Graph(std::unique_ptr<GraphState> made) : state_(std::move(made)) {
  DeviceState& state = device_state(state_->device);
  const std::lock_guard<std::mutex> lock(state.listing);
  state.graphs.push_back(state_.get());
}

Graph::~Graph() {
  DeviceState& state = used_device_state(state_->device);
  const std::lock_guard<std::mutex> lock(state.listing);
  if (is_evicted()) return;
  static_cast<void>(cudaGraphExecDestroy(state_->exec));
  state.graphs.erase(std::find(state.graphs.begin(), state.graphs.end(), state_.get()));
  if (state.graphs.empty() && state.captured == nullptr) drop_unused_segments(state);
}

bool Graph::is_evicted() const { return state_->exec == nullptr; }

void Graph::launch() {
  refuse_in_capture("another graph");
  DeviceState& state = device_state(state_->device);
  check(cudaGraphLaunch(state_->exec, state.kernels), "queuing a graph");
  watch_launch(state_->device, state_->watches);
  wait_if_host_readable(state.kernels, "running a graph");
}

std::size_t Graph::nodes() const { return state_->nodes; }

}  // namespace tapeformer::cuda
