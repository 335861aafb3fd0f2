#include <tapeformer/autograd/communication/mpi.h>
#include <tapeformer/autograd/control_groups.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/storage.h>
#include <tapeformer/autograd/threads.h>
#include <tapeformer/examples/shared/address_space.h>
#include <tapeformer/examples/shared/program.h>

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <new>
#include <string>
#include <thread>

namespace tapeformer {
namespace {

std::atomic<bool> interrupt_seen{false};
std::atomic<const char*> said_at_interrupt{nullptr};

/// Prints a line, over a progress line if there is one.
void say(const char* text) {
  if (text != nullptr) std::fprintf(stderr, "%s%s\n", isatty(STDERR_FILENO) != 0 ? "\r\033[K" : "", text);
}

/// Ends the program, and the other processes of a launch, with one line.
int fail(const char* name, const std::string& what) {
  const std::string rank = name_of_this_rank();
  if (rank.empty()) {
    // Before it has joined the others, a process finds what all of them find, and rank 0 tells it. The
    // launcher ends all when the first one has ended, so that must not be another.
    if (launched_rank().rank == 0) std::fprintf(stderr, "%s: %s\n", name, what.c_str());
    if (launched_rank().rank > 0) std::this_thread::sleep_for(std::chrono::seconds(1));
    return kExitBadInput;
  }
  // All may have found it here too. Then the first one ends them, which the launcher lets them know.
  for (int tenths = 0; tenths < 10 * launched_rank().rank && tenths < 50; ++tenths) {
    if (interrupted()) return kExitBadInput;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  std::fprintf(stderr, "%s: %s: %s\n", name, rank.c_str(), what.c_str());
  abort_launch(kExitBadInput);
  return kExitBadInput;
}

/// Waits for one of `signals` that asks the program to end.
void wait_for_interrupt(const sigset_t& signals) {
  int signal = 0;
  if (launched_rank().size == 1) {
    sigwait(&signals, &signal);
    return;
  }
  using Clock = std::chrono::steady_clock;
  constexpr timespec kLook{0, 200'000'000};
  for (Clock::time_point before = Clock::now(); true;) {
    signal = sigtimedwait(&signals, nullptr, &kLook);
    const Clock::time_point now = Clock::now();
    const bool was_stopped = now - before > std::chrono::seconds(1);
    if (signal == SIGINT || signal == SIGTERM || (signal == SIGCONT && !was_stopped)) return;
    before = now;
  }
}

/// After what is in `try`, whose memory is free again by now; still, there may be too little for a text.
int fail_without_memory(const char* name) {
  try {
    const std::int64_t held = pool_statistics().held_bytes;
    return fail(name,
                "[memory] the system has no more for a table, a text or a library; the tensors' pool holds " +
                    std::to_string(held >> 20) + " MiB" + memory_limits_text() +
                    "; try a smaller batch, a smaller model or a higher limit");
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "%s: [memory] the system has no more; try a higher limit\n", name);
    return kExitBadInput;
  }
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which start in the same way
__attribute__((section(".preinit_array"),
               used)) void (*const before_libraries)(int, char**, char**) = end_without_address_space;
#endif

}  // namespace

int run_program(const char* name, const std::function<int()>& body) {
  try {
    share_processors();
    const int code = body();
    leave_launch();
    return code;
  } catch (const std::bad_alloc&) {
    return fail_without_memory(name);
  } catch (const std::exception& error) {
    return fail(name, error.what());
  }
}

void remember_interrupts() {
  // Not a signal handler: oneDNN's f32 kernels run with the stack pointer inside a heap block, where a
  // handler's frame would overwrite the memory below (fixed in oneDNN 3.11.2). All threads block the
  // signals, and one waits for them.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  if (launched_rank().size > 1) sigaddset(&signals, SIGCONT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  require_threads(1);
  std::thread([signals] {
    wait_for_interrupt(signals);
    // A launcher also sends it when another rank has died, and the rank that saves says so.
    if (launched_rank().size == 1) say(said_at_interrupt);
    interrupt_seen = true;
    if (launched_rank().size > 1) return;  // the launcher sends several, and ends a rank that takes long
    std::this_thread::sleep_for(std::chrono::seconds(1));  // a supervisor may send the same signal twice
    const timespec none{};
    while (sigtimedwait(&signals, nullptr, &none) > 0) {
    }
    int signal = 0;
    sigwait(&signals, &signal);
    if (said_at_interrupt != nullptr) say("left at once");
    _exit(kExitInterrupted);
  }).detach();
}

const char* say_at_interrupt(const char* text) { return said_at_interrupt.exchange(text); }

bool interrupted() { return interrupt_seen; }

}  // namespace tapeformer
