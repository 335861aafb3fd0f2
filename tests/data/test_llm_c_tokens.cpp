#include <tapeformer/data/llm_c_tokens.h>
#include <tapeformer/data/tokenizers/byte_tokenizer.h>
#include <tapeformer/tests/data/written_tokens.h>
#include <tapeformer/tests/nn/formats/temporary_folder.h>
#include <tapeformer/tests/reference/support.h>

#include <doctest/doctest.h>

using namespace tapeformer;

namespace {

std::string header(const std::string& magic_and_version, char count) {
  std::string bytes = magic_and_version + count;
  bytes.resize(1024, '\0');
  return bytes;
}

const std::string kGpt2("\x88\xd8\x34\x01\1\0\0\0", 8), kLlama3("\xa1\xd9\x34\x01\7\0\0\0", 8);

std::vector<std::int32_t> all_of(const std::string& path) {
  std::vector<std::int32_t> all;
  read_llm_c_tokens(path, [&](const auto& ids) { all.insert(all.end(), ids.begin(), ids.end()); });
  return all;
}

}  // namespace

TEST_CASE_FIXTURE(InFolder, "files of both kinds, and of many pieces") {
  const std::string path = folder.file("it.bin");
  write_bytes(path, header(kGpt2, 3) + std::string("\1\0\2\1\xff\xff", 6));
  CHECK(all_of(path) == std::vector<std::int32_t>{1, 258, 65535});
  write_bytes(path, header(kLlama3, 2) + std::string("\0\0\1\0\2\0\0\0", 8));
  CHECK(all_of(path) == std::vector<std::int32_t>{65536, 2});
  write_bytes(path, header(kGpt2, 0));
  CHECK(all_of(path).empty());
  const std::string count = "\xf0\x49\x02";  // 150,000
  std::string bytes = header(kGpt2, 0).replace(8, 3, count);
  std::vector<std::int32_t> ids;
  for (std::int32_t i = 0; i < 150'000; ++i) {
    ids.push_back(i * 7 % 65'521);
    bytes += {static_cast<char>(ids.back()), static_cast<char>(ids.back() >> 8)};
  }
  write_bytes(path, bytes);
  CHECK(all_of(path) == ids);
}

TEST_CASE_FIXTURE(InFolder, "a prepared folder of several files") {
  write_bytes(folder.file("a"), header(kGpt2, 2) + std::string("\1\0\xff\0", 4));
  write_bytes(folder.file("b"), header(kLlama3, 1) + std::string("\2\0\0\0", 4));
  write_bytes(folder.file("c"), header(kGpt2, 1) + std::string("\0\1", 2));
  const auto tokenizer = make_byte_tokenizer();
  const PreparedTokens tokens = prepare_llm_c_tokens({folder.file("a"), folder.file("b")}, {folder.file("b")},
                                                     *tokenizer, folder.file("prepared"));
  CHECK(ids_in(tokens.train) == std::vector<std::int32_t>{1, 255, 2});
  CHECK(tokens.validation.size() == 1);
  CHECK(message_of<DataError>([&] {
          prepare_llm_c_tokens({folder.file("c")}, {folder.file("a")}, *tokenizer, folder.file("none"));
        }) ==
        folder.file("c") +
            ": has the id 256, but the tokenizer has 256 tokens; try the tokenizer that it was made with");
  CHECK_FALSE(std::filesystem::exists(folder.file("none")));
}

TEST_CASE_FIXTURE(InFolder, "other files are refused") {
  const std::string path = folder.file("it");
  const auto refusal = [&](const std::string& bytes) {
    write_bytes(path, bytes);
    return message_of<DataError>([&] { all_of(path); }).substr(path.size() + 2);
  };
  CHECK(refusal("short") == "is not a token file of llm.c: it has 5 bytes");
  CHECK(refusal(std::string(1024, '\1')) ==
        "is not a token file of llm.c: it begins with 16843009, not with 20240520 or 20240801");
  CHECK(refusal(header(kGpt2.substr(0, 4) + kLlama3.substr(4), 0)) ==
        "is a token file of llm.c of version 7, but only 1 is known");
  CHECK(refusal(header(kGpt2, 2) + "123") ==
        "is damaged: its header says 2 ids of 2 bytes, and 3 bytes follow it");
}
