#include <cuda_emulator_tensor_core.h>
#include <tapeformer/tests/emulator/machine.h>

// Never instrumented: fragments are registers of a lane, not memory.
namespace tapeformer::emulator {
namespace {

struct Copies {
  std::vector<PendingCopy> copies;
  std::vector<std::size_t> groups;  ///< how many copies each closed group still has
  std::size_t next_copy = 0, next_group = 0;
  std::size_t open = 0;  ///< copies in the group that is not closed
};
thread_local std::array<Copies, kMaxThreads> copies_of;
thread_local std::size_t begun = 0;  ///< copies of the block

/// The factors of lane `of_four` of the four that hold a row of the first matrix or a column of the second.
const MmaFactors& lane_of(const char* factors, unsigned four, unsigned of_four) {
  return *reinterpret_cast<const MmaFactors*>(factors + (four * 4 + of_four) * kSharedStride);
}

template <unsigned Depth>
void add_rows_times_columns(float (&c)[4], const float (&a)[2][Depth], const float (&b)[2][Depth]) {
  for (unsigned k = 0; k < Depth; ++k)
    for (unsigned i = 0; i < 4; ++i) c[i] += a[i / 2][k] * b[i % 2][k];
}

}  // namespace

unsigned linear_thread() { return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); }

void require_aligned(const void* address, const char* what) {
  if (reinterpret_cast<std::uintptr_t>(address) % 16 != 0)
    throw Fault(std::string(what) + " lies at a multiple of 16 bytes; got ..." +
                std::to_string(reinterpret_cast<std::uintptr_t>(address) % 16));
}

const void* shared_pointer(const char* shared, unsigned lane) {
  const void* pointer;
  std::memcpy(&pointer, shared + lane * kSharedStride, sizeof pointer);
  return pointer;
}

void add_products(float (&c)[4], const char* factors, unsigned lane) {
  float a[2][16], b[2][16];
  for (unsigned k = 0; k < 16; ++k) {
    for (unsigned i = 0; i < 2; ++i) {
      a[i][k] = half_of(lane_of(factors, lane / 4, k % 8 / 2).a[k / 8 * 2 + i], k % 2);
      b[i][k] = half_of(lane_of(factors, lane % 4 * 2 + i, k % 8 / 2).b[k / 8], k % 2);
    }
  }
  add_rows_times_columns(c, a, b);
}

void add_products_tf32(float (&c)[4], const char* factors, unsigned lane) {
  const auto factor = [](unsigned bits) {
    if ((bits & 0x1FFFu) != 0) throw Fault("a factor of TF32 must be rounded to it");
    return bit_cast<float>(bits);
  };
  float a[2][8], b[2][8];
  for (unsigned k = 0; k < 8; ++k) {
    for (unsigned i = 0; i < 2; ++i) {
      a[i][k] = factor(lane_of(factors, lane / 4, k % 4).a[k / 4 * 2 + i]);
      b[i][k] = factor(lane_of(factors, lane % 4 * 2 + i, k % 4).b[k / 4]);
    }
  }
  add_rows_times_columns(c, a, b);
}

void begin_copy(const PendingCopy& copy) {
  Copies& own = copies_of[linear_thread()];
  own.copies.push_back(copy);
  ++own.open;
  ++begun;
  // It may be done from now on. A thread that waits for it writes it again.
  if (watching) touched(copy.to, 16, Access::write, __builtin_return_address(0));
}

void close_group() {
  Copies& own = copies_of[linear_thread()];
  own.groups.push_back(own.open);
  own.open = 0;
}

bool next_due(std::size_t pending, PendingCopy& copy) {
  Copies& own = copies_of[linear_thread()];
  for (; own.groups.size() - own.next_group > pending; ++own.next_group) {
    std::size_t& left = own.groups[own.next_group];
    if (left == 0) continue;
    --left;
    copy = own.copies[own.next_copy++];
    return true;
  }
  return false;
}

void forget_copies() {
  if (begun == 0) return;
  for (Copies& own : copies_of) {
    own.copies.clear();
    own.groups.clear();
    own.next_copy = own.next_group = own.open = 0;
  }
  begun = 0;
}

}  // namespace tapeformer::emulator
