#pragma once

#include <tapeformer/autograd/tensor.h>

#include <memory>
#include <utility>
#include <xtensor/xadapt.hpp>
#include <xtensor/xarray.hpp>

namespace tapeformer {

/// Takes over the array's memory: on the CPU nothing is copied.
/// Throws:  ShapeError for more than Shape::kMaxRank axes
template <class T>
Tensor from_xtensor(xt::xarray<T>&& array) {
  Shape shape;
  for (const auto size : array.shape()) shape.append(static_cast<Index>(size));
  auto owner = std::make_shared<xt::xarray<T>>(std::move(array));
  T* const data = owner->data();
  const std::size_t bytes = owner->size() * sizeof(T);
  return Tensor::adopt(Handle<Storage>(new Storage(data, bytes, [owner]() mutable { owner.reset(); })), shape,
                       dtype_of<T>())
      .to(default_device());
}

/// Computes an expression, or copies an array that is used later or a view of one.
/// Throws:  ShapeError for more than Shape::kMaxRank axes
template <class E>
Tensor from_xtensor(const xt::xexpression<E>& expression) {
  return from_xtensor(xt::xarray<typename E::value_type>(expression.derived_cast()));
}

/// The tensor's elements as an xtensor array, which keeps their memory alive; on the CPU nothing is copied.
/// As with data(), a value that a tape has recorded must not be changed.
/// Throws:  DTypeError unless T is the type of the elements
template <class T>
auto as_xtensor(const Tensor& tensor) {
  const Tensor x = tensor.to(Device::cpu());
  const xt::dynamic_shape<std::size_t> shape(x.shape().begin(), x.shape().end());
  return xt::adapt_smart_ptr(std::shared_ptr<T>(std::make_shared<Tensor>(x), x.data<T>()), shape);
}

}  // namespace tapeformer
