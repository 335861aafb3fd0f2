#include <tapeformer/examples/shared/ranks.h>
#include <tapeformer/tests/examples/toy_task.h>
#include <tapeformer/tests/reference/thread_communicator.h>
#include <tapeformer/tests/reference/threads.h>

#include <omp.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <atomic>
#include <cstdlib>

using namespace tapeformer;
using reference::as_ranks;

namespace {

/// The first of two processes; the other contributes nothing.
struct FirstOfTwo : Communicator {
  FirstOfTwo() : Communicator(0, 2) {}
  CommunicationTime time() const override { return {waited, waited}; }
  Communication start(const Request&) override { return {}; }
  double waited = 0;
};

/// Seems to wait for a long time when it is restored and when it validates.
struct WaitingTask : ToyTask {
  explicit WaitingTask(FirstOfTwo& all) : waiting(all) {}
  void load_state(const Json& state) override {
    waiting.waited += 100;
    ToyTask::load_state(state);
  }
  Validation validate(Progress& progress) override {
    waiting.waited += 100;
    return ToyTask::validate(progress);
  }
  FirstOfTwo& waiting;
};

}  // namespace

TEST_CASE("rank 0 is done before the others begin") {
  std::atomic<int> through{0};
  as_ranks(3, [&](Communicator& ranks) {
    first_rank_first(ranks, [&] {
      if (ranks.rank() > 0) CHECK(through >= 1);
      if (ranks.rank() == 0) CHECK(through == 0);
      ++through;
    });
  });
  CHECK(through == 3);
}

TEST_CASE("ranks of one machine divide its threads or GPUs, and are warned when they are too many") {
  const char* const threads = std::getenv("OMP_NUM_THREADS");
  const std::string before = threads == nullptr ? "" : threads;
  const int all = omp_get_num_procs();
  for (const bool chosen : {true, false}) {  // by the environment, as when ctest runs this
    chosen ? setenv("OMP_NUM_THREADS", "3", 1) : unsetenv("OMP_NUM_THREADS");
    as_ranks(all + 1, [&](Communicator& ranks) {
      const Threads usual(7);
      Compute compute{Device::cpu()};
      const std::string note = share_machine(ranks, compute);
      CHECK(omp_get_max_threads() == (chosen ? 7 : 1));
      CHECK(note.find("note: " + std::to_string(all + 1) + " processes share ") == 0);
      compute.device = Device::cuda();
      CHECK(share_machine(ranks, compute).empty());
      CHECK(compute.device.index == ranks.rank() % std::max(1, cuda::device_count()));
    });
    as_ranks(1, [&](Communicator& alone) {
      const Threads usual(7);
      Compute compute{Device::cpu()};
      CHECK(share_machine(alone, compute).empty());
      CHECK(omp_get_max_threads() == 7);
    });
  }
  if (!before.empty()) setenv("OMP_NUM_THREADS", before.c_str(), 1);
}

TEST_CASE("ranks on different devices divide the machine by the same calls") {
  as_ranks(2, [](Communicator& ranks) {
    const Threads usual(7);
    Compute compute{ranks.rank() == 0 ? Device::cpu() : Device::cuda()};
    share_machine(ranks, compute);
    CHECK(ranks.sum({1}) == std::vector<double>{2});
  });
}

TEST_CASE("a rank that was started with other options is refused by the difference") {
  const auto state_of = [](int rank) {
    return nlohmann::ordered_json{{"options", {{"batch", rank == 2 ? 16 : 12}, {"seed", 1}}},
                                  {"data_fingerprint", 7}};
  };
  as_ranks(2, [&](Communicator& ranks) { require_same_training(ranks, state_of(ranks.rank())); });
  CHECK_THROWS_WITH_AS(
      as_ranks(3, [&](Communicator& ranks) { require_same_training(ranks, state_of(ranks.rank())); }),
      "rank 2 has a different options/batch than rank 0: 16 instead of 12; all processes need the same "
      "command, version and data, and see the same run folder",
      CommunicationError);
  CHECK_THROWS_WITH_AS(as_ranks(2,
                                [&](Communicator& ranks) {
                                  auto state = state_of(0);
                                  if (ranks.rank() == 1) state.erase("data_fingerprint");
                                  require_same_training(ranks, state);
                                }),
                       doctest::Contains("a different data_fingerprint than rank 0: none instead of 7"),
                       CommunicationError);
  CHECK_THROWS_WITH_AS(
      as_ranks(2,
               [&](Communicator& ranks) {
                 auto state = state_of(0);
                 if (ranks.rank() == 1) state["options"]["freeze"] = {"head.*"};
                 require_same_training(ranks, state);
               }),
      doctest::Contains("a different options/freeze/0 than rank 0: \"head.*\" instead of none"),
      CommunicationError);
}

TEST_CASE("every rank's share of waiting is known") {
  as_ranks(3, [](Communicator& ranks) {
    const std::vector<double> shares = waiting_shares(ranks, ranks.rank(), 4);
    CHECK(shares == std::vector<double>{0, 0.25, 0.5});
    CHECK(communication_text({2, 0.5}, shares) ==
          "communication: 2.00 s, 75 % of it during the computation; the processes waited for 0.0, 25.0, "
          "50.0 % of the time");
    CHECK(has(communication_text({2, 3}, shares), "2.00 s, 0 % of it"));
  });
}

TEST_CASE_FIXTURE(
    RunCase, "a line of the log has the waiting of its own time, without a restart's or a validation's") {
  const auto two = std::make_shared<FirstOfTwo>();
  TrainingControl control = limited(kOneStep);
  control.ranks = two;
  WaitingTask first(*two), second(*two);
  first.training.log_every = second.training.log_every = 1;
  tapeformer::start(folder, first, control);
  control.max_minutes = 0;
  tapeformer::resume(folder, second, control);
  const auto lines = metrics(folder, "waiting");
  CHECK(lines.size() == 12);
  for (const Json& line : lines) CHECK(line.at("waiting") == Json::array({0.0, 0.0}));
}
