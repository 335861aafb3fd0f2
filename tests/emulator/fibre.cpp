#include <sanitizer/asan_interface.h>
#include <sys/mman.h>
#include <tapeformer/tests/emulator/fibre.h>

#include <new>

namespace tapeformer::emulator {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr std::size_t kStackBytes = 256 * 1024;  // frames have red zones
#else
constexpr std::size_t kStackBytes = 64 * 1024;
#endif
constexpr std::size_t kGuardBytes = 4096;

thread_local Fibre* left = nullptr;
thread_local Fibre* arriving = nullptr;

}  // namespace

#if defined(__x86_64__)
// Pushes callee-saved registers, leaves the stack pointer at *rdi, and pops the same from the stack at rsi.
extern "C" void tapeformer_change_stack(void** from, void* to);
asm(R"(
.text
.p2align 4
.globl tapeformer_change_stack
.hidden tapeformer_change_stack
.type tapeformer_change_stack, @function
tapeformer_change_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size tapeformer_change_stack, .-tapeformer_change_stack
)");

static void prepare(Fibre& fibre, char* top, void (*entry)()) {
  // A function starts with its return address (here none) 8 bytes below a multiple of 16.
  void** slot = reinterpret_cast<void**>(top) - 1;
  *slot = nullptr;
  *--slot = reinterpret_cast<void*>(entry);
  for (int saved = 0; saved < 6; ++saved) *--slot = nullptr;
  fibre.stack_pointer = slot;
}
static void change_stack(Fibre& from, Fibre& to) {
  tapeformer_change_stack(&from.stack_pointer, to.stack_pointer);
}
#else
static void prepare(Fibre& fibre, char* top, void (*entry)()) {
  getcontext(&fibre.context);
  char* bottom = static_cast<char*>(const_cast<void*>(fibre.bottom));
  fibre.context.uc_stack.ss_sp = bottom;
  fibre.context.uc_stack.ss_size = static_cast<std::size_t>(top - bottom);
  fibre.context.uc_link = nullptr;
  makecontext(&fibre.context, entry, 0);
}
static void change_stack(Fibre& from, Fibre& to) { swapcontext(&from.context, &to.context); }
#endif

void entered() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(arriving->fake_stack, &left->bottom, &left->bytes);
#endif
}

void change(Fibre& from, Fibre& to) {
  left = &from;
  arriving = &to;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&from.fake_stack, to.bottom, to.bytes);
#endif
  change_stack(from, to);
  entered();
}

FibreArena::FibreArena(std::size_t most) : most_(most) {
  void* memory = mmap(nullptr, most_ * (kStackBytes + kGuardBytes), PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  memory_ = static_cast<char*>(memory);
}

FibreArena::~FibreArena() {
  ASAN_UNPOISON_MEMORY_REGION(memory_, most_ * (kStackBytes + kGuardBytes));
  munmap(memory_, most_ * (kStackBytes + kGuardBytes));
}

Fibre& FibreArena::add(void (*entry)()) {
  const std::size_t number = fibres_.size();
  char* bottom = memory_ + number * (kStackBytes + kGuardBytes) + kGuardBytes;
  if (number == most_ || mprotect(bottom, kStackBytes, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
  Fibre& fibre = fibres_.emplace_back();
  fibre.bottom = bottom;
  fibre.bytes = kStackBytes;
  // Stacks begin in different cache sets: else the frames of a block's threads would evict each other.
  prepare(fibre, bottom + kStackBytes - number % 16 * 256, entry);
  return fibre;
}

}  // namespace tapeformer::emulator
