#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/autograd/shape.h>

#include <algorithm>

namespace tapeformer {

Shape::Shape(std::initializer_list<Index> sizes) : Shape(sizes.begin(), static_cast<int>(sizes.size())) {}

Shape::Shape(const Index* sizes, int rank) {
  for (int axis = 0; axis < rank; ++axis) append(sizes[axis]);
}

void Shape::append(Index size) {
  if (rank_ == kMaxRank) {
    throw ShapeError(format("[shape] at most {} axes; got one more than {}", kMaxRank, text()));
  }
  check_size(rank_, size);
  sizes_[static_cast<std::size_t>(rank_++)] = size;
}

void Shape::set(int axis, Index size) {
  const int at = checked_axis(axis);
  check_size(at, size);
  sizes_[static_cast<std::size_t>(at)] = size;
}

void Shape::check_size(int axis, Index size) const {
  if (size < 0) throw ShapeError(format("[shape] sizes must not be negative; got {}", size));
  Index bytes = 8;  // the largest element
  for (int other = 0; other < rank_; ++other) {
    if (other != axis) bytes *= std::max<Index>(sizes_[static_cast<std::size_t>(other)], 1);
  }
  if (__builtin_mul_overflow(bytes, std::max<Index>(size, 1), &bytes)) {
    throw ShapeError(
        format("[shape] a tensor must have fewer than 2^60 elements; got size {} for axis {} of {}", size,
               axis, text()));
  }
}

Index Shape::elements() const { return elements(0, rank_); }

Index Shape::elements(int from, int to) const {
  Index product = 1;
  for (int axis = from; axis < to; ++axis) product *= sizes_[static_cast<std::size_t>(axis)];
  return product;
}

int Shape::checked_axis(int axis) const {
  const int wrapped = axis < 0 ? axis + rank_ : axis;
  if (wrapped < 0 || wrapped >= rank_) {
    throw ShapeError(format("[shape] axis must be in [-rank, rank); got axis={} of {}", axis, text()));
  }
  return wrapped;
}

bool Shape::operator==(const Shape& other) const {
  return std::equal(begin(), end(), other.begin(), other.end());
}

std::string Shape::text() const { return format("[{}]", joined(*this, ",")); }

Shape broadcast_shapes(const char* op, const Shape& a, const Shape& b) {
  const int rank = std::max(a.rank(), b.rank());
  Shape result;
  for (int axis = 0; axis < rank; ++axis) {
    const int axis_a = axis - (rank - a.rank()), axis_b = axis - (rank - b.rank());
    const Index size_a = axis_a < 0 ? 1 : a[axis_a], size_b = axis_b < 0 ? 1 : b[axis_b];
    if (size_a != size_b && size_a != 1 && size_b != 1) {
      throw ShapeError(format(
          "[{}] sizes must be equal or 1, aligned at the last axis; got a={}, b={} ({} != {}); try reshape",
          op, a.text(), b.text(), size_a, size_b));
    }
    result.append(size_a == 1 ? size_b : size_a);
  }
  return result;
}

}  // namespace tapeformer
