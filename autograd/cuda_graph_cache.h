#pragma once

#include <tapeformer/autograd/cuda/graph.h>
#include <tapeformer/autograd/parameter.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace tapeformer {

/// Queues repeated work on a GPU as a whole instead of kernel by kernel: a step of a small model mostly
/// costs the host's time for launches. Work that comes a second time with the same key (the tag, the types
/// and shapes of its inputs, memory and gradients of parameters, modes and precision) is captured as a CUDA
/// graph, which runs from then on. Results equal the body's to the last bit, Dropout layers of the model
/// included, whose counters advance as usual. On a CPU, and for work that cannot be captured, the body
/// simply runs. Graphs yield to other work: if that finds no memory, all graphs of the device are discarded,
/// and captured again when their work recurs, for example after each large validation. Work whose graphs
/// were discarded several times in a row before they paid off is no longer captured.
class CudaGraphCache {
 public:
  /// The repeated work. It must depend only on its inputs and the model, use its own Tape if any, and have
  /// no effects except its result, the parameters' gradients and values written into existing tensors.
  using Body = std::function<Tensor(const std::vector<Tensor>& inputs)>;

  /// The most graphs kept. A further one replaces the least recently used one, if that was unused for long.
  static constexpr Index kMostGraphs = 64;

  /// A cache for a model with this state (Module::state()), which must not move. Keeps at most `most_graphs`
  /// graphs; 0 for none.
  explicit CudaGraphCache(ModelState model, Index most_graphs = kMostGraphs);
  ~CudaGraphCache();
  CudaGraphCache(const CudaGraphCache&) = delete;
  CudaGraphCache& operator=(const CudaGraphCache&) = delete;

  /// Computes body(inputs), perhaps by a graph of it. `tag` identifies the body and everything else that it
  /// depends on. Inputs may be undefined.
  Tensor run(const std::string& tag, const std::vector<Tensor>& inputs, const Body& body);

  /// The numbers of calls, by how they ran.
  struct Counts {
    Index run = 0;       ///< bodies that ran without a graph
    Index captured = 0;  ///< graphs captured
    Index replayed = 0;  ///< runs of graphs, after the first of each
    Index given_up = 0;  ///< graphs that were found discarded for memory
  };
  /// The counts since the cache was made.
  const Counts& counts() const { return counts_; }
  /// The sum over all caches of this thread.
  static const Counts& counts_of_all();
  /// The number of kernels, copies and fills in the graph that ran last; 0 if none did.
  Index nodes() const { return nodes_; }
  /// The reason why a body could not be captured, for the first such body; empty if there was none.
  const std::string& refusal() const { return refusal_; }

 private:
  using GraphKey = std::vector<std::uint64_t>;
  struct Work;

  GraphKey key_of(const std::vector<Tensor>& inputs) const;
  Work& work(const std::string& tag, GraphKey key);
  bool has_room();
  void refuse(Work& work, const std::string& why);
  void give_up(Work& work);
  Tensor warm_up(Work& work, Device device, const std::vector<Tensor>& inputs, const Body& body);
  Tensor capture(Work& work, Device device, const std::vector<Tensor>& inputs, const Body& body);
  Tensor replay(Work& work, const std::vector<Tensor>& inputs);
  void move_counters(const Work& work);
  void count(Index Counts::*which);

  Index most_graphs_;
  ModelState model_;
  Tensor moves_;  // a 64-bit number per counter: its advance since the capture

  std::map<std::pair<std::string, GraphKey>, std::unique_ptr<Work>> works_;
  std::uint64_t runs_ = 0;
  Counts counts_;
  Index nodes_ = 0;
  std::string refusal_;
};

/// During a capture, the address from which a replay reads the number of blocks of random numbers by which
/// `counter` has advanced since (see PhiloxStream); otherwise nullptr. For layers that are about to draw.
/// Throws:  NotCapturable if the counter does not belong to the captured model
const std::uint64_t* moved_when_replayed(const std::uint64_t& counter);

}  // namespace tapeformer
