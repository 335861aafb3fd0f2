#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/threads.h>
#include <tapeformer/examples/shared/program.h>

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <new>
#include <thread>

namespace tapeformer {
namespace {

std::atomic<bool> interrupt_seen{false};
std::atomic<const char*> said_at_interrupt{nullptr};

/// Prints a line, over a progress line if there is one.
void say(const char* text) {
  if (text != nullptr) std::fprintf(stderr, "%s%s\n", isatty(STDERR_FILENO) != 0 ? "\r\033[K" : "", text);
}

}  // namespace

int run_program(const char* name, const std::function<int()>& body) {
  try {
    share_processors();
    return body();
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "%s: out of memory; try a smaller batch or model\n", name);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", name, error.what());
  }
  return kExitBadInput;
}

void remember_interrupts() {
  // Not a signal handler: oneDNN's f32 kernels run with the stack pointer inside a heap block, where a
  // handler's frame would overwrite the memory below (fixed in oneDNN 3.11.2). All threads block the
  // signals, and one waits for them.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::thread([signals] {
    int signal = 0;
    sigwait(&signals, &signal);
    say(said_at_interrupt);
    interrupt_seen = true;
    std::this_thread::sleep_for(std::chrono::seconds(1));  // a supervisor may send the same signal twice
    const timespec none{};
    while (sigtimedwait(&signals, nullptr, &none) > 0) {
    }
    sigwait(&signals, &signal);
    if (said_at_interrupt != nullptr) say("left at once");
    _exit(kExitInterrupted);
  }).detach();
}

const char* say_at_interrupt(const char* text) { return said_at_interrupt.exchange(text); }

bool interrupted() { return interrupt_seen; }

}  // namespace tapeformer
