#pragma once

#include <tapeformer/autograd/cuda/graph.h>
#include <tapeformer/nn/module.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace tapeformer {

/// Queues work that repeats on a GPU as a whole instead of kernel by kernel: what a step of a small model
/// needs most is the host's time for launches. Work that comes a second time in the same situation (the
/// same tag, inputs of the same types and shapes, the same parameters with or without gradients, modes and
/// precision) is captured as a CUDA graph; from then on the graph runs. To the last bit what the body would
/// have computed, Dropout layers of the model included, whose counters go on as they would have. Elsewhere,
/// and whatever cannot be captured, the body runs as ever. Other work goes before graphs: where it finds no
/// memory, all of the device's give way to it, and are captured anew when their work comes again, as after
/// each validation that needs much; but no more once some in a row gave way before they were of use.
class CudaGraphCache {
 public:
  /// What is to be repeated. It must compute from the inputs that it is given and from the model, with a Tape
  /// of its own if any, and leave nothing behind but its result, parameters' gradients and what it wrote into
  /// tensors that were there before.
  using Body = std::function<Tensor(const std::vector<Tensor>& inputs)>;

  static constexpr Index kMostGraphs = 64;

  /// The model must stay where it is. `most_graphs`: of situations that come back, as many are kept; 0 for
  /// none.
  explicit CudaGraphCache(Module& model, Index most_graphs = kMostGraphs);
  ~CudaGraphCache();
  CudaGraphCache(const CudaGraphCache&) = delete;
  CudaGraphCache& operator=(const CudaGraphCache&) = delete;

  /// body(inputs), or a graph of it. `tag` tells bodies apart, and whatever else they depend on. Inputs may
  /// be undefined.
  Tensor run(const std::string& tag, const std::vector<Tensor>& inputs, const Body& body);

  struct Counts {
    Index run = 0;       ///< bodies that ran as ever
    Index captured = 0;  ///< graphs that were made
    Index replayed = 0;  ///< times that one ran, after the first
    Index given_up = 0;  ///< graphs that gave way to other work's memory, and whose work came again
  };
  const Counts& counts() const { return counts_; }
  /// Of all that this thread has run.
  static const Counts& counts_of_all();
  /// Kernels, copies and fills of the graph that ran last; 0 for none.
  Index nodes() const { return nodes_; }
  /// Why the first body that could not be captured could not; empty if none.
  const std::string& refusal() const { return refusal_; }

 private:
  using GraphKey = std::vector<std::uint64_t>;
  struct Work;

  GraphKey situation(const std::vector<Tensor>& inputs) const;
  Work& work(const std::string& tag, GraphKey situation);
  bool has_room();
  void refuse(Work& work, const std::string& why);
  void give_up(Work& work);
  Tensor warm_up(Work& work, Device device, const std::vector<Tensor>& inputs, const Body& body);
  Tensor capture(Work& work, Device device, const std::vector<Tensor>& inputs, const Body& body);
  Tensor replay(Work& work, const std::vector<Tensor>& inputs);
  void move_counters(const Work& work);
  void count(Index Counts::*which);

  Index most_graphs_;
  // Of the model, where they are: parameters, buffers, counters of random draws, modes.
  std::vector<Parameter> parameters_;
  std::vector<Tensor*> buffers_;
  std::vector<std::uint64_t*> counters_;
  std::vector<bool*> modes_;
  Tensor moves_;  // a number of 64 bits for each counter: how far it has moved since the capture

  std::map<std::pair<std::string, GraphKey>, std::unique_ptr<Work>> works_;
  std::uint64_t runs_ = 0;
  Counts counts_;
  Index nodes_ = 0;
  std::string refusal_;
};

/// In a capture, for a layer that is about to draw: where a replay says by how many blocks of random numbers
/// `counter` has moved since, see PhiloxStream; nullptr elsewhere.
/// Throws:  NotCapturable if the counter is not of the model that is captured
const std::uint64_t* moved_when_replayed(const std::uint64_t& counter);

}  // namespace tapeformer
