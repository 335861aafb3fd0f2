#include <tapeformer/autograd/communication/mpi.h>
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

/// A message as a terminal may see it: parts of files that it quotes may be long, or control the terminal.
std::string printable(const std::string& what) {
  constexpr std::size_t kMostBytes = 4000;
  std::string text;
  for (const char c : what.substr(0, kMostBytes)) {
    char escape[8];
    const bool controls = (c >= 0 && c < ' ' && c != '\n') || c == 0x7f;
    std::snprintf(escape, sizeof escape, "\\x%02x", static_cast<unsigned>(c) & 0xffu);
    text += controls ? escape : std::string(1, c);
  }
  if (what.size() > kMostBytes) text += "... (" + std::to_string(what.size()) + " bytes)";
  return text;
}

/// Ends the program, and the other processes of a launch, with one line.
int fail(const char* name, const std::string& problem) {
  const std::string what = printable(problem);
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

}  // namespace

int run_program(const char* name, const std::function<int()>& body) {
  try {
    share_processors();
    const int code = body();
    leave_launch();
    return code;
  } catch (const std::bad_alloc&) {
    return fail(name, "out of memory; try a smaller batch or model");
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
