#pragma once

#include <tapeformer/autograd/device.h>
#include <tapeformer/autograd/shape.h>

namespace tapeformer::kernels {

/// Chooses the CPU's overload of a kernel. Every kernel takes such a tag first.
struct Cpu {};

/// Where a kernel puts a gradient: assigned, or added to what is there; nullptr when nobody wants it.
template <class T>
struct Write {
  T* to = nullptr;
  bool add = false;
  explicit operator bool() const { return to != nullptr; }
  void put(Index i, T value) const { to[i] = add ? to[i] + value : value; }
};

}  // namespace tapeformer::kernels
