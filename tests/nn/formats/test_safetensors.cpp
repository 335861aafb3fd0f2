#include <doctest/doctest.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/nn/formats/safetensors.h>
#include <tapeformer/tests/nn/formats/temporary_folder.h>
#include <tapeformer/tests/reference/support.h>

#include <cmath>

using namespace tapeformer;

namespace {

std::string with_length(const std::string& header, const std::string& data, std::uint64_t length) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(length >> (8 * i) & 255);
  return bytes + header + data;
}

std::string safetensors(const std::string& header, const std::string& data) {
  return with_length(header, data, header.size());
}

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets +
         "}";
}

/// The error message for a file of these bytes, without its path.
std::string refused(const std::string& bytes) {
  const TemporaryFolder folder;
  const std::string path = folder.file("x");
  write_bytes(path, bytes);
  const std::string what = message_of<CheckpointError>([&] { SafetensorsFile::open(path); });
  if (what == "nothing was thrown") return what;
  return what.compare(0, path.size() + 2, path + ": ") == 0 ? what.substr(path.size() + 2)
                                                            : "no path: " + what;
}

/// The error message for one tensor "w" and this number of data bytes.
std::string refused(const std::string& dtype, const std::string& shape, const std::string& offsets,
                    std::size_t data) {
  return refused(safetensors("{" + entry("w", dtype, shape, offsets) + "}", std::string(data, '\0')));
}

/// The tensor "w" of a file with this data.
Tensor read_one(const std::string& dtype, const std::string& shape, const std::string& data) {
  const TemporaryFolder folder;
  const std::string offsets = "[0," + std::to_string(data.size()) + "]";
  write_bytes(folder.file("x"), safetensors("{" + entry("w", dtype, shape, offsets) + "}", data));
  return SafetensorsFile::open(folder.file("x")).tensor("w");
}

template <class T>
std::string bytes_of_values(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

}  // namespace

TEST_CASE_FIXTURE(InFolder, "tensors of every type and the metadata come back as they were saved") {
  const std::vector<std::pair<std::string, Tensor>> tensors{
      {"mask", Tensor::from<bool>({true, false, true})},
      {"encoder.0.weight", Tensor::from<float>({1.5, -2, 3, 0, 5, 6}, {2, 3})},
      {"ids \"quoted\" é", Tensor::from<std::int32_t>({-7, 2147483647})},
      {"exact", Tensor::from<double>({0.1, -1e300})},
      {"scalar", Tensor::scalar(4)},
      {"empty", Tensor::zeros({0, 5})}};
  const std::map<std::string, std::string> metadata{{"step", "12"}, {"note", "line\nbreak"}};
  save_safetensors(folder.file("w"), tensors, metadata);
  const SafetensorsFile file = SafetensorsFile::open(folder.file("w"));
  CHECK(file.metadata() == metadata);
  CHECK(file.names() ==
        std::vector<std::string>{"exact", "encoder.0.weight", "ids \"quoted\" é", "scalar", "empty", "mask"});
  for (const auto& [name, x] : tensors) {
    REQUIRE(file.contains(name));
    const Tensor y = file.tensor(name);
    CHECK(y.describe() == x.describe());
    CHECK(std::memcmp(y.raw(), x.raw(), static_cast<std::size_t>(x.bytes())) == 0);
  }
  CHECK(folder.count() == 1);
  CHECK_FALSE(file.contains("decoder"));
  CHECK_THROWS_WITH_AS(file.tensor("decoder"), (folder.file("w") + ": has no tensor 'decoder'").c_str(),
                       CheckpointError);
}

TEST_CASE_FIXTURE(InFolder, "the bytes are those of the format, and the same each time") {
  const auto save = [&](const std::string& name) {
    save_safetensors(folder.file(name), {{"b", Tensor::from<bool>({true})}, {"a", Tensor::from<float>({2})}},
                     {{"k", "v"}});
    return read_bytes(folder.file(name));
  };
  // The checksum: (sum ^ word) * 0x9e3779b97f4a7c15, sum ^= sum >> 29, for the 8-byte words of the header,
  // where it stands as zeros itself, and of each tensor.
  std::string header = R"({"__metadata__":{"k":"v","tapeformer_format":"2","file_checksum":"SUM"},)"
                       R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                       R"("b":{"dtype":"BOOL","shape":[1],"data_offsets":[4,5]}})";
  header.replace(header.find("SUM"), 3, "c65cbd8b12350655");
  header.resize((header.size() + 7) / 8 * 8, ' ');
  CHECK(save("one") == safetensors(header, std::string("\0\0\0\x40\1", 5)));
  CHECK(save("one") == save("two"));
}

TEST_CASE_FIXTURE(InFolder, "an empty file of no tensors is a valid one") {
  save_safetensors(folder.file("w"), {});
  CHECK(SafetensorsFile::open(folder.file("w")).names().empty());
}

TEST_CASE_FIXTURE(InFolder, "a file that is cut while it is open gives an error where its data are missing") {
  const std::string path = folder.file("w");
  save_safetensors(path, {{"a", Tensor::full({100'000}, 1)}, {"b", Tensor::full({100'000}, 2)}});
  const SafetensorsFile file = SafetensorsFile::open(path);
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 400'001);
  CHECK_THROWS_WITH_AS(file.tensor("a"), (path + ": became shorter while it was being read").c_str(),
                       CheckpointError);
  std::filesystem::resize_file(path, 0);
  CHECK_THROWS_WITH_AS(file.tensor("b"), (path + ": became shorter while it was being read").c_str(),
                       CheckpointError);
}

TEST_CASE("tensors of narrow types longer than a single read are widened") {
  std::string bytes;
  for (std::uint32_t i = 0; i < 300'001; ++i) bytes += bytes_of_values<std::uint16_t>({0x3f80}).substr(0, 2);
  bytes.replace(2 * 200'000, 2, bytes_of_values<std::uint16_t>({0xc000}));
  const Tensor x = read_one("BF16", "[300001]", bytes);
  for (Index i = 0; i < x.elements(); ++i) REQUIRE(x.data<float>()[i] == (i == 200'000 ? -2 : 1));
}

TEST_CASE("narrow floating types and other integers widen") {
  const Tensor half = read_one(
      "F16", "[8]",
      bytes_of_values<std::uint16_t>({0x3c00, 0xc000, 0x7bff, 0x0400, 0x0001, 0x8000, 0x7c00, 0xfe00}));
  const std::vector<float> expected{1, -2, 65504, 0x1p-14f, 0x1p-24f, -0.0f, HUGE_VALF};
  for (std::size_t i = 0; i < 7; ++i) CHECK(half.data<float>()[i] == expected[i]);
  CHECK(std::signbit(half.data<float>()[5]));
  CHECK(std::isnan(half.data<float>()[7]));
  CHECK(read_one("BF16", "[2]", bytes_of_values<std::uint16_t>({0x3fc0, 0xc2c8})).to_vector<float>() ==
        std::vector<float>{1.5, -100});
  CHECK(read_one("I64", "[1,2]", bytes_of_values<std::int64_t>({-2147483648, 2147483647})).to_vector<int>() ==
        std::vector<int>{-2147483647 - 1, 2147483647});
  CHECK(read_one("U8", "[2]", "\x01\xff").to_vector<int>() == std::vector<int>{1, 255});
}

TEST_CASE("values that do not fit are refused") {
  const auto what = [](const std::string& dtype, const std::string& data) {
    const std::string text = message_of<CheckpointError>([&] { read_one(dtype, "[1]", data); });
    return text.substr(text.find(": ") + 2);
  };
  CHECK(what("I64", bytes_of_values<std::int64_t>({2147483648})) ==
        "tensor 'w' has 2147483648, which does not fit an i32");
  CHECK(what("BOOL", "\x02") == "is damaged: tensor 'w' has a bool of value 2");
}

TEST_CASE("tensors of types without arithmetic are refused by name, and the others are read") {
  const TemporaryFolder folder;
  const std::string path = folder.file("x");
  const auto said = [&] {
    const SafetensorsFile file = SafetensorsFile::open(path);
    CHECK(file.tensor("w").to_vector<float>() == std::vector<float>{1.5});
    CHECK(file.names() == std::vector<std::string>{"other", "w"});
    return message_of<CheckpointError>([&] { file.tensor("other"); });
  };
  const auto write = [&](const std::string& type, const std::string& shape, int bytes) {
    const std::string end = std::to_string(bytes), last = std::to_string(bytes + 4);
    write_bytes(path, safetensors("{" + entry("other", type, shape, "[0," + end + "]") + "," +
                                      entry("w", "F32", "[1]", "[" + end + "," + last + "]") + "}",
                                  std::string(static_cast<std::size_t>(bytes), '\1') +
                                      bytes_of_values<float>({1.5})));
  };
  const std::pair<std::string, int> types[] = {{"I8", 8},      {"I16", 16},    {"U16", 16},
                                               {"U32", 32},    {"U64", 64},    {"C64", 64},
                                               {"F8_E4M3", 8}, {"F8_E5M2", 8}, {"F8_E8M0", 8}};
  for (const auto& of_type : types) {
    const std::string& type = of_type.first;
    CAPTURE(type);
    write(type, "[2,4]", of_type.second);
    CHECK(said() == path + ": tensor 'other' is of type " + type +
                        ", which is not supported; try a file that has it as F32 or BF16");
    CHECK(SafetensorsFile::open(path).dtype("other") == type);
    CHECK(SafetensorsFile::open(path).shape("other") == Shape{2, 4});
  }
  for (const auto& [shape, bytes] : {std::pair("[1,1,1,1,1,1,1,1,1]", 4), {"[4611686018427387904,0]", 0}}) {
    write("U8", shape, bytes == 4 ? 1 : 0);
    CHECK(said().find(path + ": tensor 'other' has an unsupported shape: [shape] ") == 0);
  }
}

TEST_CASE_FIXTURE(InFolder, "a missing file, or one of another kind, is refused") {
  CHECK_THROWS_WITH_AS(SafetensorsFile::open("no/such"),
                       "no/such: cannot be opened: No such file or directory", CheckpointError);
  CHECK_THROWS_WITH_AS(SafetensorsFile::open(folder.file("")), (folder.file("") + ": is not a file").c_str(),
                       CheckpointError);
}

TEST_CASE_FIXTURE(InFolder, "every truncation of a file is refused") {
  save_safetensors(folder.file("w"), {{"a", Tensor::from<float>({1, 2})}, {"b", Tensor::from<bool>({true})}},
                   {{"step", "3"}});
  const std::string bytes = read_bytes(folder.file("w"));
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const std::string message = refused(bytes.substr(0, size));
    CHECK(message != "nothing was thrown");
    CHECK(message.find("another type: ") == std::string::npos);
  }
  CHECK(refused(bytes) == "nothing was thrown");
  CHECK(refused("") == "is damaged: 0 bytes are too few for a safetensors file");
  CHECK(refused("\x01\x02") == "is damaged: 2 bytes are too few for a safetensors file");
}

TEST_CASE("a damaged header is refused") {
  for (const std::uint64_t length : {std::uint64_t{3}, ~std::uint64_t{0}}) {
    CHECK(refused(with_length("{}", "", length)) ==
          "is damaged: it has 10 bytes, too few for its header, or a header that is too long");
  }
  CHECK(refused(safetensors("[]", "")) == "is damaged: its header is not an object");
  for (const std::string& bad : {std::string(), std::string("{\"a\":"), std::string("{}\0anything", 11)})
    CHECK(refused(safetensors(bad, "")).find("is damaged: its header is not JSON: ") == 0);
  CHECK(refused(safetensors("{\"a\":" + std::string(100000, '['), "")) ==
        "is damaged: its header is nested too deeply");
  CHECK(refused(safetensors("{\"w\":3}", "")) == "is damaged: 'w' is not an object");
  CHECK(refused(safetensors("{\"__metadata__\":[]}", "")) == "is damaged: '__metadata__' is not an object");
  CHECK(refused(safetensors("{\"__metadata__\":{\"k\":1}}", "")) ==
        "is damaged: its metadata 'k' is not a string");
}

TEST_CASE("offsets that leave the data, overlap or leave holes are refused") {
  const auto lies = [](const char* type, const char* shape, const char* offsets) {
    return format("is damaged: tensor 'w' is {}{} and lies at {} of 4 bytes of data", type, shape, offsets);
  };
  CHECK(refused("F32", "[1]", "[0,8]", 4) == lies("F32", "[1]", "[0,8)"));
  CHECK(refused("F32", "[1]", "[4,0]", 4) == lies("F32", "[1]", "[4,0)"));
  CHECK(refused("F32", "[2]", "[0,4]", 4) == lies("F32", "[2]", "[0,4)"));
  CHECK(refused("F32", "[1,1,1,1,1,1,1,1,2]", "[0,4]", 4) == lies("F32", "[1,1,1,1,1,1,1,1,2]", "[0,4)"));
  CHECK(refused("F32", "[1]", "[0]", 4) == "is damaged: tensor 'w' needs two 'data_offsets'");
  CHECK(refused("F32", "[1]", "[0,4]", 5) == "is damaged: the tensors end at byte 4 of 5 bytes of data");
  const auto begins = [](int begin, int end) {
    return format("is damaged: tensor 'w' begins at byte {}, and the one before it ends at {}", begin, end);
  };
  CHECK(refused("F32", "[1]", "[1,5]", 5) == begins(1, 0));
  for (const int begin : {2, 0, 8}) {
    const std::string offsets = format("[{},{}]", begin, begin + 4);
    CHECK(refused(safetensors(
              "{" + entry("v", "F32", "[1]", "[0,4]") + "," + entry("w", "F32", "[1]", offsets) + "}",
              std::string(12, '\0'))) == begins(begin, 4));
  }
  const std::string w = entry("w", "BOOL", "[1]", "[0,1]");
  CHECK(refused(safetensors("{" + w + "," + w + "}", "\1")) == "is damaged: its header has \"w\" twice");
}

TEST_CASE("types and shapes that make no sense are refused") {
  CHECK(refused("F33", "[1]", "[0,8]", 8) == "is damaged: tensor 'w' has the unknown type 'F33'");
  CHECK(refused(safetensors("{\"w\":{\"shape\":[],\"data_offsets\":[0,0]}}", "")) ==
        "is damaged: tensor 'w' has the unknown type ''");
  CHECK(refused("F32", "{}", "[0,4]", 4) == "is damaged: tensor 'w' has no array 'shape'");
  for (const std::string bad : {"-1", "1.0", "\"1\"", "18446744073709551615", "1e+20"})
    CHECK(refused("F32", "[" + bad + "]", "[0,4]", 4) == "is damaged: tensor 'w' has " + bad + " in 'shape'");
  for (const char* const large : {"[4294967296,4294967296]", "[2305843009213693952]"})
    CHECK(refused("F32", large, "[0,0]", 0) == "is damaged: tensor 'w' has a shape that overflows");
}

TEST_CASE_FIXTURE(InFolder, "tensors that cannot be saved are refused, and the old file stays") {
  const std::string path = folder.file("w");
  write_bytes(path, "old");
  const Tensor x = Tensor::zeros({1});
  CHECK_THROWS_WITH_AS(save_safetensors(path, {{"a", x}, {"a", x}}),
                       (path + ": the name 'a' is given twice or reserved").c_str(), CheckpointError);
  CHECK_THROWS_AS(save_safetensors(path, {{"__metadata__", x}}), CheckpointError);
  CHECK_THROWS_AS(save_safetensors(path, {{"\xff", x}}), CheckpointError);
  CHECK_THROWS_AS(save_safetensors(path, {{"a", x}}, {{"k", "\xff"}}), CheckpointError);
  CHECK(read_bytes(path) == "old");
  CHECK(folder.count() == 1);
}

TEST_CASE_FIXTURE(InFolder, "a flipped bit anywhere in a file is noticed") {
  save_safetensors(folder.file("w"),
                   {{"a", Tensor::full({5}, 1.5)}, {"b", Tensor::full({3}, 1, DType::boolean)}},
                   {{"state", R"({"step": 4})"}});
  const std::string bytes = read_bytes(folder.file("w"));
  CHECK(refused(bytes) == "nothing was thrown");
  std::size_t noticed = 0, flipped = 0;
  for (std::size_t bit = 0; bit < 8 * bytes.size(); bit += 3, ++flipped) {  // each place within a byte
    std::string damaged = bytes;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ 1 << bit % 8);
    write_bytes(folder.file("w"), damaged);
    try {
      SafetensorsFile::open(folder.file("w"));
      MESSAGE("bit ", bit, " of ", 8 * bytes.size());
    } catch (const CheckpointError&) {
      ++noticed;
    }
  }
  CHECK(noticed == flipped);
  std::string value = bytes;
  value.back() ^= 1;
  CHECK(refused(value) == "is damaged: its checksum does not match");
}

TEST_CASE("a file before format 2 has a checksum of its data, or none") {
  const std::string data("\0\0\0\x40\1", 5);
  const auto file = [&](const std::string& metadata, const std::string& content) {
    return refused(safetensors(R"({"__metadata__":{)" + metadata + "}," + entry("a", "F32", "[1]", "[0,4]") +
                                   "," + entry("b", "BOOL", "[1]", "[4,5]") + "}",
                               content));
  };
  const std::string sum = R"("checksum":"12630472937243708945")";
  CHECK(file(sum, data) == "nothing was thrown");
  CHECK(file("", data) == "nothing was thrown");
  CHECK(file(sum, std::string("\0\0\0\x40\0", 5)) == "is damaged: its checksum does not match");
  CHECK(file(R"("tapeformer_format":"2")", data) == "is damaged: its header has no checksum");
}

TEST_CASE("a file of a later format is refused by its number") {
  // The sum is that of these bytes.
  const std::string header =
      R"({"__metadata__":{"tapeformer_format":"3","file_checksum":"53e835589d0a8b4b"}} )";
  CHECK(refused(safetensors(header, "")) ==
        "is of format 3, and this version reads up to 2; try the version that wrote it");
}
