// A library to be preloaded into a program; it makes calls on the files of one folder fail, as a disk,
// a quota, a network file system, a kill or a power cut would. Environment:
//   FAULTS_FOLDER  the folder, absolute; calls on the files in it are numbered from 1
//   FAULTS_LOG     a file elsewhere, to which each of these calls is written: "NUMBER NAME PATH"
//   FAULTS         what happens to which call: KIND NUMBER [ERRNO]
// Kinds:
//   fail        the call does nothing and fails with ERRNO; a close closes, and fails
//   fail_on     so does every later one
//   short       a write writes half of its bytes and says so
//   kill        the process is killed before the call
//   torn        a write writes half, any other call all, and the process is killed
//   lost        a rename reports success without being done; the process is killed at the next call
//   power       the power is cut before the call: bytes not synced are half lost, and renames in folders
//               that were not synced are undone
//   end         the same when the process has ended, whatever NUMBER is
// FAULTS_CLOCK=backwards makes the time of day run backwards, by a day with every look.

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace {

struct Rename {
  std::string from, to, kept;  // kept: another link to the file that was replaced; "" if there was none
};

/// The state of the folder's files. Never destroyed: calls come until the very end of the process.
struct State {
  std::mutex mutex;
  std::string folder, kind;
  long at = 0, calls = 0;
  int error = 0, log = -1;
  std::map<int, std::string> open;      // the folder's files that are open
  std::map<std::string, off_t> synced;  // of files that were written to: the bytes that are on the disk
  std::vector<Rename> renames;          // in folders that were not synced since
  bool is_lost = false;
};

State& state() {
  static State& only = *[] {
    auto* const made = new State;
    const char *folder = std::getenv("FAULTS_FOLDER"), *faults = std::getenv("FAULTS"),
               *log = std::getenv("FAULTS_LOG");
    made->folder = folder == nullptr ? "" : folder;
    char kind[16] = "";
    if (faults != nullptr && std::sscanf(faults, "%15s %ld %d", kind, &made->at, &made->error) >= 2)
      made->kind = kind;
    if (log != nullptr)
      made->log = static_cast<int>(
          syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
    return made;
  }();
  return only;
}

/// The next definition of a function: the C library's.
template <class F>
F real(const char* name) {
  return reinterpret_cast<F>(dlsym(RTLD_NEXT, name));
}
// A macro, to make a string of the name.
#define REAL(name) real<decltype(&::name)>(#name)

bool is_inside(const std::string& path) {
  const std::string& folder = state().folder;
  return !folder.empty() && path.compare(0, folder.size(), folder) == 0 &&
         (path.size() == folder.size() || path[folder.size()] == '/' || path[folder.size()] == '.');
}

std::string absolute(const char* path) {
  if (path[0] == '/') return path;
  char folder[4096];
  return getcwd(folder, sizeof folder) == nullptr ? path : std::string(folder) + "/" + path;
}

std::string parent(const std::string& path) { return path.substr(0, path.rfind('/')); }

off_t size_of(const std::string& path) {
  struct stat known {};
  return stat(path.c_str(), &known) == 0 ? known.st_size : 0;
}

[[noreturn]] void die() {
  kill(getpid(), SIGKILL);
  while (true) pause();
}

[[noreturn]] void cut_power() {
  State& s = state();
  for (const auto& [path, synced] : s.synced) {
    const off_t size = size_of(path);
    if (size > synced && truncate(path.c_str(), synced + (size - synced) / 2) != 0) std::abort();
  }
  for (auto rename = s.renames.rbegin(); rename != s.renames.rend(); ++rename) {
    REAL(rename)(rename->to.c_str(), rename->from.c_str());
    if (!rename->kept.empty()) REAL(rename)(rename->kept.c_str(), rename->to.c_str());
  }
  die();
}

enum class Fate { done, fails, is_cut, is_killed_after, is_lost };

/// Counts a call and decides its fate.
Fate fate(const char* name, const std::string& path) {
  State& s = state();
  ++s.calls;
  if (s.log >= 0) {
    const std::string line = std::to_string(s.calls) + " " + name + " " + path + "\n";
    syscall(SYS_write, s.log, line.data(), line.size());
  }
  if (s.is_lost) die();
  if (s.kind == "fail_on" && s.calls > s.at) return errno = s.error, Fate::fails;
  if (s.calls != s.at) return Fate::done;
  if (s.kind == "fail" || s.kind == "fail_on") return errno = s.error, Fate::fails;
  if (s.kind == "kill") die();
  if (s.kind == "power") cut_power();
  if (s.kind == "short") return Fate::is_cut;
  if (s.kind == "torn") return Fate::is_killed_after;
  if (s.kind == "lost" && std::strcmp(name, "rename") == 0) return s.is_lost = true, Fate::is_lost;
  return Fate::done;
}

/// One call on a path: `act` does it.
template <class Act>
int on_path(const char* name, const char* given, const Act& act) {
  const std::string path = absolute(given);
  if (!is_inside(path)) return act();
  const std::lock_guard<std::mutex> guard(state().mutex);
  const Fate what = fate(name, path);
  if (what == Fate::fails) return -1;
  const int result = act();
  if (what == Fate::is_killed_after) die();
  return result;
}

/// One call on an open file: `act` does it for all of the bytes, or half.
template <class Act>
ssize_t on_file(const char* name, int file, bool writes, const Act& act) {
  State& s = state();
  const std::lock_guard<std::mutex> guard(s.mutex);
  const auto found = s.open.find(file);
  if (found == s.open.end()) return act(false);
  if (writes) s.synced.emplace(found->second, size_of(found->second));
  const Fate what = fate(name, found->second);
  if (what == Fate::fails) return -1;
  const ssize_t result = act(writes && (what == Fate::is_cut || what == Fate::is_killed_after));
  if (what == Fate::is_killed_after) die();
  return result;
}

template <class Open>
int opened(const char* given, int flags, const Open& open) {
  const int file = on_path((flags & O_ACCMODE) == O_RDONLY ? "open" : "open_to_write", given, open);
  const std::string path = absolute(given);
  if (file < 0 || !is_inside(path)) return file;
  const std::lock_guard<std::mutex> guard(state().mutex);
  state().open[file] = path;
  if ((flags & O_TRUNC) != 0) state().synced[path] = 0;
  return file;
}

int closed(int file, const std::function<int()>& close) {
  State& s = state();
  const std::lock_guard<std::mutex> guard(s.mutex);
  const auto found = s.open.find(file);
  if (found == s.open.end()) return close();
  const Fate what = fate("close", found->second);
  s.open.erase(found);
  const int result = close();
  if (what == Fate::fails) return errno = s.error, -1;
  if (what == Fate::is_killed_after) die();
  return result;
}

int synced(int file) {
  return static_cast<int>(on_file("fsync", file, false, [&](bool) -> ssize_t {
    const int result = REAL(fsync)(file);
    State& s = state();
    const auto found = s.open.find(file);
    if (result != 0 || found == s.open.end()) return result;
    s.synced.erase(found->second);
    std::vector<Rename> left;
    for (const Rename& rename : s.renames) {
      if (parent(rename.to) != found->second)
        left.push_back(rename);
      else if (!rename.kept.empty())
        REAL(unlink)(rename.kept.c_str());
    }
    s.renames = left;
    return result;
  }));
}

int renamed(const char* given_from, const char* given_to) {
  const std::string from = absolute(given_from), to = absolute(given_to);
  if (!is_inside(from) && !is_inside(to)) return REAL(rename)(given_from, given_to);
  State& s = state();
  const std::lock_guard<std::mutex> guard(s.mutex);
  const Fate what = fate("rename", to);
  if (what == Fate::fails) return -1;
  if (what == Fate::is_lost) return 0;
  std::string kept;
  if (s.kind == "power" || s.kind == "end") {
    kept = s.folder + ".kept" + std::to_string(s.calls);
    if (REAL(link)(to.c_str(), kept.c_str()) != 0) kept.clear();
  }
  const int result = REAL(rename)(given_from, given_to);
  if (result == 0) {
    s.renames.push_back({from, to, kept});
    const auto moved = [&](const std::string& path) {
      const bool is_below = path.compare(0, from.size() + 1, from + "/") == 0;
      return path == from || is_below ? to + path.substr(from.size()) : path;
    };
    std::map<std::string, off_t> synced;
    for (const auto& [path, size] : s.synced) {
      if (path != to) synced[moved(path)] = size;  // what was there is replaced
    }
    s.synced = synced;
    for (auto& [file, path] : s.open) path = moved(path);
  }
  if (what == Fate::is_killed_after) die();
  return result;
}

/// Runs when the process ends.
struct End {
  ~End() {
    if (state().kind == "end") cut_power();
  }
} end;

int mode_of(int flags, va_list arguments) { return (flags & O_CREAT) != 0 ? va_arg(arguments, int) : 0; }

time_t backwards(time_t now) {
  static std::atomic<long> looks{0};
  static const bool is_asked = std::getenv("FAULTS_CLOCK") != nullptr;
  return is_asked ? now - 86400 * ++looks : now;
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const int mode = mode_of(flags, arguments);
  va_end(arguments);
  return opened(path, flags, [&] { return REAL(open)(path, flags, mode); });
}
int open64(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const int mode = mode_of(flags, arguments);
  va_end(arguments);
  return opened(path, flags, [&] { return REAL(open64)(path, flags, mode); });
}
FILE* fopen64(const char* path, const char* mode) {
  FILE* file = nullptr;
  const int flags = mode[0] == 'r' ? O_RDONLY : mode[0] == 'w' ? O_WRONLY | O_TRUNC : O_WRONLY;
  opened(path, flags, [&] {
    file = REAL(fopen64)(path, mode);
    return file == nullptr ? -1 : fileno(file);
  });
  return file;
}
FILE* fopen(const char* path, const char* mode) { return fopen64(path, mode); }
int close(int file) {
  return closed(file, [&] { return REAL(close)(file); });
}
int fclose(FILE* file) {
  return closed(fileno(file), [&] { return REAL(fclose)(file); });
}
ssize_t write(int file, const void* bytes, size_t count) {
  return on_file("write", file, true,
                 [&](bool half) { return REAL(write)(file, bytes, half ? (count + 1) / 2 : count); });
}
ssize_t writev(int file, const iovec* parts, int count) {
  return on_file("write", file, true,
                 [&](bool half) { return REAL(writev)(file, parts, half ? (count + 1) / 2 : count); });
}
ssize_t pwrite(int file, const void* bytes, size_t count, off_t offset) {
  return on_file("write", file, true, [&](bool half) {
    return REAL(pwrite)(file, bytes, half ? (count + 1) / 2 : count, offset);
  });
}
ssize_t pwrite64(int file, const void* bytes, size_t count, off64_t offset) {
  return pwrite(file, bytes, count, offset);
}
ssize_t read(int file, void* bytes, size_t count) {
  return on_file("read", file, false, [&](bool) { return REAL(read)(file, bytes, count); });
}
ssize_t pread(int file, void* bytes, size_t count, off_t offset) {
  return on_file("read", file, false, [&](bool) { return REAL(pread)(file, bytes, count, offset); });
}
ssize_t pread64(int file, void* bytes, size_t count, off64_t offset) {
  return pread(file, bytes, count, offset);
}
int fsync(int file) { return synced(file); }
int fdatasync(int file) { return synced(file); }
int rename(const char* from, const char* to) { return renamed(from, to); }
int unlink(const char* path) {
  return on_path("unlink", path, [&] { return REAL(unlink)(path); });
}
int remove(const char* path) {
  return on_path("unlink", path, [&] { return REAL(remove)(path); });
}
int rmdir(const char* path) {
  return on_path("rmdir", path, [&] { return REAL(rmdir)(path); });
}
int mkdir(const char* path, mode_t mode) {
  return on_path("mkdir", path, [&] { return REAL(mkdir)(path, mode); });
}
int link(const char* from, const char* to) {
  return on_path("link", to, [&] { return REAL(link)(from, to); });
}
time_t time(time_t* to) {
  const time_t now = backwards(REAL(time)(nullptr));
  if (to != nullptr) *to = now;
  return now;
}
int clock_gettime(clockid_t clock, timespec* to) {
  const int result = REAL(clock_gettime)(clock, to);
  if (clock == CLOCK_REALTIME) to->tv_sec = backwards(to->tv_sec);
  return result;
}
int gettimeofday(timeval* to, void* zone) {
  const int result = REAL(gettimeofday)(to, zone);
  to->tv_sec = backwards(to->tv_sec);
  return result;
}

}  // extern "C"
