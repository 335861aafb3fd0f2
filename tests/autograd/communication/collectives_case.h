#pragma once

#include <doctest/doctest.h>
#include <tapeformer/autograd/communication/communicator.h>
#include <tapeformer/tests/reference/support.h>

namespace tapeformer {

/// A rank's numbers: small ones, so that sums are exact in every type and order.
inline double number(int rank, Index i) { return (rank + 1) * static_cast<double>(i % 7 + 1); }
inline Tensor own_numbers(int rank, Index count, DType type, Device device) {
  return filled({count}, [&](Index i) { return number(rank, i); }).to(type).to(device);
}
inline double sum_at(int size, Index i) {
  double sum = 0;
  for (int rank = 0; rank < size; ++rank) sum += number(rank, i);
  return sum;
}

/// `count` numbers are summed and sent, and where they divide into shares these are summed and gathered.
inline void check_collectives(Communicator& ranks, Index count, DType type, Device device) {
  CAPTURE(count);
  CAPTURE(name_of(type));
  const Index share = count / ranks.size(), begin = share * ranks.rank();
  const bool adds = type != DType::i32, divides = count % ranks.size() == 0;
  const auto after = [&](Communication (Communicator::*collective)(const Tensor&)) {
    const Tensor x = own_numbers(ranks.rank(), count, type, device);
    (ranks.*collective)(x).wait();
    return x.to(Device::cpu()).to(DType::f64);
  };
  const auto check = [&](const Tensor& x, Index from, Index to, const auto& expected) {
    for (Index i = from; i < to; i += 1 + count / 50) CHECK(x.at(i) == expected(i));
  };
  const auto sum = [&](Index i) { return sum_at(ranks.size(), i); };
  if (adds) check(after(&Communicator::all_reduce), 0, count, sum);
  if (adds && divides) check(after(&Communicator::reduce_scatter), begin, begin + share, sum);
  if (divides)
    check(after(&Communicator::all_gather), 0, count,
          [&](Index i) { return number(static_cast<int>(i / share), i); });
  check(after(&Communicator::broadcast), 0, count, [](Index i) { return number(0, i); });
}

}  // namespace tapeformer
