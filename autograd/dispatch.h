#pragma once

#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/kernels/write.h>
#include <tapeformer/autograd/profile.h>
#include <tapeformer/autograd/tensor.h>

#include <initializer_list>
#include <tuple>
#include <type_traits>

namespace tapeformer {

/// Marks an argument of dispatch() that has the wide type: f32 next to bf16, else the same type. For
/// statistics, losses, and gradients that are sums over many rows.
template <class Argument>
struct WideArgument {
  const Argument& argument;
};
template <class Argument>
WideArgument<Argument> wide(const Argument& argument) {
  return {argument};
}

/// The address of the elements, or nullptr of an undefined tensor.
template <class T>
T* address_or_null(const Tensor& x) {
  return x.defined() ? x.address<T>() : nullptr;
}

/// A kernel's memory for sums in the type of a gradient; its address is nullptr unless they are needed.
template <class T>
struct PartialSums {
  PartialSums(const kernels::Write<T>&, bool needed, const Shape& shape, Device device)
      : memory(needed ? Tensor::empty(shape, dtype_of<T>(), device) : Tensor()),
        address(address_or_null<T>(memory)) {}
  Tensor memory;
  T* address;
};

namespace detail {

/// A Tensor or a GradientSlot's buffer, ready to become a pointer, and whether it has the wide type.
struct TensorArgument {
  const Tensor& tensor;
  bool is_wide;
};
template <class Target>
struct SlotArgument {
  Target target;
  bool is_wide;
};
inline TensorArgument prepared(const Tensor& x, bool is_wide = false) { return {x, is_wide}; }
template <class Slot, class Target = typename Slot::Target>
SlotArgument<Target> prepared(const Slot& slot, bool is_wide = false) {
  return {slot.target(is_wide), is_wide};
}
template <class Argument>
auto prepared(const WideArgument<Argument>& x) {
  return prepared(x.argument, true);
}
inline const Tensor& tensor_of(const TensorArgument& argument) { return argument.tensor; }
template <class Target>
const Tensor& tensor_of(const SlotArgument<Target>& argument) {
  return argument.target.buffer;
}

/// The bytes of an argument that a kernel reads and writes; a buffer that it adds to counts twice.
inline Index bytes_of(const TensorArgument& argument) {
  return argument.tensor.defined() ? argument.tensor.bytes() : 0;
}
template <class Target>
Index bytes_of(const SlotArgument<Target>& argument) {
  const auto& [buffer, add] = argument.target;
  return buffer.defined() ? (add ? 2 : 1) * buffer.bytes() : 0;
}

/// The element type of an argument, where T is the type of those that are not wide.
template <class Argument>
struct IsWide : std::false_type {};
template <class Argument>
struct IsWide<WideArgument<Argument>> : std::true_type {};
template <class T, class Argument>
using Element = std::conditional_t<IsWide<Argument>::value, kernels::Wide<T>, T>;

template <class T>
T* pointer(const TensorArgument& x) {
  return address_or_null<T>(x.tensor);
}
template <class T, class Target>
kernels::Write<T> pointer(const SlotArgument<Target>& x) {
  return {pointer<T>(TensorArgument{x.target.buffer, false}), x.target.add};
}

/// Throws unless `x` fits `first`: floating, of its type (if `is_wide`, of its wide type), on its device.
void check_operand(const char* op, const Tensor& first, const Tensor& x, bool is_wide);
/// Throws the error of a build without CUDA for a tensor on a GPU.
[[noreturn]] void throw_without_cuda(const char* op);
[[noreturn]] void throw_bf16_on_cpu(const char* op, const Tensor& x);
/// The tag for a kernel that is about to be queued. Throws the errors that earlier kernels have left.
kernels::Cuda cuda_tag(Device device);
/// Rethrows a GPU's error, with the operation's name and operands.
[[noreturn]] void throw_again(const char* op, const DeviceError& error,
                              std::initializer_list<const Tensor*> operands);

}  // namespace detail

/// Checks a tensor that dispatch() does not see; an undefined one passes.
/// Throws:  DeviceError unless `x` is on the device of `like`
void require_same_device(const char* op, const char* name, const Tensor& x, const Tensor& like);

/// The second argument of dispatch().
template <class... Arguments>
std::tuple<const Arguments&...> operands(const Arguments&... arguments) {
  return {arguments...};
}

/// Turns tensors into pointers and picks the kernel's device and type; nothing else does. Calls
/// `kernel(device tag, pointers...)`: T* for a Tensor (nullptr when undefined), Write<T> for a GradientSlot;
/// with wide(argument) in the wide type. The first defined argument that is not wide decides T (if all are
/// wide, the first). The caller captures tensors of other types as pointers (Tensor::address) and checks
/// their device with require_same_device().
/// Throws:  DTypeError or DeviceError naming `op` and the tensors
template <class... Arguments, class Kernel>
void dispatch(const char* op, const std::tuple<const Arguments&...>& arguments, Kernel&& kernel) {
  const OpTimer timer(op);
  const auto use = [&](const auto&... x) {
    const Tensor *first = nullptr, *first_wide = nullptr;
    const auto find = [&](const Tensor& t, bool is_wide) {
      const Tensor*& found = is_wide ? first_wide : first;
      if (t.defined() && found == nullptr) found = &t;
    };
    (find(detail::tensor_of(x), x.is_wide), ...);
    if (first == nullptr) first = first_wide;
    if (first == nullptr) return;
    (detail::check_operand(op, *first, detail::tensor_of(x), x.is_wide), ...);
    if (is_profiled()) count_bytes(op, (detail::bytes_of(x) + ...));
    const auto run = [&](auto on, auto zero) {
      using T = decltype(zero);
      kernel(on, detail::pointer<detail::Element<T, Arguments>>(x)...);
    };
    if (!first->device().is_cuda()) {
      switch (first->dtype()) {
        case DType::f32: return run(kernels::Cpu{}, float{});
        case DType::f64: return run(kernels::Cpu{}, double{});
        default: detail::throw_bf16_on_cpu(op, *first);
      }
    }
#if defined(TAPEFORMER_CUDA)
    const kernels::Cuda on = detail::cuda_tag(first->device());
    try {
      switch (first->dtype()) {
        case DType::f32: return run(on, float{});
        case DType::f64: return run(on, double{});
        default: return run(on, BFloat16{});
      }
    } catch (const DeviceError& error) {
      detail::throw_again(op, error, {&detail::tensor_of(x)...});
    }
#else
    detail::throw_without_cuda(op);
#endif
  };
  std::apply([&](const auto&... x) { use(detail::prepared(x)...); }, arguments);
}

/// For kernels without floating arguments: calls `kernel(device tag)`.
template <class Kernel>
void dispatch_on(const char* op, Device device, Kernel&& kernel) {
  const OpTimer timer(op);
  if (!device.is_cuda()) return kernel(kernels::Cpu{});
#if defined(TAPEFORMER_CUDA)
  const kernels::Cuda on = detail::cuda_tag(device);
  try {
    kernel(on);
  } catch (const DeviceError& error) {
    detail::throw_again(op, error, {});
  }
#else
  detail::throw_without_cuda(op);
#endif
}

}  // namespace tapeformer
