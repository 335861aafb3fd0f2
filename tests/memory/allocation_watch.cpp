#include <tapeformer/tests/memory/allocation_watch.h>

#include <dlfcn.h>
#include <execinfo.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstring>

// glibc's own allocator, which the definitions below wrap; the C++ library's operator new calls those.
extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);
void __libc_free(void*);
extern char __executable_start, etext;
}

namespace {

std::atomic<bool> watching{false};
std::atomic<long> counted{0};
constexpr long kShown = 5;

bool is_ours(const void* address) { return address >= &__executable_start && address < &etext; }

bool is_standard_library(const void* address) {
  Dl_info info;
  return dladdr(address, &info) != 0 && std::strstr(info.dli_fname, "libstdc++") != nullptr;
}

/// Called by every allocation function first.
__attribute__((noinline)) void note_allocation(const char* function) {
  thread_local bool inside = false;
  if (!watching.load(std::memory_order_relaxed) || inside) return;
  inside = true;
  void* frames[24];
  const int depth = backtrace(frames, 24);
  int caller = 2;  // after this function and the allocation function
  while (caller < depth && is_standard_library(frames[caller])) ++caller;
  if (caller < depth && is_ours(frames[caller]) && counted++ < kShown) {
    char line[80];
    const int length = std::snprintf(line, sizeof line, "memory: %s is called from\n", function);
    if (write(STDERR_FILENO, line, static_cast<std::size_t>(length)) > 0) {
      backtrace_symbols_fd(frames + caller, depth - caller, STDERR_FILENO);
    }
  }
  inside = false;
}

}  // namespace

extern "C" {
void* malloc(std::size_t bytes) {
  note_allocation("malloc");
  return __libc_malloc(bytes);
}
void* calloc(std::size_t count, std::size_t bytes) {
  note_allocation("calloc");
  return __libc_calloc(count, bytes);
}
void* realloc(void* block, std::size_t bytes) {
  note_allocation("realloc");
  return __libc_realloc(block, bytes);
}
void* memalign(std::size_t alignment, std::size_t bytes) {
  note_allocation("memalign");
  return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  note_allocation("aligned_alloc");
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** block, std::size_t alignment, std::size_t bytes) {
  note_allocation("posix_memalign");
  *block = __libc_memalign(alignment, bytes);
  return *block == nullptr ? ENOMEM : 0;
}
void free(void* block) { __libc_free(block); }
}

namespace tapeformer {

AllocationWatch::AllocationWatch() {
  void* frame[1];
  backtrace(frame, 1);  // loads the unwinder, which allocates
  counted = 0;
  watching = true;
}
AllocationWatch::~AllocationWatch() { watching = false; }
long AllocationWatch::count() const { return counted; }

namespace {

void on_forbidden_call(int, siginfo_t* info, void*) {
  const int call = info->si_syscall;
  const char* name = call == SYS_mmap     ? "mmap"
                     : call == SYS_munmap ? "munmap"
                     : call == SYS_mremap ? "mremap"
                                          : "brk";
  char line[80];
  const int length = std::snprintf(line, sizeof line, "memory: the step called %s from\n", name);
  if (write(STDERR_FILENO, line, static_cast<std::size_t>(length)) > 0) {
    void* frames[24];
    backtrace_symbols_fd(frames, backtrace(frames, 24), STDERR_FILENO);
  }
  _exit(1);
}

}  // namespace

bool forbid_memory_system_calls() {
  void* frame[1];
  backtrace(frame, 1);
  struct sigaction action {};
  action.sa_sigaction = on_forbidden_call;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSYS, &action, nullptr);

  constexpr unsigned kForbidden[] = {SYS_mmap, SYS_munmap, SYS_mremap, SYS_brk};
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kForbidden[0], 4, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kForbidden[1], 3, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kForbidden[2], 2, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kForbidden[3], 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
  };
  sock_fprog program{sizeof filter / sizeof filter[0], filter};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0;
}

}  // namespace tapeformer
