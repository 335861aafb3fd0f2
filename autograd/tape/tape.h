#pragma once

#include <tapeformer/autograd/parameter.h>
#include <tapeformer/autograd/pooled_function.h>
#include <tapeformer/autograd/tape/leaf_table.h>
#include <tapeformer/autograd/tensor.h>

#include <functional>
#include <initializer_list>
#include <iosfwd>
#include <limits>
#include <utility>
#include <vector>

namespace tapeformer {

class Gradients;
struct Contribution;
struct TapeMemory;
/// A node's backward: from dy, the gradient of its output, to the gradients of its inputs, into[i].
using Backward = PooledFunction<void(const Tensor& dy, const Gradients& into)>;
/// Computes the output of a fused operation again, in elementary operations, which can be differentiated.
using ComposedFallback = PooledFunction<Tensor()>;
/// See Tape::wrap_gradients().
using GradientWrapper = std::function<Tensor(const Contribution&, const Tensor& gradient)>;
/// See Tape::on_final_gradient().
using FinalGradient = std::function<void(ParameterState&)>;

/// Records the operations of this thread from its construction until backward() or its destruction; of nested
/// tapes only the innermost one records. Append order is topological, so a reverse pass is one loop.
/// Misuse throws TapeError: a second backward(), a loss of several elements without a seed, or a tensor of
/// a tape that is dead, outer or another thread's.
class Tape {
 public:
  Tape();
  ~Tape();
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  /// Makes `x` a leaf whose gradient gradients() can return. Parameters need no watching.
  void watch(const Tensor& x);
  /// True for a tensor that this tape watches or computed, and for the value of a parameter that it has read.
  bool tracks(const Tensor& x) const {
    return x.defined() && (is_computed_here(x) || leaves_.find(x.state()) >= 0);
  }

  /// Adds d loss / d parameter to every parameter that took part, and frees what each node saved as soon as
  /// it has run. The tape is then spent: it records nothing more and has no second backward.
  /// `seed` is d objective / d loss; by default 1, for a loss of one element.
  /// Throws: TapeError when some parameters belong to an optimizer, and another that got a gradient belongs
  ///         to none and was named by no visit(): it would be neither trained nor saved
  void backward(const Tensor& loss, const Tensor& seed = {});

  /// d loss / d x for every x of `of` (watched, a parameter's value, or computed on this tape); zeros where
  /// the loss does not depend on x. Parameters' gradients stay as they are and nothing is freed. Where
  /// operations have read both a parameter's value and its bf16 copy, each has a gradient of its own. With
  /// `recorded` the pass itself goes onto the tape, so that its results can be differentiated again.
  /// Results may share memory with the seed and with each other: clone() one before writing to it.
  std::vector<Tensor> gradients(const Tensor& loss, const std::vector<Tensor>& of, const Tensor& seed = {},
                                bool recorded = false);

  /// From now on the first operation that yields a NaN or an infinity, forward or backward, throws a
  /// TapeError that names it. Forward, an infinity passes if an input held one already, as a mask does.
  /// Costs a pass over every result.
  void detect_anomalies(bool detect = true) { detects_anomalies_ = detect; }

  /// From now on `wrapper` sees every contribution to a gradient before it is added, and its result, of the
  /// same shape, is added instead: to inspect gradients, or to plant faults that a test must notice. Fused
  /// operations then write into buffers of their own. The seed is not a contribution. In a recorded pass the
  /// contributions of a fused operation are those of its composed fallback.
  void wrap_gradients(GradientWrapper wrapper) { wrapper_ = std::move(wrapper); }

  /// backward() calls this once for every parameter that took part, as soon as nothing more is added to its
  /// gradient: to sum it with those of other processes during the pass. The order depends only on the
  /// recorded operations. Work on a GPU is queued by then, and may not have run.
  void on_final_gradient(FinalGradient call) { final_gradient_ = std::move(call); }

  /// Prints a line per node: its operation and operands, parameters by name, and the bytes it keeps.
  void print(std::ostream& out) const;
  /// The memory that the nodes keep now.
  TapeMemory memory() const;

  /// The tape that records on this thread now, or nullptr.
  static Tape* current();

 private:
  friend class GradientSlot;
  friend class Gradients;
  friend class NoGradGuard;
  friend class CheckpointedForward;
  friend Tape* tape_for(const char* op, const Tensor* inputs, std::size_t count);
  friend void append_node(Tape& tape, const char* op, const Tensor* inputs, std::size_t input_count,
                          const Tensor* saved, std::size_t saved_count, const Tensor* outputs,
                          std::size_t output_count, Backward backward, ComposedFallback fallback);

  static constexpr std::int32_t kNoUse = std::numeric_limits<std::int32_t>::max();

  /// A tensor that the tape tracks, a leaf or an output of a node, and its gradient during a pass.
  struct Slot {
    Shape shape;
    DType dtype = DType::f32;
    Device device;
    bool keep = false;     // gradients() returns it
    bool written = false;  // the running node writes the parameter's gradient, which counts after it
    std::int32_t first_use = kNoUse;  // the first node that reads it, after which its gradient is final
    Tensor gradient;
    Handle<ParameterState> parameter;
    Tensor leaf;  // a parameter's value or a watched tensor: kept, so that no other tensor gets its address
  };
  /// One recorded operation. Its outputs have adjacent slots, from first_output.
  struct Node {
    const char* op = "";
    PooledVector<std::int32_t> inputs;  // slots; -1 where no gradient is wanted
    std::int32_t first_output = 0, outputs = 0;
    Backward backward;  // if empty, every pass records the fallback and goes back through it
    ComposedFallback fallback;
    PooledVector<Handle<Storage>> saved;
  };

  bool is_computed_here(const Tensor& x) const;
  std::int32_t new_slot(const Tensor& x);
  std::int32_t new_leaf(const Tensor& x);
  void stamp(const char* op, const Tensor& x);
  std::int32_t slot_of(const char* op, const Tensor& x);
  std::int32_t checked_slot(const char* op, const Tensor& x);
  void check_loss(const char* op, const Tensor& loss, const Tensor& seed);
  void check_reached_parameters() const;
  DType gradient_type(const Slot& slot) const;
  void accumulate(std::int32_t slot, const Tensor& gradient);
  void contribute(std::size_t node, std::size_t input, const Tensor& gradient);
  void use(std::int32_t slot);
  void list_final_gradients();
  void call_final_gradients(std::size_t node);
  void run(std::size_t begin, std::size_t end);
  void run_node(std::size_t index);
  void run_fallback(std::size_t index, Tensor dy);
  void check_unchanged(const Slot& slot) const;
  /// Begins a part: the operations of a composed fallback or a checkpointed body, which drop() removes.
  void begin_part();
  /// Ends the part: drops nodes and slots since begin_part(), except leaves.
  void drop(std::size_t first_node, std::size_t first_slot);
  void check_finite(const char* op, const Tensor& gradient) const;
  void check_result(const char* op, const Tensor* inputs, std::size_t count, const Tensor& y) const;
  void leave();

  // Marks the tensors computed here (Tensor::State::tape): the tape's own id, then those of open parts.
  PooledVector<std::uint64_t> ids_;
  std::uint64_t parts_ = 0;
  Tape* outer_ = nullptr;
  bool spent_ = false, detects_anomalies_ = false;
  bool to_parameters_ = false, frees_ = false, recorded_ = false;  // the mode of the pass that is running
  bool in_checkpoint_ = false;  // operations are tracked, but leave no nodes
  bool pauses_ = false;         // a NoGradGuard's: as the innermost tape, it stops the outer ones
  PooledVector<Slot> slots_;
  LeafTable leaves_;
  PooledVector<Node> nodes_;
  GradientWrapper wrapper_;
  FinalGradient final_gradient_;
  PooledVector<std::int32_t> not_yet_final_;  // a slot of each parameter, by first use, the last one in front
  std::size_t called_final_ = 0;              // number of these that were passed to final_gradient_
};

/// The memory that a tape keeps between forward and backward.
struct TapeMemory {
  Index nodes = 0;            ///< operations recorded
  Index saved_bytes = 0;      ///< of the distinct storages that nodes saved for backward, except for frozen
                              ///< parameters
  Index parameter_bytes = 0;  ///< the part of saved_bytes that belongs to trainable parameters
};

/// One addition to one gradient: from the backward of `op`, the node-th on the tape, to one of its inputs.
struct Contribution {
  const char* op;       ///< the operation's name
  std::size_t node;     ///< its place on the tape, from 0
  std::size_t input;    ///< the index of the operation's input
  std::int32_t tensor;  ///< the id of the tensor whose gradient it adds to
  bool recorded;        ///< the pass is itself recorded, for second derivatives
};

/// The destination of one input's gradient; knows its buffer, and whether to assign or to add.
class GradientSlot {
 public:
  /// False when this gradient is not needed: skip its computation.
  explicit operator bool() const { return slot_ >= 0; }
  /// Adds `gradient`, summed over what broadcasting repeated.
  void operator+=(const Tensor& gradient) const;

  /// The destination of a kernel.
  struct Target {
    Tensor buffer;  ///< the whole gradient
    bool add;       ///< whether to add to its contents, else assign
  };
  /// For kernels: the whole buffer to write, and whether to add to its contents. It has the input's type, or
  /// if `is_wide`, for sums over many rows, f32 where the input is bf16. Undefined if it is not needed.
  Target target(bool is_wide = false) const;

 private:
  friend class Gradients;
  GradientSlot(const Gradients& into, std::size_t input, std::int32_t slot, bool separate)
      : into_(into), input_(input), slot_(slot), separate_(separate) {}
  const Gradients& into_;
  std::size_t input_;
  std::int32_t slot_;
  // A kernel gets a separate buffer that is added later, because the same tensor is also an earlier input,
  // and one buffer must not be written twice, or because the contributions are wrapped.
  bool separate_;
};

/// The second argument of a node's backward.
class Gradients {
 public:
  /// The gradient of the operation's `input`-th input. Throws: TapeError if there is none
  GradientSlot operator[](std::size_t input) const;
  /// For nodes with several outputs: the gradient of one, undefined when nothing reached it.
  const Tensor& output(std::size_t index) const { return outputs_[index]; }
  /// True in a pass that is itself recorded: a backward then uses operations in place of kernels.
  bool recorded() const { return tape_.recorded_; }

 private:
  friend class Tape;
  friend class GradientSlot;
  Gradients(Tape& tape, std::size_t node) : tape_(tape), node_(node) {}
  Tape& tape_;
  std::size_t node_;
  PooledVector<Tensor> outputs_;
  mutable PooledVector<std::pair<std::size_t, Tensor>> separate_;  // input and buffer
};

/// While one lives, only tapes made after it record on this thread; for evaluation inside a tape's scope.
class NoGradGuard {
 public:
  NoGradGuard() { tape_.pauses_ = true; }

 private:
  Tape tape_;
};

/// The recording tape if it tracks one of the inputs, else nullptr.
Tape* tape_for(const char* op, const Tensor* inputs, std::size_t count);
/// The functions below call this once tape_for() has returned a tape.
void append_node(Tape& tape, const char* op, const Tensor* inputs, std::size_t input_count,
                 const Tensor* saved, std::size_t saved_count, const Tensor* outputs,
                 std::size_t output_count, Backward backward, ComposedFallback fallback);

/// Inputs of an operation, or the tensors that it saves.
using Tensors = std::initializer_list<Tensor>;

/// Records an operation. Write `backward(dy, into)` in differentiable operations, and it serves every order
/// of derivative; if it calls a kernel, it uses operations instead where into.recorded() is true (as in
/// ops/softmax.cpp). `saves` lists the tensors that it captures, for Tape::memory().
template <class F>
Tensor record(const char* op, Tensors inputs, Tensors saves, const Tensor& y, F&& backward) {
  if (Tape* tape = tape_for(op, inputs.begin(), inputs.size())) {
    append_node(*tape, op, inputs.begin(), inputs.size(), saves.begin(), saves.size(), &y, 1,
                Backward::of(std::forward<F>(backward)), {});
  }
  return y;
}

/// Records an operation whose backward is a kernel; `fallback()` computes y again in elementary operations.
template <class F, class G>
Tensor record_fused(const char* op, Tensors inputs, Tensors saves, const Tensor& y, F&& backward,
                    G&& fallback) {
  if (Tape* tape = tape_for(op, inputs.begin(), inputs.size())) {
    append_node(*tape, op, inputs.begin(), inputs.size(), saves.begin(), saves.size(), &y, 1,
                Backward::of(std::forward<F>(backward)), ComposedFallback::of(std::forward<G>(fallback)));
  }
  return y;
}

/// Records an elementary operation with any number of inputs and outputs; its backward reads into.output(i).
template <class F>
void record_many(const char* op, const TensorList& inputs, const TensorList& outputs, F&& backward) {
  if (Tape* tape = tape_for(op, inputs.data(), inputs.size())) {
    append_node(*tape, op, inputs.data(), inputs.size(), nullptr, 0, outputs.data(), outputs.size(),
                Backward::of(std::forward<F>(backward)), {});
  }
}

/// The operations that accumulating gradients needs; ops/elementwise.cpp and ops/reduce.cpp provide them.
/// @{
Tensor add(const Tensor& a, const Tensor& b);
Tensor cast(const Tensor& x, DType type);
Tensor sum_to(const Tensor& x, const Shape& shape);
/// @}

}  // namespace tapeformer
