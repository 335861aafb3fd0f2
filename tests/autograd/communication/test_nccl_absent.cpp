#include <doctest/doctest.h>
#include <tapeformer/autograd/communication/nccl.h>
#include <tapeformer/autograd/device.h>
#include <tapeformer/tests/reference/thread_communicator.h>

using namespace tapeformer;

TEST_CASE("without GPUs one process continues, and several are refused") {
  const auto alone = communicator_alone();
  CHECK(nccl_communicator(alone, 0).get() == alone.get());
  if (cuda::device_count() > 0) return;
  const auto start = [](Communicator& ranks) { nccl_communicator(reference::borrowed(ranks), 0); };
  CHECK_THROWS_AS(reference::as_ranks(2, start), CommunicationError);
}
