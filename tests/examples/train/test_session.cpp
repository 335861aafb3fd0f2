#include <tapeformer/tests/examples/toy_task.h>
#include <tapeformer/tests/reference/thread_communicator.h>

using namespace tapeformer;

TEST_CASE_FIXTURE(
    Logged, "ranks agree on tokens, on stopping and on the time limit at the end of a step, not before") {
  reference::as_ranks(2, [&](Communicator& ranks) {
    ToyTask task;
    TrainingControl control;
    control.ranks = {&ranks, [](Communicator*) {}};
    control.stops = [&] { return ranks.rank() == 1; };
    Progress progress(false);
    Session session(RunFolder(temporary.file("run")), control, task, progress, {}, toy_compute());
    if (ranks.rank() == 0) session.control.max_minutes = 1e-12;
    CHECK_FALSE(session.stops());
    CHECK_FALSE(session.is_late());
    CHECK(session.sum_over_ranks(3 + ranks.rank()) == 7);
    CHECK(session.stops());
    CHECK(session.is_late());
  });
}
