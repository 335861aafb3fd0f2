#pragma once

#include <cstddef>
#include <deque>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace tapeformer::emulator {

/// A stack and the state of execution on it. The host's own stack is one too.
struct Fibre {
#if defined(__x86_64__)
  void* stack_pointer = nullptr;
#else
  ucontext_t context;
#endif
  const void* bottom = nullptr;  ///< of the stack
  std::size_t bytes = 0;
  void* fake_stack = nullptr;  ///< the address sanitizer's
};

/// Continues `to`; returns when `from` is continued.
void change(Fibre& from, Fibre& to);
/// The first thing a new fibre does.
void entered();

/// Fibres whose stacks lie in one mapping, each above a guard page.
class FibreArena {
 public:
  explicit FibreArena(std::size_t most);
  ~FibreArena();
  FibreArena(const FibreArena&) = delete;
  FibreArena& operator=(const FibreArena&) = delete;

  /// A fibre that runs `entry`, which must never return.
  Fibre& add(void (*entry)());

 private:
  std::size_t most_;
  char* memory_;
  std::deque<Fibre> fibres_;
};

}  // namespace tapeformer::emulator
