#include <tapeformer/autograd/error.h>
#include <tapeformer/tests/fuzz/parsers.h>
#include <tapeformer/tests/reference/random_cases.h>
#include <tapeformer/tests/reference/sanitized.h>

#include <doctest/doctest.h>

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

using namespace tapeformer;

namespace {

const std::size_t kMostChanges =
    static_cast<std::size_t>(random_cases(40));  // of one kind of a seed; a stride apart

/// An outcome that is neither success nor an Error.
std::string surprise(const Parser& parser, const std::string& input) {
  try {
    accepts(parser, input);
    return {};
  } catch (const std::exception& error) {
    return std::string(parser.name) + ": " + error.what();
  }
}

/// The positions at which the numbers of a text begin.
std::vector<std::size_t> numbers_in(const std::string& text) {
  const auto is_digit = [&](std::size_t at) { return text[at] >= '0' && text[at] <= '9'; };
  std::vector<std::size_t> places;
  for (std::size_t at = 0; at < text.size(); ++at)
    if (is_digit(at) && (at == 0 || !is_digit(at - 1))) places.push_back(at);
  return places;
}

/// During its lifetime, memory beyond a gibibyte more than now is refused, as on a machine that has no more.
/// Under a sanitizer, which has reserved terabytes, it does nothing.
class MemoryLimit {
 public:
  MemoryLimit() {
    if (is_sanitized()) return;
    std::ifstream pages("/proc/self/statm");
    rlim_t size = 0;
    pages >> size;
    getrlimit(RLIMIT_AS, &before_);
    rlimit limit = before_;
    limit.rlim_cur =
        std::min(limit.rlim_max, size * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + (rlim_t{1} << 30));
    setrlimit(RLIMIT_AS, &limit);
  }
  ~MemoryLimit() {
    if (!is_sanitized()) setrlimit(RLIMIT_AS, &before_);
  }
  MemoryLimit(const MemoryLimit&) = delete;
  MemoryLimit& operator=(const MemoryLimit&) = delete;

 private:
  rlimit before_{};
};

std::size_t stride_of(const std::string& seed) {
  return std::max<std::size_t>(1, seed.size() / kMostChanges);
}

}  // namespace

TEST_CASE("every parser takes its seeds") {
  for (const Parser& parser : parsers()) {
    CAPTURE(parser.name);
    const std::vector<std::string> seeds = parser.seeds();
    CHECK(!seeds.empty());
    for (const std::string& seed : seeds) {
      CAPTURE(seed);
      CHECK(accepts(parser, seed));
    }
  }
}

TEST_CASE("truncated and altered inputs are taken or refused with a message") {
  for (const Parser& parser : parsers()) {
    std::size_t phase = 0;
    for (const std::string& seed : parser.seeds()) {
      for (std::size_t at = phase++ % stride_of(seed); at < seed.size(); at += stride_of(seed)) {
        CHECK(surprise(parser, seed.substr(0, at)) == "");
        for (const int bit : {0, 5, 7}) {
          std::string changed = seed;
          changed[at] = static_cast<char>(changed[at] ^ 1 << bit);
          CHECK(surprise(parser, changed) == "");
        }
      }
    }
  }
}

TEST_CASE("numbers that claim any size are refused before memory is asked for") {
  const MemoryLimit limit;
  for (const Parser& parser : parsers()) {
    std::size_t phase = 0;
    for (const std::string& seed : parser.seeds()) {
      const std::vector<std::size_t> places = numbers_in(seed);
      const std::size_t stride = std::max<std::size_t>(1, 4 * places.size() / kMostChanges);
      for (std::size_t i = phase++ % stride; i < places.size(); i += stride) {
        const std::size_t end = std::min(seed.find_first_not_of("0123456789", places[i]), seed.size());
        for (const char* number : {"2147483647", "9223372036854775807"}) {
          const std::string changed = seed.substr(0, places[i]) + number + seed.substr(end);
          CAPTURE(changed);
          CHECK(surprise(parser, changed) == "");
        }
      }
    }
  }
}

TEST_CASE("inputs that once crashed a parser are taken or refused with a message") {
  const std::filesystem::path corpus = TAPEFORMER_SOURCE_DIR "/tests/fuzz/corpus";
  for (const auto& entry : std::filesystem::recursive_directory_iterator(corpus)) {
    if (!entry.is_regular_file()) continue;
    const std::string name = entry.path().parent_path().filename();
    const Parser& parser = parser_named(name);
    CHECK(surprise(parser, content_of(entry.path())) == "");
  }
}

TEST_CASE("an unknown parser is refused, and unexpected exceptions are noticed") {
  CHECK_THROWS_WITH_AS(parser_named("html"), doctest::Contains("got html"), Error);
  const Parser careless{"careless", nullptr, [](const std::string& input) { std::stoi(input); }};
  CHECK(surprise(careless, "x") == "careless: stoi");
  CHECK(surprise(careless, "1") == "");
}
