#include <doctest/doctest.h>
#include <tapeformer/data/tokenizers/byte_tokenizer.h>

using namespace tapeformer;

TEST_CASE("it encodes and decodes all bytes, and texts may be cut anywhere") {
  const auto tokenizer = make_byte_tokenizer();
  std::string all;
  std::vector<std::int32_t> ids;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte), ids.push_back(byte);
  CHECK(tokenizer->encode(all) == ids);
  CHECK(tokenizer->decode(ids) == all);
  CHECK(tokenizer->vocabulary_size() == 256);
  CHECK(tokenizer->kind() == std::string("byte"));
  CHECK(tokenizer->safe_cut("a\xf0\x9f") == 3);
}
