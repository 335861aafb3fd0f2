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
thread_local std::size_t begun = 0;  ///< copies since the last block that left none

float half_of(unsigned pair, int which) {
  return static_cast<float>(
      bit_cast<BFloat16>(static_cast<std::uint16_t>(which == 0 ? pair & 0xFFFFu : pair >> 16)));
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
  const auto of = [&](unsigned other) {
    return reinterpret_cast<const MmaFactors*>(factors + other * kSharedStride);
  };
  for (int i = 0; i < 4; ++i) {
    const unsigned group = lane / 4, column = lane % 4 * 2 + static_cast<unsigned>(i % 2);
    for (unsigned k = 0; k < 16; ++k) {
      const unsigned upper = k / 8, pair = k % 8 / 2;
      const unsigned a = of(group * 4 + pair)->a[upper * 2 + static_cast<unsigned>(i / 2)];
      const unsigned b = of(column * 4 + pair)->b[upper];
      c[i] += half_of(a, k % 2) * half_of(b, k % 2);
    }
  }
}

void add_products_tf32(float (&c)[4], const char* factors, unsigned lane) {
  const auto factor = [](unsigned bits) {
    if ((bits & 0x1FFFu) != 0) throw Fault("a factor of TF32 must be rounded to it");
    return bit_cast<float>(bits);
  };
  const auto of = [&](unsigned other) {
    return reinterpret_cast<const MmaFactors*>(factors + other * kSharedStride);
  };
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned group = lane / 4, column = lane % 4 * 2 + i % 2;
    for (unsigned k = 0; k < 8; ++k)
      c[i] += factor(of(group * 4 + k % 4)->a[k / 4 * 2 + i / 2]) * factor(of(column * 4 + k % 4)->b[k / 4]);
  }
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
