#include <tapeformer/autograd/cuda/cuda.h>
#include <tapeformer/autograd/cuda/graph.h>
#include <tapeformer/autograd/cuda/readback.h>
#include <tapeformer/autograd/error.h>

/// Builds without CUDA.
namespace tapeformer::cuda {
namespace {

[[noreturn]] void throw_absent() { throw DeviceError("[cuda] " + availability() + "; try the cpu"); }

}  // namespace

int device_count() { return 0; }
std::string availability() { return "this build has no CUDA (configure with -DTAPEFORMER_CUDA=ON)"; }
std::string device_name(int) { throw_absent(); }
void* allocate(int, std::size_t) { throw_absent(); }
void* allocate_for_upload(int, std::size_t) { throw_absent(); }
void release(int, void*, std::size_t) noexcept {}
MemoryStatistics memory_statistics(int) { return {}; }
bool is_host_readable() { return false; }
void upload(int, void*, const void*, std::size_t) { throw_absent(); }
void overwrite(int, void*, const void*, std::size_t) { throw_absent(); }
void download(int, void*, const void*, std::size_t) { throw_absent(); }
void copy(int, void*, const void*, std::size_t) { throw_absent(); }
void copy_across(int, void*, int, const void*, std::size_t) { throw_absent(); }
void synchronize(int) {}
void fill(int, DType, Index, double, void*) { throw_absent(); }
void convert(int, DType, const void*, DType, void*, Index) { throw_absent(); }
void watch_for_device_error(int, std::function<std::string(const DeviceErrorSlot&)>,
                            const std::function<void(DeviceErrorSlot*)>&) {
  throw_absent();
}
void report_device_errors(int) {}

bool is_capturing() { return false; }
void refuse_in_capture(const char*) {}
bool is_graph_memory(int, const void*) { return false; }
std::int64_t exchange_recent_peak(int) { return 0; }
void set_numbers(int, std::uint64_t*, const std::uint64_t*, Index) { throw_absent(); }
struct GraphState {};
Graph::Graph(std::unique_ptr<GraphState> state) : state_(std::move(state)) {}
Graph::~Graph() = default;
void Graph::launch() { throw_absent(); }
bool Graph::is_evicted() const { throw_absent(); }
std::size_t Graph::nodes() const { throw_absent(); }
Capture::Capture(int, std::int64_t) { throw_absent(); }
Capture::~Capture() = default;
std::int64_t Capture::kept_bytes() const { throw_absent(); }
std::unique_ptr<Graph> Capture::finish() { throw_absent(); }
struct ReadbackSlot {};
Readback::Readback(int, const void*, std::size_t) : device_(0) { throw_absent(); }
Readback::~Readback() = default;
const void* Readback::wait() { throw_absent(); }

}  // namespace tapeformer::cuda
