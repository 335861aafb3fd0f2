#include <tapeformer/autograd/communication/mpi.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/storage.h>
#include <tapeformer/autograd/system/file.h>
#include <tapeformer/autograd/system/threads.h>
#include <tapeformer/examples/shared/program.h>
#include <tapeformer/examples/shared/progress.h>

#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
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

/// A message fit for a terminal: quoted parts of files may be long or contain control sequences.
std::string printable(const std::string& what) {
  constexpr std::size_t kMostBytes = 4000;
  std::string text;
  for (const char c : what.substr(0, kMostBytes)) {
    const unsigned byte = static_cast<unsigned char>(c);
    const bool controls = (byte < ' ' && c != '\n') || byte == 0x7f;
    text += controls ? format("\\x{:02x}", byte) : std::string(1, c);
  }
  if (what.size() > kMostBytes) text += "... (" + std::to_string(what.size()) + " bytes)";
  return text;
}

/// Ends the program, and the other processes of a launch, with one line.
int fail(const char* name, const std::string& problem) {
  const std::string what = printable(problem);
  const std::string rank = name_of_this_rank();
  if (rank.empty()) {
    // Before the ranks have joined, all of them find the same problem, and rank 0 reports it. The launcher
    // ends all ranks when the first one has ended, so rank 0 must end first.
    if (launched_rank().rank == 0) std::fprintf(stderr, "%s: %s\n", name, what.c_str());
    if (launched_rank().rank > 0) std::this_thread::sleep_for(std::chrono::seconds(1));
    return kExitBadInput;
  }
  // All may have found the same problem here too. Then the launcher ends them once the first one has ended.
  for (int tenths = 0; tenths < 10 * launched_rank().rank && tenths < 50; ++tenths) {
    if (interrupted()) return kExitBadInput;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  std::fprintf(stderr, "%s: %s: %s\n", name, rank.c_str(), what.c_str());
  abort_launch(kExitBadInput);
  return kExitBadInput;
}

/// Answers `signals` as remember_interrupts() promises, for as long as the program runs.
void answer(const sigset_t& signals) {
  using Clock = std::chrono::steady_clock;
  constexpr timespec kLook{0, 200'000'000};
  constexpr std::chrono::seconds kSecond(1);
  const bool alone = launched_rank().size == 1;
  Clock::time_point asked;
  for (Clock::time_point before = Clock::now(); true;) {
    const int signal = sigtimedwait(&signals, nullptr, &kLook);
    const Clock::time_point now = Clock::now();
    const bool was_stopped = now - before > kSecond;
    before = now;
    tell_clock_of_running();
    if (signal < 0 || (signal == SIGCONT && was_stopped)) continue;
    if (!interrupt_seen) {
      // A launcher also sends it when another rank has died; the rank that saves reports that.
      if (alone) say(said_at_interrupt);
      interrupt_seen = true;
      asked = now;
    } else if (alone && now - asked > kSecond) {  // a supervisor may send the same signal twice
      if (said_at_interrupt != nullptr) say("quit at once");
      _exit(kExitInterrupted);
    }  // of several ranks, a launcher sends more, and ends a rank that takes long
  }
}

/// Throws: DataError if some of the output is lost, unless it goes to a pipe, whose reader may have gone
void flush_output() {
  errno = 0;
  const bool is_whole = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  const int error = errno;
  struct stat output {};
  const bool is_pipe = fstat(STDOUT_FILENO, &output) == 0 && S_ISFIFO(output.st_mode);
  if (!is_whole && !is_pipe && error != EPIPE)
    throw DataError("standard output", 0,
                    "cannot be written" + (error == 0 ? "" : ": " + system_error_text(error)));
}

/// To be called after a `try` block, when its memory is free; even then a text may need too much.
int fail_without_memory(const char* name) {
  try {
    const std::int64_t held = pool_statistics().held_bytes;
    return fail(
        name,
        "[memory] the system has no memory left for a table, a text or a library; the tensors' pool holds " +
            std::to_string(held >> 20) + " MiB; try a smaller batch, a smaller model or a higher limit");
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "%s: [memory] the system has no memory left; try a higher limit\n", name);
    return kExitBadInput;
  }
}

}  // namespace

int run_program(const char* name, const std::function<int()>& body) {
  std::signal(SIGXFSZ, SIG_IGN);  // exceeding ulimit -f is then an error with a message
  try {
    share_processors();
    const int code = body();
    flush_output();
    leave_launch();
    return code;
  } catch (const std::bad_alloc&) {
    return fail_without_memory(name);
  } catch (const std::filesystem::filesystem_error& error) {
    return fail(name, error.path1().string() + ": " + system_error_text(error.code().value()));
  } catch (const std::exception& error) {
    return fail(name, error.what());
  }
}

void remember_interrupts() {
  // Not a signal handler: oneDNN's f32 kernels run with the stack pointer inside a heap block, where a
  // handler's frame would overwrite the memory below (fixed in oneDNN 3.11.2). All threads block the
  // signals, and one waits for them.
  const auto is_ignored = [](int signal) {
    struct sigaction known {};
    return sigaction(signal, nullptr, &known) == 0 && known.sa_handler == SIG_IGN;
  };
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP})
    if (!is_ignored(signal)) sigaddset(&signals, signal);
  if (launched_rank().size > 1) sigaddset(&signals, SIGCONT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  // SIGPIPE is delivered to the thread that writes, outside any kernel.
  if (!is_ignored(SIGPIPE)) std::signal(SIGPIPE, [](int) { interrupt_seen = true; });
  tell_clock_of_running();
  std::thread([signals] { answer(signals); }).detach();
}

const char* say_at_interrupt(const char* text) { return said_at_interrupt.exchange(text); }

bool interrupted() { return interrupt_seen; }

}  // namespace tapeformer
