#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tapeformer {

struct ByteSpan {
  const void* data;
  std::size_t bytes;
};

/// Replaces the file by the parts, one after the other, or leaves it as it was: they are written to
/// `path`.partial, synced, and renamed; then the folder is synced. Whoever reads `path`, even after a power
/// cut, finds the old content or the new.
/// Throws:  CheckpointError with the path and the system's reason (the partial file is gone then), or if
///          `path` is a device, a pipe or a folder
void write_atomically(const std::string& path, const std::vector<ByteSpan>& parts);
void write_atomically(const std::string& path, std::string_view text);

/// For what takes long to compute: throws now what write_atomically would throw then, as far as that shows.
/// Throws:  CheckpointError
void check_writable(const std::string& path);

}  // namespace tapeformer
