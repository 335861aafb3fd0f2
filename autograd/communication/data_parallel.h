#pragma once

#include <tapeformer/autograd/communication/communicator.h>
#include <tapeformer/autograd/parameter.h>
#include <tapeformer/autograd/tape/leaf_table.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

namespace tapeformer {

class Tape;

struct DataParallelConfig {
  /// Gradients are sent in parts of about this size, each as soon as it is complete; those of a small model
  /// in eighths, so that most of them are sent during the backward pass.
  Index bucket_bytes = Index{25} << 20;
  /// Each rank updates its share of the elements, and keeps the optimizer's state for that share alone, as
  /// well as the f32 values of parameters that operations read in bf16.
  bool shard_optimizer = false;
};

/// Sums the gradients of processes that train one model, each on its part of every batch:
///
///   DataParallel parallel(ranks, model.parameters(), config);
///   AdamW optimizer(model.parameters());
///   optimizer.set_shards(parallel);
///   ...
///   parallel.sum_during(tape);  // only in the last of several passes before a step
///   tape.backward(loss, seed);
///   parallel.finish();
///   optimizer.clipped_step(learning_rate, share, max_norm);
///   parallel.gather_values();
///   optimizer.clear_gradients();
///
/// Values and gradients become views into buckets: flat buffers in the order in which a backward pass
/// usually finishes, the last parameter first, each sent as a whole. Every rank must record the same graph,
/// so that the same parameters have gradients. With one rank nothing is moved and nothing is done.
///
/// All ranks have the same bits. A sharded step without clipping gives the bits of one that is not sharded if
/// the engine's reduce_scatter adds in the order of its all_reduce; with clipping, the factor of the
/// gradients differs by the rounding of a sum in f64 in another order.
/// Source:  Li et al. 2020, "PyTorch Distributed", arXiv:2006.15704, section 3.2; Rajbhandari et al. 2020,
///          "ZeRO", arXiv:1910.02054, section 5.1
class DataParallel {
 public:
  /// Gives every rank the values of rank 0, and drops gradients. Later changes of a value must be in place
  /// (copy_from): set_value() would move it.
  /// Throws:  Error if a parameter is given twice or a bucket has no bytes, DTypeError unless parameters are
  ///          f32 or f64
  DataParallel(std::shared_ptr<Communicator> ranks, const std::vector<Parameter>& parameters,
               const DataParallelConfig& config = {});
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  /// Makes backward() of this tape start the sum of each bucket whose gradients, and those of the buckets
  /// before it, are final. Gradients must then not change until finish() has returned. If the pass is
  /// replayed as a CUDA graph, finish() starts all sums.
  void sum_during(Tape& tape);
  /// Starts the remaining sums and waits for all. A gradient is then the sum over all ranks; sharded, only in
  /// ParameterState::updated, and undefined elsewhere. A parameter without a gradient still has none.
  /// Throws: Error if set_value() has moved a parameter, CommunicationError
  void finish();
  /// After a step, gives every rank all values that operations read. Does nothing unless sharded.
  void gather_values();
  /// Runs `use` while every rank holds all values, to save or load them: sharded, those of parameters with a
  /// shadow have no memory otherwise, and their data() throws. Collective.
  void with_whole_values(const std::function<void()>& use);
  /// Gives every rank all values, for another DataParallel of the same parameters; this one must not be used
  /// again. Collective.
  void gather_for_another();

  /// True if the optimizer's work is divided; never with one rank.
  bool is_sharded() const { return is_sharded_; }
  /// True for a parameter that was given at construction.
  bool holds(const Parameter& parameter) const { return positions_.find(parameter.state()) >= 0; }

  /// For optimizers: calls visit(i, whole) for each parameter, where `whole`, of its shape, is gathered from
  /// all ranks' pieces[i], which hold the elements that the rank updates; then copies `whole` back to
  /// pieces[i]. Collective: every rank calls it, and gets the same.
  void visit_whole(const std::vector<Parameter>& parameters, const std::vector<Tensor>& pieces,
                   const std::function<void(std::size_t, const Tensor&)>& visit) const;
  /// The values x [1] of all ranks, in the order of the ranks. Collective.
  Tensor by_rank(const Tensor& x) const;

 private:
  struct Slot {
    Parameter parameter;
    std::size_t bucket;
    Index offset;  // in the bucket's buffers, in elements
    bool is_final = false;
  };
  struct Bucket {
    std::size_t begin = 0, end = 0;  // of its slots
    Index elements = 0;
    Tensor values, gradients, shadows;
    Tensor share;  // of the values, while this rank holds no others
    Communication under_way;
  };

  void add(const Parameter& parameter, Index bucket_bytes);
  void make_views(Bucket& bucket);
  void make_shadow_views(Bucket& bucket);
  void for_divided(void (DataParallel::*change)(Bucket&));
  void hold_share(Bucket& bucket);
  void hold_whole(Bucket& bucket);
  const Slot& slot_of(const Parameter& parameter) const;
  void require_in_place(const Slot& slot) const;
  void set_final(ParameterState& state);
  void start_sums();
  void start_sum(Bucket& bucket);
  Tensor gathered(const Bucket& bucket, const std::vector<Parameter>& parameters,
                  const std::vector<Tensor>& pieces) const;

  std::shared_ptr<Communicator> ranks_;
  bool is_sharded_;
  std::vector<Slot> slots_;  // in the order of sending
  std::vector<Bucket> buckets_;
  LeafTable positions_;          // of parameters in slots_
  std::size_t final_slots_ = 0;  // how many slots, from the first one, are final
  std::size_t started_ = 0;      // how many buckets
};

}  // namespace tapeformer
