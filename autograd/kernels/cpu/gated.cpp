#include <tapeformer/autograd/kernels/cpu/parallel.h>
#include <tapeformer/autograd/kernels/cpu/simd.h>
#include <tapeformer/autograd/kernels/gated.h>

#include <algorithm>

namespace tapeformer::kernels {
namespace {

// Rows are processed in pieces, so that intermediate results stay in the L1 cache.
constexpr Index kPiece = 512;

template <class T>
Lanes<T> product(const Lanes<T>& a, const Lanes<T>& b) {
  return a * b;
}

/// Calls piece(row, from, length) for every piece of every row.
template <class Piece>
void for_each_piece(Index rows, Index width, const Piece& piece) {
  parallel_ranges(rows, 8 * width, [&](Index first, Index last) {
    for (Index row = first; row < last; ++row) {
      for (Index from = 0; from < width; from += kPiece) piece(row, from, std::min(kPiece, width - from));
    }
  });
}

}  // namespace

template <class T>
void gated_forward(Cpu, Unary f, Index rows, Index width, const T* x, T* y) {
  for_each_piece(rows, width, [&](Index row, Index from, Index length) {
    const T *a = x + row * 2 * width + from, *b = a + width;
    T* to = y + row * width + from;
    unary_forward(Cpu{}, f, length, a, to);
    map_simd(0, length, to, product<T>, static_cast<const T*>(to), b);
  });
}

template <class T>
void gated_backward(Cpu, Unary f, Index rows, Index width, const T* x, const T* dy, Write<T> dx) {
  for_each_piece(rows, width, [&](Index row, Index from, Index length) {
    const Index at = row * 2 * width + from;
    const T *a = x + at, *b = a + width, *d = dy + row * width + from;
    T gate[kPiece], dgate[kPiece];
    unary_forward(Cpu{}, f, length, a, gate);
    map_simd(0, length, dgate, product<T>, d, b);
    unary_backward(Cpu{}, f, length, saves_output(f) ? gate : a, dgate, Write<T>{dx.to + at, dx.add});
    write_simd(0, length, Write<T>{dx.to + at + width, dx.add}, product<T>, d, static_cast<const T*>(gate));
  });
}

TAPEFORMER_CPU_KERNEL(gated_forward);
TAPEFORMER_CPU_KERNEL(gated_backward);

}  // namespace tapeformer::kernels
