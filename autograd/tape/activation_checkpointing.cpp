#include <tapeformer/autograd/draws.h>
#include <tapeformer/autograd/tape/activation_checkpointing.h>

namespace tapeformer {

/// The first run of a checkpointed body: no nodes are kept, and at its end the tape drops its tracked
/// tensors.
class CheckpointedForward {
 public:
  explicit CheckpointedForward(Tape& tape)
      : tape_(tape), first_slot_(tape.slots_.size()), outer_(std::exchange(tape.in_checkpoint_, true)) {
    tape.begin_part();
  }
  ~CheckpointedForward() {
    tape_.in_checkpoint_ = outer_;
    tape_.drop(tape_.nodes_.size(), first_slot_);
  }
  CheckpointedForward(const CheckpointedForward&) = delete;
  CheckpointedForward& operator=(const CheckpointedForward&) = delete;

  /// True for a result of the operations since the beginning.
  bool has_computed(const Tensor& y) const { return y.defined() && y.state()->tape == tape_.ids_.back(); }

 private:
  Tape& tape_;
  std::size_t first_slot_;
  bool outer_;
};

namespace {

constexpr const char* kOp = "checkpoint";

/// A body and the numbers that it drew in its first run.
struct Segment : Pooled {
  explicit Segment(ComposedFallback function) : body(std::move(function)) {}

  Tensor run(bool again) {
    detail::Draws draws(numbers, again);
    Tensor y = body();
    if (again && draws.next != numbers.size()) {
      detail::throw_not_the_same(
          format("it drew {} at first, and now {}", number_of(numbers.size(), "number"), draws.next));
    }
    return y;
  }

  ComposedFallback body;
  PooledVector<std::uint64_t> numbers;
};

}  // namespace

namespace detail {

Tensor checkpoint(Tensors inputs, ComposedFallback body) {
  Tape& tape = *Tape::current();
  const Handle<Segment> segment(new Segment(std::move(body)));
  Tensor y;
  {
    const CheckpointedForward forward(tape);
    y = segment->run(false);
    if (!forward.has_computed(y)) return y;
  }
  const Shape shape = y.shape();
  append_node(tape, kOp, inputs.begin(), inputs.size(), inputs.begin(), inputs.size(), &y, 1, {},
              ComposedFallback::of([segment, shape] {
                Tensor again = segment->run(true);
                if (again.shape() != shape) {
                  detail::throw_not_the_same(format("its result had the shape {} at first, and now is {}",
                                                    shape.text(), again.describe()));
                }
                return again;
              }));
  return y;
}

}  // namespace detail
}  // namespace tapeformer
