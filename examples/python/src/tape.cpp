#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/examples/python/src/arrays.h>
#include <tapeformer/examples/python/src/bindings.h>

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace nb = nanobind;
using namespace nb::literals;

namespace tapeformer::python {
namespace {

/// A guard of this thread, for a `with` block.
template <class Guard>
class Block {
 public:
  Block() = default;
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  ~Block() {
    // Left behind by a block that never ended: only its own thread could take it off that thread's list.
    if (guard_ && !is_own_thread()) guard_.release();
  }

  void enter() {
    if (guard_) throw TapeError("[with] the block has begun already; try a new object for each block");
    guard_ = std::make_unique<Guard>();
    thread_ = std::this_thread::get_id();
  }
  void exit(const nb::args& /*exception*/) {
    active();
    guard_.reset();
  }
  Guard& active() const {
    if (!guard_) throw TapeError("[tape] it records inside its `with` block only; try calling this in there");
    if (!is_own_thread()) throw TapeError("[tape] it belongs to another thread; try a tape for each thread");
    return *guard_;
  }

 private:
  bool is_own_thread() const { return thread_ == std::this_thread::get_id(); }
  std::unique_ptr<Guard> guard_;
  std::thread::id thread_;
};
using PythonTape = Block<Tape>;
using NoGrad = Block<NoGradGuard>;

std::vector<Tensor> gradients(const PythonTape& tape, const Input& loss, const nb::sequence& of,
                              const Input& seed, bool recorded) {
  std::vector<Tensor> tensors;
  for (const nb::handle x : of) {
    if (!nb::isinstance<Tensor>(x) && !nb::isinstance<Parameter>(x))
      throw nb::type_error(
          "gradients are of tensors that the tape watches, and of parameters; try Tensor(array)");
    tensors.push_back(tensor_of(x));
  }
  Tape& active = tape.active();
  const nb::gil_scoped_release release;
  return active.gradients(loss, tensors, seed, recorded);
}

}  // namespace

void bind_tape(nb::module_& module) {
  nb::class_<PythonTape>(
      module, "Tape",
      "Records the operations of this thread in a `with` block, until backward() or its end:\n\n"
      "    with tapeformer.Tape() as tape:\n"
      "        tape.backward(loss(model(x)))")
      .def(nb::init<>())
      .def("__enter__",
           [](nb::object self) {
             nb::cast<PythonTape&>(self).enter();
             return self;
           })
      .def("__exit__", &PythonTape::exit)
      .def(
          "watch", [](const PythonTape& tape, const Tensor& x) { tape.active().watch(x); }, "x"_a,
          "Makes a tensor one that gradients() can be of. Parameters need no watching.")
      .def(
          "backward",
          [](const PythonTape& tape, const Input& loss, const Input& seed) {
            Tape& active = tape.active();
            const nb::gil_scoped_release release;
            active.backward(loss, seed);
          },
          "loss"_a, "seed"_a = nb::none(),
          "Adds d loss / d parameter to every parameter's gradient, and ends the tape.")
      .def("gradients", &gradients, "loss"_a, "of"_a, "seed"_a = nb::none(), "recorded"_a = false,
           "d loss / d x for every x of `of`: tensors that are watched or were computed here, and "
           "parameters.\n"
           "With `recorded` they can be differentiated again.")
      .def(
          "detect_anomalies", [](const PythonTape& tape) { tape.active().detect_anomalies(); },
          "From now on the first operation that yields a NaN or an infinity raises a TapeError.")
      .def("__str__", [](const PythonTape& tape) {
        std::ostringstream text;
        tape.active().print(text);
        return text.str();
      });
  nb::class_<NoGrad>(module, "no_grad", "Nothing is recorded in its `with` block.")
      .def(nb::init<>())
      .def("__enter__", [](NoGrad& block) { block.enter(); })
      .def("__exit__", &NoGrad::exit);
}

}  // namespace tapeformer::python
