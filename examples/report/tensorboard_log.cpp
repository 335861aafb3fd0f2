#include <tapeformer/autograd/system/file.h>
#include <tapeformer/examples/report/tensorboard_log.h>
#include <unistd.h>

#include <chrono>
#include <cstring>

namespace tapeformer {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

template <class Number>
std::string bytes_of(Number number) {  // little-endian, as is every supported machine
  std::string bytes(sizeof number, '\0');
  std::memcpy(bytes.data(), &number, sizeof number);
  return bytes;
}

std::string varint(std::uint64_t number) {
  std::string bytes;
  for (; number >= 0x80; number >>= 7) bytes += static_cast<char>(number | 0x80);
  return bytes + static_cast<char>(number);
}

// Fields of a protocol buffer: a tag of number and kind, then the content.
std::string fixed(unsigned number, double value) { return varint(number << 3 | 1) + bytes_of(value); }
std::string fixed(unsigned number, float value) { return varint(number << 3 | 5) + bytes_of(value); }
std::string integer(unsigned number, std::uint64_t value) { return varint(number << 3) + varint(value); }
std::string message(unsigned number, const std::string& content) {
  return varint(number << 3 | 2) + varint(content.size()) + content;
}

std::string event(Index step) { return fixed(1, now()) + integer(2, static_cast<std::uint64_t>(step)); }

}  // namespace

TensorBoardLog::TensorBoardLog(const std::string& folder)
    : path_(folder + "/events.out.tfevents." + std::to_string(static_cast<std::int64_t>(now())) + "." +
            std::to_string(getpid())) {}

void TensorBoardLog::add(Index step, const std::vector<std::pair<std::string, double>>& scalars) {
  std::string values;
  for (const auto& [name, value] : scalars) {
    const auto [last, is_first] = last_.emplace(name, step);
    if (!is_first && last->second == step) continue;
    last->second = step;
    values += message(1, message(1, name) + fixed(2, static_cast<float>(value)));
  }
  if (!values.empty()) append(event(step) + message(5, values));
}

void TensorBoardLog::restart(Index step) {
  last_.clear();
  constexpr unsigned kSessionLog = 7, kStatus = 1, kStart = 1;
  append(event(step + 1) + message(kSessionLog, integer(kStatus, kStart)));
}

void TensorBoardLog::append(const std::string& event) {
  const auto record = [](const std::string& content) {
    const std::string length = bytes_of(static_cast<std::uint64_t>(content.size()));
    return length + bytes_of(crc32c(length, true)) + content + bytes_of(crc32c(content, true));
  };
  append_to_file(path_,
                 (begun_ ? "" : record(fixed(1, now()) + message(3, "brain.Event:2"))) + record(event));
  begun_ = true;
}

std::uint32_t crc32c(std::string_view bytes, bool masked) {
  static const auto table = [] {
    std::array<std::uint32_t, 256> made{};
    for (std::uint32_t i = 0; i < 256; ++i) {
      made[i] = i;
      for (int bit = 0; bit < 8; ++bit) made[i] = made[i] >> 1 ^ ((made[i] & 1) != 0 ? 0x82f63b78 : 0);
    }
    return made;
  }();
  std::uint32_t sum = ~std::uint32_t{0};
  for (const char byte : bytes) sum = sum >> 8 ^ table[(sum ^ static_cast<unsigned char>(byte)) & 0xff];
  sum = ~sum;
  return masked ? (sum >> 15 | sum << 17) + 0xa282ead8u : sum;
}

}  // namespace tapeformer
