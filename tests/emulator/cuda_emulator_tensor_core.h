#pragma once

// The functions of autograd/kernels/cuda/tensor_core.h, played by the host: see there.

#include <cuda_emulator.h>
#include <tapeformer/autograd/bfloat16.h>

inline unsigned __float_as_uint(float x) { return tapeformer::emulator::bit_cast<unsigned>(x); }

namespace tapeformer::emulator {

/// A lane's parts of the factors.
struct MmaFactors {
  unsigned a[4], b[2];
};
/// The pointer that `lane` shares. Kernels never read the shared values themselves.
const void* shared_pointer(const char* shared, unsigned lane);
/// c of one lane, from what all lanes share.
void add_products(float (&c)[4], const char* factors, unsigned lane);
/// add_products() in TF32. Throws: Fault unless all factors are rounded
void add_products_tf32(float (&c)[4], const char* factors, unsigned lane);

/// An asynchronous copy that waits to be done; without a source it writes zeros.
struct PendingCopy {
  void* to;
  const void* from;
};
/// This thread's copies: of closed groups, and of the one that is open.
void begin_copy(const PendingCopy& copy);
void close_group();
/// One of the copies that must be done when only `pending` groups may be missing; false when all are.
bool next_due(std::size_t pending, PendingCopy& copy);

unsigned linear_thread();
/// Throws: Fault unless `address` is a multiple of 16
void require_aligned(const void* address, const char* what);

inline unsigned own_lane() { return linear_thread() % 32; }

}  // namespace tapeformer::emulator

namespace tapeformer::kernels {

inline void mma_bf16(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1,
                     const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  const emulator::MmaFactors own{{a[0], a[1], a[2], a[3]}, {b0, b1}};
  emulator::add_products(c, emulator::share(&own, sizeof own, file, line), emulator::own_lane());
}

inline void mma_tf32(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1,
                     const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  const emulator::MmaFactors own{{a[0], a[1], a[2], a[3]}, {b0, b1}};
  emulator::add_products_tf32(c, emulator::share(&own, sizeof own, file, line), emulator::own_lane());
}

inline int least_of_warp(int x, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  for (int offset = 16; offset > 0; offset /= 2) x = min(x, __shfl_xor_sync(~0u, x, offset, 32, file, line));
  return x;
}
inline int most_of_warp(int x, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  for (int offset = 16; offset > 0; offset /= 2) x = max(x, __shfl_xor_sync(~0u, x, offset, 32, file, line));
  return x;
}

/// Rows of 16 bytes of four matrices, to which the lanes point.
template <class Read>
void emulated_load_matrix(unsigned (&r)[4], const void* own_row, const char* file, int line, Read&& read) {
  emulator::require_aligned(own_row, "a row that ldmatrix reads");
  const char* rows = emulator::share(&own_row, sizeof own_row, file, line);
  for (unsigned matrix = 0; matrix < 4; ++matrix) {
    const auto row = [&](unsigned i) { return emulator::shared_pointer(rows, 8 * matrix + i); };
    r[matrix] = read(row, emulator::own_lane());
  }
}

inline void load_matrix_x4(unsigned (&r)[4], const void* own_row, const char* file = __builtin_FILE(),
                           int line = __builtin_LINE()) {
  emulated_load_matrix(r, own_row, file, line, [](const auto& row, unsigned lane) {
    return static_cast<const unsigned*>(row(lane / 4))[lane % 4];
  });
}

inline void load_matrix_x4_transposed(unsigned (&r)[4], const void* own_row,
                                      const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  emulated_load_matrix(r, own_row, file, line, [](const auto& row, unsigned lane) {
    const unsigned low = static_cast<const std::uint16_t*>(row(lane % 4 * 2))[lane / 4];
    const unsigned high = static_cast<const std::uint16_t*>(row(lane % 4 * 2 + 1))[lane / 4];
    return low | high << 16;
  });
}

inline void copy_async_16(void* shared, const void* global, bool is_there) {
  emulator::require_aligned(shared, "where an asynchronous copy goes");
  emulator::require_aligned(global, "where an asynchronous copy comes from");
  emulator::begin_copy({shared, is_there ? global : nullptr});
}
inline void copy_async_commit() { emulator::close_group(); }
template <int Pending>
void copy_async_wait() {
  // As late as the rules allow, by the thread that waits.
  for (emulator::PendingCopy copy; emulator::next_due(Pending, copy);)
    *static_cast<uint4*>(copy.to) = copy.from == nullptr ? uint4{} : *static_cast<const uint4*>(copy.from);
}

inline void prefetch_line(const void*) {}

inline unsigned pack_bf16(float low, float high) {
  return BFloat16(low).bits | static_cast<unsigned>(BFloat16(high).bits) << 16;
}
inline unsigned round_tf32(float x) {
  const unsigned bits = __float_as_uint(x);
  if (x != x) return 0x7FFFE000u;
  return (std::isfinite(x) ? bits + 0x1000u : bits) & 0xFFFFE000u;
}
inline float exp2_approx(float x) { return exp2f(x); }

}  // namespace tapeformer::kernels
