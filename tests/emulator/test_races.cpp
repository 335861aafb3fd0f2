#include <tapeformer/tests/emulator/hopper_source.h>
#include <tapeformer/tests/emulator/in_order.h>
#include <tapeformer/tests/emulator/race_kernels.h>
#include <tapeformer/tests/reference/support.h>

#include <doctest/doctest.h>

#include <vector>

using namespace tapeformer;
using emulator::Fault;
using emulator::launch;

namespace {

const std::string kNothing = "nothing was thrown";

std::string fault_of(const RaceCase& race) {
  std::vector<float> global(256);
  std::vector<std::int16_t> halves(256);
  return message_of<Fault>([&] {
    launch("kernel", 3, 64, 64 * sizeof(float), [&] { race.kernel(global.data(), halves.data()); });
  });
}

std::string fault_of(const HopperRaceCase& race) {
  const hopper_tests::Source source(128, 64);
  return message_of<Fault>(
      [&] { launch("kernel", 2, 256, hopper_tests::kSharedBytes, [&] { race.kernel(source.map); }); });
}

template <class Case>
void check_in_every_order(const std::vector<Case>& cases) {
  for (std::uint64_t seed = 0; seed <= 10; ++seed) {
    const InOrder order(seed);
    for (const Case& race : cases) {
      const std::string text = fault_of(race);
      INFO(std::string(race.name) << ", seed " << seed << ": " << text);
      CHECK((text == kNothing) == (race.fault == nullptr));
      if (seed > 0 || race.fault == nullptr) continue;
      CHECK(text.find("[kernel] ") == 0);
      CHECK(text.find(race.fault) != std::string::npos);
    }
  }
}

}  // namespace

TEST_CASE("races are found and named, and only races, in every order") {
  if (!accesses_are_seen()) return;
  check_in_every_order(race_cases());
  check_in_every_order(hopper_race_cases());
}

TEST_CASE("a message names the kernel, both threads, the place and the last barrier") {
  if (!accesses_are_seen()) return;
  const InOrder order(0);
  const std::string text = fault_of(race_cases()[1]);
  INFO(text);
  CHECK(text.find(
            "[kernel] thread 32 of block (0,0,0) writes what thread 31 of block (0,0,0) read, and nothing "
            "orders them; got 4 bytes at dynamic shared memory + 128, after the barrier ") == 0);
  CHECK(text.find("race_kernels.cpp:") != std::string::npos);
  CHECK(text.find("in code at ") != std::string::npos);
  CHECK(text.find("block (0,0,0) of (3,1,1), block size (64,1,1)") != std::string::npos);
}

TEST_CASE("launches one after the other do not race") {
  std::vector<float> global(256);
  std::vector<std::int16_t> halves(256);
  for (int repeat = 0; repeat < 3; ++repeat)
    launch("kernel", 3, 64, 64 * sizeof(float),
           [&] { race_cases()[0].kernel(global.data(), halves.data()); });
  CHECK(global[191] == 1);
}

TEST_CASE("accesses are not checked if that is turned off") {
  const InOrder restores_options(0);
  emulator::options().races = false;
  CHECK(fault_of(race_cases()[3]) == kNothing);
}
