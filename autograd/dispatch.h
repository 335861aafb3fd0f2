#pragma once

#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/kernels/write.h>
#include <tapeformer/autograd/profile.h>
#include <tapeformer/autograd/tape.h>

#include <string>
#include <tuple>

namespace tapeformer {
namespace detail {

inline const Tensor& tensor_of(const Tensor& x) { return x; }
inline GradientSlot::Target tensor_of(const GradientSlot& slot) {
  return slot ? slot.target() : GradientSlot::Target{{}, false};
}
inline const Tensor& buffer_of(const Tensor& x) { return x; }
inline const Tensor& buffer_of(const GradientSlot::Target& target) { return target.buffer; }

template <class T>
T* pointer(const Tensor& x) {
  return x.defined() ? x.data<T>() : nullptr;
}
template <class T>
kernels::Write<T> pointer(const GradientSlot::Target& target) {
  return {pointer<T>(target.buffer), target.add};
}

[[noreturn]] void throw_floating_type(const char* op, const Tensor& x);
[[noreturn]] void throw_mixed_types(const char* op, const Tensor& a, const Tensor& b);

}  // namespace detail

/// Turns tensors into pointers and picks the kernel's device and type: the one place that does.
/// Calls `kernel(device tag, pointers...)`: T* for a Tensor (nullptr when undefined), Write<T> for a
/// GradientSlot. All are of one floating type. Tensors of other types are captured as pointers by the caller.
/// Throws: DTypeError naming `op` and the tensors.
template <class Kernel, class... Arguments>
void dispatch(const char* op, Kernel&& kernel, const Arguments&... arguments) {
  const OpTimer timer(op);
  const auto tensors = std::make_tuple(detail::tensor_of(arguments)...);
  std::apply(
      [&](const auto&... x) {
        const Tensor* first = nullptr;
        const auto check = [&](const Tensor& t) {
          if (!t.defined()) return;
          if (first == nullptr) first = &t;
          if (!is_floating(t.dtype())) detail::throw_floating_type(op, t);
          if (t.dtype() != first->dtype()) detail::throw_mixed_types(op, *first, t);
        };
        (check(detail::buffer_of(x)), ...);
        if (first == nullptr) return;
        if (first->dtype() == DType::f32) {
          kernel(kernels::Cpu{}, detail::pointer<float>(x)...);
        } else {
          kernel(kernels::Cpu{}, detail::pointer<double>(x)...);
        }
      },
      tensors);
}

}  // namespace tapeformer
