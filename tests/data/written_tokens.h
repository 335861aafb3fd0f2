#pragma once

#include <tapeformer/data/token_file.h>

#include <string>
#include <vector>

namespace tapeformer {

/// A token file at `path` with these ids.
inline TokenFile write_tokens(const std::string& path, Index vocabulary, const std::vector<std::int32_t>& ids,
                              std::uint64_t fingerprint = 7) {
  TokenFileWriter writer(path, vocabulary, fingerprint);
  writer.append(ids);
  writer.finish();
  return TokenFile::open(path);
}

inline std::vector<std::int32_t> ids_in(const TokenFile& file) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(file.size()));
  file.read(0, file.size(), ids.data());
  return ids;
}

}  // namespace tapeformer
