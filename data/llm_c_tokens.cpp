#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/data/llm_c_tokens.h>

#include <algorithm>

namespace tapeformer {
namespace {

constexpr std::uint64_t kHeader = 1024;
constexpr Index kIdsAtOnce = 1 << 16;  // ids per read

/// The two kinds of files.
struct Kind {
  std::uint32_t magic, version, id_bytes;
};
constexpr Kind kGpt2{20240520, 1, 2}, kLlama3{20240801, 7, 4};

}  // namespace

void read_llm_c_tokens(const std::string& path,
                       const std::function<void(const std::vector<std::int32_t>& ids)>& take) {
  const OpenedFile<> file(path);
  const auto require = [&](bool holds, const std::string& problem) {
    if (!holds) throw DataError(path, 0, problem);
  };
  const std::uint64_t bytes = file.size();
  require(bytes >= kHeader, "is not a token file of llm.c: it has " + number_of(bytes, "byte"));
  std::uint32_t header[3];
  file.read(0, sizeof header, header);
  const auto [magic, version, size] = header;
  const Kind& kind = magic == kLlama3.magic ? kLlama3 : kGpt2;
  require(magic == kind.magic, format("is not a token file of llm.c: it begins with {}, not with {} or {}",
                                      magic, kGpt2.magic, kLlama3.magic));
  require(version == kind.version,
          format("is a token file of llm.c of version {}, but only {} is known", version, kind.version));
  require(bytes - kHeader == std::uint64_t{size} * kind.id_bytes,
          format("is damaged: its header says {} of {} bytes, and {} bytes follow it", number_of(size, "id"),
                 kind.id_bytes, bytes - kHeader));
  std::vector<std::int32_t> ids;
  for (Index done = 0; done < size; done += kIdsAtOnce) {
    const Index count = std::min<Index>(kIdsAtOnce, size - done);
    ids.resize(static_cast<std::size_t>(count));
    read_ids(file, kHeader + static_cast<std::uint64_t>(done * kind.id_bytes), kind.id_bytes, count,
             ids.data());
    take(ids);
  }
}

PreparedTokens prepare_llm_c_tokens(const std::vector<std::string>& train,
                                    const std::vector<std::string>& validation, const Tokenizer& tokenizer,
                                    const std::string& folder) {
  const auto gathered = [&tokenizer](const std::vector<std::string>& paths) {
    return [&](TokenFileWriter& writer) {
      for (const std::string& path : paths) {
        read_llm_c_tokens(path, [&](const std::vector<std::int32_t>& ids) {
          for (const std::int32_t id : ids) {
            if (id >= 0 && id < tokenizer.vocabulary_size()) continue;
            throw DataError(
                path, 0,
                format("has the id {}, but the tokenizer has {}; try the tokenizer that it was made with",
                       static_cast<std::uint32_t>(id), number_of(tokenizer.vocabulary_size(), "token")));
          }
          writer.append(ids);
        });
      }
    };
  };
  return write_prepared_tokens(tokenizer, folder, gathered(train), gathered(validation));
}

}  // namespace tapeformer
