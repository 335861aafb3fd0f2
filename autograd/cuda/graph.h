#pragma once

#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/shape.h>

#include <cstddef>
#include <cstdint>
#include <memory>

/// Work that is queued once and runs many times: CUDA graphs, in plain C++.
namespace tapeformer::cuda {

/// What a capture cannot hold was asked for: waiting for the device, looking at its memory, or sending to it,
/// or more memory than there is; or the device, or a library, has refused something in it.
class NotCapturable : public Error {
 public:
  using Error::Error;
};

/// True where this thread captures.
bool is_capturing();
/// Throws: NotCapturable where this thread captures; `what` reads "an upload"
void refuse_in_capture(const char* what);
/// True for memory of the graphs: what lies there belongs to whichever graph runs. What somebody kept beyond
/// the capture that allocated it is theirs.
bool is_graph_memory(int device, const void* from);

struct GraphState;

/// What a capture has seen queued. Runs on the device's stream of kernels, with the addresses and numbers of
/// the capture: memory from outside must live as long. All graphs of a device compute in the same memory, one
/// after the other; nothing there is kept from one run to another graph's. An allocation that finds no memory
/// ends the graphs that its own thread has made, and takes theirs.
class Graph {
 public:
  explicit Graph(std::unique_ptr<GraphState> state);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  /// Queues it. Only as long as it has not given way.
  void launch();
  /// To an allocation, with what it has computed but has not been copied from there: for good.
  bool has_given_way() const;
  /// Kernels, copies and fills.
  std::size_t nodes() const;

 private:
  std::unique_ptr<GraphState> state_;
};

/// While one lives, what this thread queues on the device does not run but becomes a graph, and memory that
/// it allocates is the graphs'. Other threads must leave the device alone meanwhile: they get a DeviceError.
class Capture {
 public:
  /// `expected_bytes`: how much memory it is likely to need at once. Waits for the device.
  /// Throws: NotCapturable if there is not so much
  Capture(int device, std::int64_t expected_bytes);
  /// Unless it is finished, nothing has happened.
  ~Capture();
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  /// Bytes that were allocated since the beginning and are still in use.
  std::int64_t kept_bytes() const;
  /// The end. Throws: NotCapturable if the driver makes no graph of it
  std::unique_ptr<Graph> finish();

 private:
  void leave() noexcept;

  std::unique_ptr<GraphState> state_;
  std::int64_t used_before_ = 0;
  bool is_open_ = false;
};

/// The most memory in use at once since the last call, counted from what was in use then, graphs' memory left
/// out; 0 at the first call.
std::int64_t exchange_recent_peak(int device);

/// Sets `count` numbers in the device's memory, in the order of its kernels and without any copy.
void set_numbers(int device, std::uint64_t* to, const std::uint64_t* numbers, Index count);

}  // namespace tapeformer::cuda
