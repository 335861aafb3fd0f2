#pragma once

#include <tapeformer/autograd/async_readback.h>
#include <tapeformer/autograd/cuda_graph_cache.h>
#include <tapeformer/examples/train/session.h>

namespace tapeformer {

/// A batch that was run forward and backward, with the state that is needed to repeat that.
struct Pass {
  AsyncReadback loss;
  Batch batch;
  std::vector<std::uint64_t> draws;  // Session::draws(), before it
};

/// Runs the batches of a task forward and backward: makes the next batch while a GPU computes, and replays
/// CUDA graphs where it can.
class Passes {
 public:
  explicit Passes(Session& session);

  /// Adds the gradient of a batch's mean loss. If a step has several batches or several ranks, each is
  /// weighted by its number of counted tokens, and the update divides by their sum. The backward pass of a
  /// step's last batch starts to sum the ranks' gradients.
  Pass run(Index number, bool is_last);
  /// Makes batch `number` now, so that run() need not; does nothing else.
  void prepare(Index number);
  bool weighs_batches() const { return session_.options.accumulate > 1 || !session_.is_alone(); }

  /// Runs batches again, from the same random draws, and names the operation that gave the first value that
  /// is not finite: ": [op] ...". Empty if there is none now.
  std::string anomaly_in(const std::vector<Pass>& passes);

  /// Costs of the first pass, for the report; 0 if not measured.
  struct Cost {
    bool is_known = false;
    Index flops = 0, tokens = 0;  // on a CPU
    Index saved_bytes = 0;        // activations that the tape kept
  };
  const Cost& cost() const { return cost_; }
  const CudaGraphCache::Counts& graph_counts() const { return graphs_.counts(); }

 private:
  Tensor forward_and_backward(const Batch& batch, const Tensor& weight, bool is_last);
  Tensor replayed(const Batch& batch, bool is_last);

  Session& session_;
  CudaGraphCache graphs_;
  std::optional<std::pair<Index, Batch>> ahead_;  // number and batch, made ahead
  bool has_told_refusal_ = false;
  Cost cost_;
};

}  // namespace tapeformer
