#pragma once

// The functions of autograd/kernels/cuda/hopper.h, played by the host: see there, and README.md for the
// faults that they find.

#include <cuda_emulator.h>
#include <tapeformer/tests/emulator/hopper.h>

#define __grid_constant__

namespace tapeformer::emulator {

/// The running block's.
HopperBlock& hopper();

}  // namespace tapeformer::emulator

namespace tapeformer::kernels {

inline void init_barrier(std::uint64_t* barrier, int arrivals) {
  emulator::hopper().init_barrier(barrier, arrivals);
}
inline void publish_barriers() { emulator::hopper().publish_barriers(); }
inline void publish_to_copies() { emulator::hopper().publish_to_copies(); }
inline void finish_stores() { emulator::hopper().finish_stores(); }
inline void wgmma_fence() { emulator::hopper().wgmma_fence(); }
inline void wgmma_commit() { emulator::hopper().wgmma_commit(); }
inline unsigned shared_address(const void* shared) { return emulator::hopper().shared_address(shared); }
inline void arrive(std::uint64_t* barrier) { emulator::hopper().arrive(barrier, 0); }
inline void arrive_expecting(std::uint64_t* barrier, int bytes) { emulator::hopper().arrive(barrier, bytes); }
inline void wait(std::uint64_t* barrier, unsigned parity, const char* file = __builtin_FILE(),
                 int line = __builtin_LINE()) {
  emulator::hopper().wait(barrier, parity, {file, line});
}
inline void load_box(void* to, const CUtensorMap* map, std::uint64_t* barrier, int column, int row, int head,
                     int batch, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  emulator::hopper().load_box(to, *map, barrier, {column, row, head, batch}, {file, line});
}
inline void store_box(const CUtensorMap* map, const void* from, int column, int row, int head, int batch,
                      const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  emulator::hopper().store_box(*map, from, {column, row, head, batch}, {file, line});
}
template <int Registers>
void give_up_registers(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  emulator::hopper().set_registers(Registers, false, {file, line});
}
template <int Registers>
void take_registers(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  emulator::hopper().set_registers(Registers, true, {file, line});
}
inline void meet_at(int barrier, int threads, const char* file = __builtin_FILE(),
                    int line = __builtin_LINE()) {
  emulator::hopper().meet_at(barrier, threads, true, {file, line});
}
inline void arrive_at(int barrier, int threads, const char* file = __builtin_FILE(),
                      int line = __builtin_LINE()) {
  emulator::hopper().meet_at(barrier, threads, false, {file, line});
}
template <class Registers>
void hold(Registers&) {}
template <int Size>
void wgmma(float (&d)[Size], std::uint64_t a, std::uint64_t b, bool adds, const char* file = __builtin_FILE(),
           int line = __builtin_LINE()) {
  emulator::hopper().wgmma(d, 2 * Size, a, nullptr, b, adds, {file, line});
}
template <int Size>
void wgmma(float (&d)[Size], const unsigned (&a)[4], std::uint64_t b, bool adds,
           const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  emulator::hopper().wgmma(d, 2 * Size, 0, a, b, adds, {file, line});
}
template <int Pending>
void wgmma_wait(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  emulator::hopper().wgmma_wait(Pending, {file, line});
}

}  // namespace tapeformer::kernels
