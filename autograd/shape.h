#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

namespace tapeformer {

/// Every size, stride and position in the project.
using Index = std::int64_t;

/// The sizes of a tensor, outermost first. Stored inline: copying one never allocates.
class Shape {
 public:
  static constexpr int kMaxRank = 8;  ///< the most axes that a shape can have

  Shape() = default;
  /// As the constructor below.
  Shape(std::initializer_list<Index> sizes);
  /// Throws:  ShapeError, here and where a size changes, if rank > kMaxRank, a size is negative, or the
  ///          tensor would have 2^60 elements or more, where a size of 0 counts as 1
  Shape(const Index* sizes, int rank);

  /// The number of axes; 0 for a scalar.
  int rank() const { return rank_; }
  /// The size of an axis; negative ones count from the end. Throws: ShapeError outside [-rank, rank).
  Index operator[](int axis) const { return sizes_[static_cast<std::size_t>(checked_axis(axis))]; }
  /// Changes the size of an axis.
  void set(int axis, Index size);
  /// Adds an innermost axis.
  void append(Index size);
  /// The product of the sizes; 1 for a scalar.
  Index elements() const;
  /// The product of the sizes of axes [from, to).
  Index elements(int from, int to) const;
  /// `axis`, which may be negative, as a number in [0, rank). Throws: ShapeError outside [-rank, rank).
  int checked_axis(int axis) const;

  /// The sizes, outermost first.
  /// @{
  const Index* begin() const { return sizes_.data(); }
  const Index* end() const { return sizes_.data() + rank_; }
  /// @}

  /// Equal in rank and every size.
  bool operator==(const Shape& other) const;
  /// The negation of ==.
  bool operator!=(const Shape& other) const { return !(*this == other); }

  /// "[2,8,64]".
  std::string text() const;

 private:
  void check_size(int axis, Index size) const;

  std::array<Index, kMaxRank> sizes_{};
  int rank_ = 0;
};

/// The shape to which two operands broadcast: aligned at the last axis, sizes equal or 1.
/// Throws: ShapeError naming `op` and both shapes.
Shape broadcast_shapes(const char* op, const Shape& a, const Shape& b);

}  // namespace tapeformer
