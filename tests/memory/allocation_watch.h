#pragma once

namespace tapeformer {

/// Counts the heap allocations of this program's own code, in any thread, during its lifetime. Allocations
/// by shared libraries are not counted, except by the C++ library on our behalf, e.g. for a std::string.
class AllocationWatch {
 public:
  AllocationWatch();
  ~AllocationWatch();
  AllocationWatch(const AllocationWatch&) = delete;
  AllocationWatch& operator=(const AllocationWatch&) = delete;
  /// The first few print where they came from, on standard error.
  long count() const;
};

/// From now on every thread that calls mmap, mremap, munmap or brk ends the program with status 1 and a
/// message. There is no way back. False where the system does not permit it.
bool forbid_memory_system_calls();

}  // namespace tapeformer
