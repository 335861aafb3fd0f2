#include <dlfcn.h>
#include <link.h>
#include <tapeformer/tests/emulator/machine.h>

#include <algorithm>
#include <sstream>

// Checks the accesses that instrumented kernels report.
namespace tapeformer::emulator {

/// Checks an access of the running thread. A fault is thrown when the thread next meets others or returns:
/// the compiler does not expect an exception here.
void Machine::touch(const char* address, std::size_t bytes, Access kind, const void* code) {
  const char* stack = static_cast<const char*>(current_->fibre->bottom);
  if (address >= stack && address < stack + current_->fibre->bytes) return;
  const auto within = [&](const void* variable) {
    const std::ptrdiff_t offset = address - static_cast<const char*>(variable);
    return offset >= 0 && offset < static_cast<std::ptrdiff_t>(sizeof(dim3));
  };
  const bool dynamic = address >= shared_ && address < shared_ + kMaxSharedBytes + kFenceBytes;
  const auto local = std::find_if(thread_locals_.begin(), thread_locals_.end(), [&](const auto& range) {
    return address >= range.first && address < range.first + range.second;
  });
  const bool shared = dynamic || local != thread_locals_.end();
  if (shared && !dynamic &&
      (within(&threadIdx) || within(&blockIdx) || within(&blockDim) || within(&gridDim)))
    return;
  watching = false;
  if (dynamic && address + bytes > shared_ + shared_bytes_)
    race_ = "thread " + std::to_string(current_->number) + " leaves the dynamic shared memory";
  else
    race_ = shadow_.touch(current_->number, address, bytes, kind, shared);
  if (dynamic && race_.empty())
    race_ = hopper_.touch(static_cast<std::size_t>(address - shared_), bytes, kind);
  watching = race_.empty();
  if (watching) return;

  std::ostringstream text;
  text << "; got " << bytes << " bytes at ";
  if (dynamic)
    text << "dynamic shared memory + " << address - shared_;
  else if (shared)
    text << "static shared memory, thread-local + " << address - local->first;
  else
    text << "global memory " << static_cast<const void*>(address);
  if (last_barrier_.file != nullptr)
    text << ", after the barrier " << last_barrier_.file << ":" << last_barrier_.line;
  Dl_info object;
  if (code != nullptr && dladdr(const_cast<void*>(code), &object) != 0)
    text << ", in code at " << object.dli_fname << "+0x" << std::hex
         << static_cast<const char*>(code) - static_cast<const char*>(object.dli_fbase);
  race_ += text.str();
}

/// The address range of this host thread's thread-local variables, which include static shared memory.
void Machine::find_thread_locals() {
  thread_locals_.clear();
  const auto add = [](dl_phdr_info* object, std::size_t, void* into) {
    for (int i = 0; i < object->dlpi_phnum; ++i)
      if (object->dlpi_phdr[i].p_type == PT_TLS && object->dlpi_tls_data != nullptr)
        static_cast<decltype(thread_locals_)*>(into)->emplace_back(
            static_cast<const char*>(object->dlpi_tls_data), object->dlpi_phdr[i].p_memsz);
    return 0;
  };
  dl_iterate_phdr(add, &thread_locals_);
}

}  // namespace tapeformer::emulator
