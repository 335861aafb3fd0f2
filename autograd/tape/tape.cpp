#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/autograd/profile.h>
#include <tapeformer/autograd/tape/tape.h>

#include <algorithm>
#include <atomic>
#include <functional>

namespace tapeformer {
namespace {

thread_local Tape* recording_tape = nullptr;
constexpr std::uint64_t kParts = std::uint64_t{1} << 28;  // ids of a tape: its own, then one per part
std::atomic<std::uint64_t> last_id{0};

/// While one lives, a Profile counts kernels as backward.
struct BackwardMark {
  bool outer = std::exchange(profiled_pass_is_backward, true);
  ~BackwardMark() { profiled_pass_is_backward = outer; }
};

}  // namespace

Tape::Tape() : ids_{last_id += kParts}, outer_(recording_tape) { recording_tape = this; }

Tape::~Tape() { leave(); }

void Tape::leave() {
  for (Tape** tape = &recording_tape; *tape != nullptr; tape = &(*tape)->outer_) {
    if (*tape != this) continue;
    *tape = outer_;
    return;
  }
}

Tape* Tape::current() {
  Tape* tape = recording_tape;
  while (tape != nullptr && tape->spent_) tape = tape->outer_;
  return tape == nullptr || tape->pauses_ ? nullptr : tape;
}

bool Tape::is_computed_here(const Tensor& x) const {
  const std::uint64_t tape = x.state()->tape;
  return tape != 0 && std::find(ids_.rbegin(), ids_.rend(), tape) != ids_.rend();
}

std::int32_t Tape::new_slot(const Tensor& x) {
  Slot slot;
  slot.shape = x.shape();
  slot.dtype = x.dtype();
  slot.device = x.device();
  slots_.push_back(std::move(slot));
  return static_cast<std::int32_t>(slots_.size()) - 1;
}

std::int32_t Tape::new_leaf(const Tensor& x) {
  const std::int32_t slot = new_slot(x);
  slots_.back().leaf = x;
  leaves_.put(x.state(), slot);
  return slot;
}

void Tape::stamp(const char* op, const Tensor& x) {
  if (leaves_.find(x.state()) >= 0)
    throw TapeError(format("[{}] the output must not be a parameter or watched; got y={}; try detach()", op,
                           x.describe()));
  x.state()->slot = new_slot(x);
  x.state()->tape = ids_.back();
}

void Tape::check_unchanged(const Slot& slot) const {
  const Tensor& now = slot.parameter->value;
  if (slot.shape == now.shape() && wide(slot.dtype) == wide(now.dtype()) && slot.device == now.device())
    return;
  throw TapeError(
      format("[backward] a parameter's value was replaced by one of another shape, type or device after the "
             "forward pass had used it; got {} for {}; try set_value() after backward, or before the Tape",
             now.describe(), slot.leaf.describe()));
}

std::int32_t Tape::slot_of(const char* op, const Tensor& x) {
  if (!x.defined()) return -1;
  const Tensor::State& state = *x.state();
  if (state.parameter == nullptr && is_computed_here(x)) return state.slot;
  const std::int32_t known = leaves_.find(&state);
  if (state.parameter != nullptr) {
    const bool watched = known >= 0 && !slots_[static_cast<std::size_t>(known)].parameter;
    if (watched) return known;
    if (!state.parameter->trainable) return -1;  // though it may have been at an earlier use
    if (known >= 0) return known;
    const std::int32_t slot = new_leaf(x);
    slots_.back().parameter = Handle<ParameterState>(state.parameter);
    return slot;
  }
  if (known >= 0 || state.tape == 0) return known;
  const bool is_of_a_body = state.tape / kParts == ids_.front() / kParts;
  throw TapeError(format(
      is_of_a_body ? "[{}] an input was computed inside a body that is recomputed, which keeps its result "
                     "only; got x={}; try returning it from the body, or detach()"
                   : "[{}] an input was computed on another tape (ended, outer, or of another thread); "
                     "got x={}; try detach(), or watch() on this tape",
      op, x.describe()));
}

std::int32_t Tape::checked_slot(const char* op, const Tensor& x) {
  if (x.defined() && x.state()->parameter != nullptr && leaves_.find(x.state()) < 0) {
    for (std::size_t i = 0; i < slots_.size(); ++i) {  // its value may have been replaced since
      if (slots_[i].parameter.get() != x.state()->parameter) continue;
      check_unchanged(slots_[i]);
      return static_cast<std::int32_t>(i);
    }
  }
  const std::int32_t slot = slot_of(op, x);
  if (slot >= 0) return slot;
  const bool is_frozen = x.defined() && x.state()->parameter != nullptr;
  throw TapeError(format(
      is_frozen ? "[{}] the parameter is frozen; got x={}; try set_trainable(true), or tape.watch(x) before "
                  "the forward pass"
                : "[{}] the tensor must be a parameter, or watched by this tape, or computed on it; got "
                  "x={}; try tape.watch(x) before the forward pass",
      op, x.describe()));
}

void Tape::watch(const Tensor& x) {
  const bool is_parameter = x.defined() && x.state()->parameter != nullptr;
  if (is_parameter ? slot_of("watch", x) >= 0 : tracks(x)) return;
  new_leaf(x);
}

Tape* tape_for(const char* op, const Tensor* inputs, std::size_t count) {
  Tape* tape = Tape::current();
  if (tape == nullptr) return nullptr;
  bool tracked = false;
  for (std::size_t i = 0; i < count; ++i) tracked = tape->slot_of(op, inputs[i]) >= 0 || tracked;
  return tracked ? tape : nullptr;
}

void append_node(Tape& tape, const char* op, const Tensor* inputs, std::size_t input_count,
                 const Tensor* saved, std::size_t saved_count, const Tensor* outputs,
                 std::size_t output_count, Backward backward, ComposedFallback fallback) {
  for (std::size_t i = 0; i < output_count && tape.detects_anomalies_; ++i)
    tape.check_result(op, inputs, input_count, outputs[i]);
  if (tape.in_checkpoint_) {
    // The body's node comes next, and its parameters are used there.
    for (std::size_t i = 0; i < input_count; ++i) tape.use(tape.slot_of(op, inputs[i]));
    for (std::size_t i = 0; i < output_count; ++i) tape.stamp(op, outputs[i]);
    return;
  }
  Tape::Node node;
  node.op = op;
  node.inputs.reserve(input_count);
  for (std::size_t i = 0; i < input_count; ++i) {
    node.inputs.push_back(tape.slot_of(op, inputs[i]));
    tape.use(node.inputs.back());
  }
  node.saved.reserve(saved_count);
  for (std::size_t i = 0; i < saved_count; ++i) {
    if (!saved[i].defined()) continue;
    const Tensor::State& state = *saved[i].state();
    // The tape keeps nothing of a frozen parameter, which is there anyway.
    if (state.parameter == nullptr || state.parameter->trainable) node.saved.push_back(state.storage);
  }
  node.backward = std::move(backward);
  node.fallback = std::move(fallback);
  node.first_output = static_cast<std::int32_t>(tape.slots_.size());
  node.outputs = static_cast<std::int32_t>(output_count);
  for (std::size_t i = 0; i < output_count; ++i) tape.stamp(op, outputs[i]);
  tape.nodes_.push_back(std::move(node));
}

void Tape::use(std::int32_t slot) {
  if (slot < 0) return;
  std::int32_t& first = slots_[static_cast<std::size_t>(slot)].first_use;
  first = std::min(first, static_cast<std::int32_t>(nodes_.size()));
}

void Tape::check_loss(const char* op, const Tensor& loss, const Tensor& seed) {
  if (in_checkpoint_)
    throw TapeError(format(
        "[{}] the operations of a checkpointed body are not kept, so its tape cannot go back over them; "
        "try a Tape of its own inside the body",
        op));
  if (spent_)
    throw TapeError(format(
        "[{}] the tape is spent: backward frees what it used; try gradients() for several passes, or a "
        "new Tape for the next step",
        op));
  if (slot_of(op, loss) < 0)
    throw TapeError(format(
        "[{}] the loss does not depend on any parameter or watched tensor of this tape; got loss={}; try "
        "constructing the Tape before the forward pass",
        op, loss.describe()));
  if (!seed.defined() && loss.elements() != 1)
    throw TapeError(
        format("[{}] a loss with several elements needs a seed of its shape; got loss={}; try mean(loss) or "
               "sum(loss)",
               op, loss.describe()));
  if (seed.defined() && seed.shape() != loss.shape())
    throw ShapeError(format("[{}] the seed must have the loss's shape; got loss={}, seed={}", op,
                            loss.describe(), seed.describe()));
}

void Tape::backward(const Tensor& loss, const Tensor& seed) {
  check_loss("backward", loss, seed);
  leave();
  const NoGradGuard pause;
  to_parameters_ = frees_ = true;
  recorded_ = false;
  spent_ = true;
  accumulate(slot_of("backward", loss),
             seed.defined() ? seed : Tensor::full(loss.shape(), 1, loss.dtype(), loss.device()));
  if (final_gradient_) list_final_gradients();
  run(0, nodes_.size());
  if (final_gradient_) call_final_gradients(0);
  check_reached_parameters();
  nodes_.clear();
  slots_.clear();
  leaves_.clear();
}

std::vector<Tensor> Tape::gradients(const Tensor& loss, const std::vector<Tensor>& of, const Tensor& seed,
                                    bool recorded) {
  check_loss("gradients", loss, seed);
  if (recorded && current() != this)
    throw TapeError(
        "[gradients] a recorded pass needs the tape that records now; got one that is paused, or has an "
        "inner one; try it outside the NoGradGuard or the inner tape");
  std::vector<std::size_t> slots;
  for (const Tensor& x : of) slots.push_back(static_cast<std::size_t>(checked_slot("gradients", x)));
  const struct PassEnd {  // also when the pass throws
    Tape& tape;
    ~PassEnd() {
      tape.recorded_ = false;
      for (Slot& slot : tape.slots_) {
        slot.gradient = Tensor();
        slot.keep = false;
      }
    }
  } pass_end{*this};
  for (const std::size_t slot : slots) slots_[slot].keep = true;
  to_parameters_ = frees_ = false;
  recorded_ = recorded;
  accumulate(slot_of("gradients", loss),
             seed.defined() ? seed : Tensor::full(loss.shape(), 1, loss.dtype(), loss.device()));
  const std::size_t end = nodes_.size();
  if (recorded) {
    run(0, end);
  } else {
    const NoGradGuard pause;
    run(0, end);
  }

  std::vector<Tensor> result;
  for (const std::size_t slot : slots) {
    const Slot& of_x = slots_[slot];
    result.push_back(of_x.gradient.defined() ? of_x.gradient
                                             : Tensor::full(of_x.shape, 0, of_x.dtype, of_x.device));
  }
  return result;
}

void Tape::run(std::size_t begin, std::size_t end) {
  const BackwardMark mark;
  for (std::size_t index = end; index-- > begin;) {
    run_node(index);
    if (called_final_ < not_yet_final_.size()) call_final_gradients(index);
    if (frees_) {
      nodes_[index].backward = {};
      nodes_[index].fallback = {};
      nodes_[index].saved.clear();
    }
  }
}

void Tape::list_final_gradients() {
  for (std::size_t slot = 0; slot < slots_.size(); ++slot)
    if (slots_[slot].parameter) not_yet_final_.push_back(static_cast<std::int32_t>(slot));
  const auto begin = not_yet_final_.begin();
  const auto owner = [&](std::int32_t slot) {
    return slots_[static_cast<std::size_t>(slot)].parameter.get();
  };
  const auto use = [&](std::int32_t slot) { return slots_[static_cast<std::size_t>(slot)].first_use; };
  // A parameter has a slot for each value and bf16 copy that were read: the one that is used first counts.
  std::sort(begin, not_yet_final_.end(), [&](std::int32_t a, std::int32_t b) {
    if (owner(a) != owner(b)) return std::less<>()(owner(a), owner(b));
    return use(a) != use(b) ? use(a) < use(b) : a < b;
  });
  not_yet_final_.erase(std::unique(begin, not_yet_final_.end(),
                                   [&](std::int32_t a, std::int32_t b) { return owner(a) == owner(b); }),
                       not_yet_final_.end());
  std::sort(begin, not_yet_final_.end(),
            [&](std::int32_t a, std::int32_t b) { return use(a) != use(b) ? use(a) > use(b) : a < b; });
}

/// Calls final_gradient_ for the gradients to which no node before the node-th adds.
void Tape::call_final_gradients(std::size_t node) {
  for (; called_final_ < not_yet_final_.size(); ++called_final_) {
    const Slot& slot = slots_[static_cast<std::size_t>(not_yet_final_[called_final_])];
    if (slot.first_use < static_cast<std::int32_t>(node)) return;
    final_gradient_(*slot.parameter);
  }
}

void Tape::run_node(std::size_t index) {
  // A recorded pass appends nodes and slots, so no reference into either may be held here. A running closure
  // stays in place: only the pointer to it moves.
  Gradients into(*this, index);
  bool reached = false;
  const auto first = static_cast<std::size_t>(nodes_[index].first_output);
  const auto count = static_cast<std::size_t>(nodes_[index].outputs);
  into.outputs_.reserve(count);
  for (std::size_t slot = first; slot < first + count; ++slot) {
    Tensor& gradient = slots_[slot].gradient;
    into.outputs_.push_back(slots_[slot].keep ? gradient : std::exchange(gradient, Tensor()));
    reached = reached || into.outputs_.back().defined();
  }
  if (!reached) return;

  const char* op = nodes_[index].op;
  if (nodes_[index].fallback && (recorded_ || !nodes_[index].backward)) {
    run_fallback(index, std::exchange(into.outputs_[0], Tensor()));
    return;
  }
  nodes_[index].backward(into.outputs_[0], into);
  for (const std::int32_t input : nodes_[index].inputs) {
    if (input < 0) continue;
    Slot& slot = slots_[static_cast<std::size_t>(input)];
    if (std::exchange(slot.written, false)) slot.parameter->has_gradient = true;
  }
  for (const auto& [input, gradient] : into.separate_) contribute(index, input, gradient);
  if (detects_anomalies_) {
    for (const std::int32_t input : nodes_[index].inputs) {
      if (input < 0) continue;
      const Slot& slot = slots_[static_cast<std::size_t>(input)];
      check_finite(op, to_parameters_ && slot.parameter ? slot.parameter->gradient : slot.gradient);
    }
  }
}

void Tape::run_fallback(std::size_t index, Tensor dy) {
  const struct Part {  // the fallback's nodes; only a recorded pass keeps them
    Tape& tape;
    bool is_dropped = !tape.recorded_;
    std::size_t first_node = tape.nodes_.size(), first_slot = tape.slots_.size();
    ~Part() {
      if (is_dropped) tape.drop(first_node, first_slot);
    }
  } part{*this};
  if (part.is_dropped) begin_part();
  const auto record_fallback = [&] {
    const struct Recording {  // on this tape, even if it is spent and the pass is not recorded
      Tape& tape;
      Tape* paused = std::exchange(recording_tape, &tape);
      bool spent = std::exchange(tape.spent_, false);
      ~Recording() {
        recording_tape = paused;
        tape.spent_ = spent;
      }
    } recording{*this};
    return nodes_[index].fallback();
  };
  Tensor y = record_fallback();
  const std::size_t end = nodes_.size();
  accumulate(checked_slot(nodes_[index].op, y), dy);
  y = dy = Tensor();  // frees their memory for the pass
  run(part.first_node, end);
}

void Tape::begin_part() { ids_.push_back(ids_.front() + 1 + parts_++ % (kParts - 1)); }

void Tape::drop(std::size_t first_node, std::size_t first_slot) {
  ids_.pop_back();
  nodes_.erase(nodes_.begin() + static_cast<std::ptrdiff_t>(first_node), nodes_.end());
  std::size_t kept = first_slot;  // leaves stay, with their gradients
  for (std::size_t i = first_slot; i < slots_.size(); ++i) {
    if (!slots_[i].leaf.defined()) continue;
    leaves_.put(slots_[i].leaf.state(), static_cast<std::int32_t>(kept));
    if (i != kept) slots_[kept] = std::move(slots_[i]);
    ++kept;
  }
  slots_.resize(kept);
}

}  // namespace tapeformer
