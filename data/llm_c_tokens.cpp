#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/data/little_endian.h>
#include <tapeformer/data/llm_c_tokens.h>

#include <algorithm>

namespace tapeformer {
namespace {

constexpr Index kHeader = 1024;
constexpr Index kIdsAtOnce = 1 << 16;  // ids that are read at a time

/// The two kinds of files.
struct Kind {
  std::uint32_t magic, version;
  Index id_bytes;
};
constexpr Kind kGpt2{20240520, 1, 2}, kLlama3{20240801, 7, 4};

}  // namespace

void read_llm_c_tokens(const std::string& path,
                       const std::function<void(const std::vector<std::int32_t>& ids)>& take) {
  const OpenedFile<> file(path);
  const auto require = [&](bool holds, const std::string& problem) {
    if (!holds) throw DataError(path, 0, problem);
  };
  const Index bytes = static_cast<Index>(file.size());
  require(bytes >= kHeader, "is not a token file of llm.c: it has " + number_of(bytes, "byte") +
                                ", and the header alone takes " + std::to_string(kHeader));
  unsigned char header[12];
  file.read(0, sizeof header, header);
  const std::uint64_t magic = read_little_endian(header, 4), version = read_little_endian(header + 4, 4);
  const Kind& kind = magic == kLlama3.magic ? kLlama3 : kGpt2;
  require(magic == kind.magic, "is not a token file of llm.c: it begins with " + std::to_string(magic) +
                                   ", not with 20240520 or 20240801");
  require(version == kind.version, "is a token file of llm.c of version " + std::to_string(version) +
                                       ", and " + std::to_string(kind.version) + " is known");
  const auto size = static_cast<Index>(read_little_endian(header + 8, 4));
  require(bytes - kHeader == size * kind.id_bytes, "is damaged: its header claims " + number_of(size, "id") +
                                                       " of " + number_of(kind.id_bytes, "byte") + ", but " +
                                                       number_of(bytes - kHeader, "byte") + " follow it");
  std::vector<unsigned char> stored;
  std::vector<std::int32_t> ids;
  for (Index done = 0; done < size; done += kIdsAtOnce) {
    const Index count = std::min(kIdsAtOnce, size - done);
    stored.resize(static_cast<std::size_t>(count * kind.id_bytes));
    file.read(static_cast<std::uint64_t>(kHeader + done * kind.id_bytes), stored.size(), stored.data());
    ids.clear();
    for (Index i = 0; i < count; ++i)
      ids.push_back(static_cast<std::int32_t>(
          read_little_endian(&stored[static_cast<std::size_t>(i * kind.id_bytes)], kind.id_bytes)));
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
            throw DataError(path, 0,
                            "has the id " + std::to_string(static_cast<std::uint32_t>(id)) +
                                ", and the tokenizer " + number_of(tokenizer.vocabulary_size(), "token") +
                                "; try the tokenizer that it was made with");
          }
          writer.append(ids);
        });
      }
    };
  };
  return write_prepared_tokens(tokenizer, folder, gathered(train), gathered(validation));
}

}  // namespace tapeformer
