#pragma once

#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/shape.h>

#include <cstddef>
#include <cstdint>
#include <memory>

/// Work that is queued once and runs many times: CUDA graphs, in plain C++.
namespace tapeformer::cuda {

/// A capture cannot contain the requested work: waiting for the device, reading or writing its memory from
/// the host, or more memory than there is; or the device, or a library, has refused a part of it.
class NotCapturable : public Error {
 public:
  using Error::Error;
};

/// True while this thread captures.
bool is_capturing();
/// Throws:  NotCapturable while this thread captures; `what` reads "an upload"
void refuse_in_capture(const char* what);
/// True for the graphs' memory, which every running graph overwrites. Memory kept beyond the capture that
/// allocated it is not part of it.
bool is_graph_memory(int device, const void* from);

struct GraphState;

/// The work queued during a capture. Runs on the device's stream of kernels, with the capture's addresses and
/// numbers: memory from outside must live as long. All graphs of a device compute in the same memory, one
/// after the other, so its contents last only until another graph runs. An allocation that finds no memory
/// evicts all graphs, unless another thread made one of them, and takes their memory.
class Graph {
 public:
  explicit Graph(std::unique_ptr<GraphState> state);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  /// Queues the graph, which must not be evicted.
  void launch();
  /// True if an allocation took its memory, with results that were not copied from there; this is final.
  bool is_evicted() const;
  /// The number of kernels, copies and fills.
  std::size_t nodes() const;

 private:
  std::unique_ptr<GraphState> state_;
};

/// While one lives, work that this thread queues on the device becomes part of a graph instead of running,
/// and memory that it allocates is the graphs'. Other threads must not use the device meanwhile: they get a
/// DeviceError.
class Capture {
 public:
  /// `expected_bytes`: the memory that it is likely to need at once. Waits for the device.
  /// Throws:  NotCapturable if there is not enough
  Capture(int device, std::int64_t expected_bytes);
  /// Discards the capture unless it was finished.
  ~Capture();
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  /// Bytes allocated since the beginning and still in use.
  std::int64_t kept_bytes() const;
  /// Ends the capture. Throws: NotCapturable if the driver cannot make a graph of it
  std::unique_ptr<Graph> finish();

 private:
  void leave() noexcept;

  std::unique_ptr<GraphState> state_;
  bool is_open_ = false;
};

/// The peak of memory in use since the last call, at first since the beginning, beyond the memory in use
/// then. Of the graphs' memory, whole segments count.
std::int64_t exchange_recent_peak(int device);

/// Sets `count` numbers in the device's memory, in the order of its kernels and without any copy.
void set_numbers(int device, std::uint64_t* to, const std::uint64_t* numbers, Index count);

}  // namespace tapeformer::cuda
