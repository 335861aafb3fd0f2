#pragma once

#include <tapeformer/autograd/async_readback.h>
#include <tapeformer/optim/multi_tensor_list.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace tapeformer {

/// The numbers of rows of the matrices in parameters that hold several, one below the other, by name.
using RowParts = std::map<std::string, std::vector<Index>>;

class DataParallel;
struct GradientNorm;

/// Visits the state of an optimizer, to save it or, through the references, to restore it. Names and order
/// are the same each time; after a restore the optimizer continues to the same bits. A visitor overrides what
/// it does not pass over.
class OptimizerVisitor {
 public:
  virtual ~OptimizerVisitor() = default;
  /// Values of a parameter's size.
  virtual void tensor(const std::string& /*name*/, const Tensor& /*value*/) {}
  /// A count, such as of steps.
  virtual void counter(const std::string& /*name*/, std::int64_t& /*value*/) {}
};

/// Changes parameters by their gradients. The caller chooses the learning rate of each step (see Schedule).
///
/// Gradient accumulation: parameters add up the gradients of several backward passes, so run them all and
/// then step once. For the gradient of the mean over all tokens, seed each pass with its own share,
///   tape.backward(loss, Tensor::scalar(tokens of this batch / tokens of all))
/// or, when the total is known only at the end, seed with the tokens and step with a gradient scale of
/// 1 / total.
///
/// Shards: if DataParallel has divided the work between ranks, an optimizer made after it updates, and keeps
/// state for, its rank's share alone, and set_shards() gives it access to the rest. Then clipped_step() and
/// visit_state() are collective: all ranks call them, with the same results. An optimizer of your own works
/// in the same way if its state comes from zeros_like_parameters() and is shown by visit_tensors(); others
/// are refused.
class Optimizer {
 public:
  /// Throws: Error if a parameter is given twice, DTypeError unless all are f32 or all f64.
  Optimizer(std::string algorithm, std::vector<Parameter> parameters);
  virtual ~Optimizer() = default;

  /// One update of every parameter that has a gradient; others stay as they are, and so does their state.
  /// The gradients are multiplied by `gradient_scale`, which saves a pass over all of them.
  /// Throws: Error unless both numbers are finite
  void step(double learning_rate, double gradient_scale = 1);
  /// A step with the gradients times `share`, clipped so that the norm of all together is at most `max_norm`
  /// (0: no limit). Returns the norm before clipping, as f64 [1] on the parameters' device. Queues a few
  /// kernels, however many parameters there are, and on a GPU waits at most for the step before. If the norm
  /// is not finite, values, shadows and state, counts of steps too, stay as if this step had not happened,
  /// and the caller decides what to do about it.
  /// Math:    g = share gradient min(1, max_norm / (norm + 1e-6)), norm = |share gradients|
  /// Throws:  Error for a learning rate that is not finite, and a negative max_norm or NaN
  /// Source:  Pascanu, Mikolov and Bengio 2013, arXiv:1211.5063
  Tensor clipped_step(double learning_rate, double share, double max_norm);
  /// Tensors are whole and have their parameters' shapes, however ranks divide them, so that any number of
  /// ranks restores what any other number has saved; every rank's visitor must restore.
  virtual void visit_state(OptimizerVisitor& visitor) = 0;
  /// Sets the DataParallel that has divided the work, which must have all of the optimizer's parameters and
  /// outlive it. Without shards nothing changes.
  /// Throws: Error naming a parameter that is missing there, or state that visit_tensors() does not show
  virtual void set_shards(const DataParallel& ranks);

  /// Clears the gradients of its parameters.
  void clear_gradients();
  /// The optimizer's parameters.
  const std::vector<Parameter>& parameters() const { return parameters_; }

 protected:
  /// One tensor of zeros per parameter, on its device: of its shape, or a vector for the elements that this
  /// process updates if those are not all.
  std::vector<Tensor> zeros_like_parameters() const;
  /// A tensor [0] of the parameters' type, on their device, for dispatch().
  Tensor no_elements() const;
  /// The first half of a step: calls table.add() for each parameter that has a gradient, with its state
  /// tensors (undefined where there are none) and the index of its settings. Counts stay: see count_step().
  virtual void gather(double learning_rate, MultiTensorList& table) = 0;
  /// The second half: runs the kernel on the parameters that gather() added. It multiplies gradients by
  /// *factor (f64 [1], on the device), and changes nothing if that is NaN, because gradients were not finite.
  virtual void update(const kernels::StepTensors& tensors, const Tensor& factor) = 0;
  /// Counts the step that was gathered last, once it is known to have been made.
  virtual void count_step() {}
  /// Counts the last step, unless its norm was not finite. For visit_state(), before it shows counts.
  void count_last_step();
  /// A step that counts if *factor is finite.
  void step(double learning_rate, const Tensor& factor);
  /// The first part of the states' names.
  const std::string& algorithm() const { return algorithm_; }
  /// "adamw.first_moment.encoder.0.query.weight"; a nameless parameter goes by its number.
  std::string state_name(const char* what, std::size_t parameter) const;
  /// Shows one state tensor for each parameter, under state_name(what, i), whole where ranks divide it.
  void visit_tensors(OptimizerVisitor& visitor, const char* what, const std::vector<Tensor>& tensors) const;

  std::vector<Parameter> parameters_;  ///< see parameters()

 private:
  friend class OptimizerGroups;

  void gather(double learning_rate);
  void require_shards() const;
  GradientNorm norm_of_gradients(double share, double max_norm);

  MultiTensorList table_, norms_of_ranks_;
  AsyncReadback factor_;  // of the last step, until it is known whether that counts
  const DataParallel* shards_ = nullptr;
  std::string algorithm_;
};

}  // namespace tapeformer
