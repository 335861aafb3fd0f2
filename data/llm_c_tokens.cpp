#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/words.h>
#include <tapeformer/data/hash.h>
#include <tapeformer/data/little_endian.h>
#include <tapeformer/data/llm_c_tokens.h>
#include <tapeformer/data/partial_folder.h>

#include <algorithm>
#include <limits>

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

void write_llm_c_tokens(const TokenFile& tokens, const std::string& path) {
  const Kind& kind = tokens.vocabulary() <= 1 << 16 ? kGpt2 : kLlama3;
  if (tokens.size() > std::numeric_limits<std::int32_t>::max())
    throw DataError(path, 0,
                    "a token file of llm.c has at most 2147483647 ids; these are " +
                        std::to_string(tokens.size()) + "; prepare the text in parts");
  std::string bytes;
  for (const std::uint32_t number : {kind.magic, kind.version, static_cast<std::uint32_t>(tokens.size())})
    write_little_endian(bytes, number, 4);
  bytes.resize(kHeader, '\0');
  AtomicFile<> file(path);
  std::vector<std::int32_t> ids;
  for (Index done = 0; done < tokens.size(); done += kIdsAtOnce) {
    ids.resize(static_cast<std::size_t>(std::min(kIdsAtOnce, tokens.size() - done)));
    tokens.read(done, static_cast<Index>(ids.size()), ids.data());
    for (const std::int32_t id : ids)
      write_little_endian(bytes, static_cast<std::uint32_t>(id), kind.id_bytes);
    file.append(bytes);
    bytes.clear();
  }
  file.append(bytes);
  file.finish();
}

PreparedTokens prepare_llm_c_tokens(const std::vector<std::string>& train,
                                    const std::vector<std::string>& validation,
                                    const TextTokenizer& tokenizer, const std::string& folder) {
  const std::string content = tokenizer.serialize();
  PartialFolder partial(folder, {"tokenizer", "train.tokens", "validation.tokens"});
  const auto gather = [&](const std::vector<std::string>& paths, const char* name) {
    TokenFileWriter writer(partial.file(name), tokenizer.vocabulary_size(), hash_text(content));
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
    writer.finish();
  };
  gather(train, "train.tokens");
  gather(validation, "validation.tokens");
  AtomicFile<> file(partial.file("tokenizer"));
  file.append(content);
  file.finish();
  partial.finish();
  return PreparedTokens::open(folder);
}

}  // namespace tapeformer
