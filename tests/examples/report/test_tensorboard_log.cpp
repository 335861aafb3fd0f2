#include <tapeformer/examples/report/tensorboard_log.h>
#include <tapeformer/examples/shared/run_folder.h>
#include <tapeformer/tests/nn/formats/temporary_folder.h>
#include <tapeformer/tests/reference/text.h>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <cstring>

using namespace tapeformer;

namespace {

std::uint32_t number_at(const std::string& bytes, std::size_t at) {
  std::uint32_t number = 0;
  REQUIRE(at + sizeof number <= bytes.size());
  std::memcpy(&number, bytes.data() + at, sizeof number);
  return number;
}

/// The events in a file, each without its first nine bytes, the time.
std::vector<std::string> events_in(const std::string& path) {
  const std::string bytes = read_bytes(path);
  std::vector<std::string> events;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t length = number_at(bytes, at);
    CHECK(number_at(bytes, at + 4) == 0);  // the upper half of the length
    CHECK(number_at(bytes, at + 8) == crc32c(bytes.substr(at, 8), true));
    const std::string event = bytes.substr(at + 12, length);
    CHECK(number_at(bytes, at + 12 + length) == crc32c(event, true));
    CHECK(event.at(0) == '\x09');
    events.push_back(event.substr(9));
    at += 16 + length;
  }
  return events;
}

template <std::size_t N>
std::string bytes_of(const char (&text)[N]) {
  return {text, N - 1};
}

}  // namespace

TEST_CASE("checksums are those of RFC 3720, and masked as TensorFlow does") {
  CHECK(crc32c("123456789") == 0xe3069283);
  CHECK(crc32c(std::string(32, '\0')) == 0x8a9136aa);
  CHECK(crc32c(std::string(32, '\xff')) == 0x62a8ab43);
  CHECK(crc32c(bytes_of("\x18\0\0\0\0\0\0\0"), true) == 0x224b7fa3);  // begins every file of TensorFlow's
}

TEST_CASE_FIXTURE(InFolder, "events match byte for byte, except for their time") {
  TensorBoardLog log(std::filesystem::path(folder.file("x")).parent_path());
  log.add(300, {{"loss", 1.5}, {"b", -2}});
  log.restart(6);
  const std::vector<std::string> expected{bytes_of("\x1a\x0d"
                                                   "brain.Event:2"),
                                          bytes_of("\x10\xac\x02"
                                                   "\x2a\x17"
                                                   "\x0a\x0b\x0a\x04"
                                                   "loss"
                                                   "\x15\0\0\xc0\x3f"
                                                   "\x0a\x08\x0a\x01"
                                                   "b"
                                                   "\x15\0\0\0\xc0"),
                                          bytes_of("\x10\x07"
                                                   "\x3a\x02\x08\x01")};
  CHECK(events_in(log.path()) == expected);
}

TEST_CASE_FIXTURE(InFolder, "a step has one point under each name") {
  TensorBoardLog log(std::filesystem::path(folder.file("x")).parent_path());
  log.add(2, {{"loss", 1.5}, {"tokens", 64}});
  log.add(2, {{"best", 1.25}, {"tokens", 64}});
  log.add(2, {{"tokens", 64}});
  log.add(3, {{"tokens", 96}});
  log.restart(1);  // steps 2 and 3 are written again
  log.add(2, {{"tokens", 64}});
  const std::vector<std::string> events = events_in(log.path());
  REQUIRE(events.size() == 6);
  const auto has = [&](std::size_t i, const char* name) { return events[i].find(name) != std::string::npos; };
  CHECK((has(1, "loss") && has(1, "tokens")));
  CHECK((has(2, "best") && !has(2, "tokens")));
  CHECK((has(3, "tokens") && has(5, "tokens")));
}

TEST_CASE("a run's metrics are events too") {
  const TemporaryFolder temporary;
  RunFolder folder(temporary.file("run"));
  folder.create();
  const auto log = std::make_shared<TensorBoardLog>(folder.path());
  folder.write_events(log);
  folder.append_metrics({{"step", 1}, {"train_loss", 0.5}, {"text", "left out"}});
  folder.cut_metrics(0);
  const std::vector<std::string> events = events_in(log->path());
  REQUIRE(events.size() == 3);
  CHECK(events[1] == bytes_of("\x10\x01"
                              "\x2a\x13"
                              "\x0a\x11\x0a\x0a"
                              "train_loss"
                              "\x15\0\0\0\x3f"));
  CHECK(events[2] == bytes_of("\x10\x01"
                              "\x3a\x02\x08\x01"));
  CHECK(has(message_of<DataError>([&] { TensorBoardLog(temporary.file("none")).restart(0); }), "none"));
}
