#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/tests/autograd/communication/nccl_case.h>
#include <tapeformer/tests/reference/support.h>

#include <string>

using namespace tapeformer;

namespace {

constexpr double kLimit = 0.3;  // seconds

Tensor ones(Device device) { return Tensor::full({4}, 1, DType::f32, device); }

/// True if the device computes correctly.
bool is_well(Device device) {
  const Tensor x = ones(device);
  return add(x, x).to_vector<float>() == std::vector<float>(4, 2);
}

}  // namespace

TEST_CASE("a rank that waits longer than the limit throws from then on, wherever the device is used") {
  if (!has_gpus(2)) return;
  on_gpus(
      2,
      [](Communicator& gpus, Device device) {
        const Tensor x = ones(device);
        gpus.all_reduce(x).wait();
        if (gpus.rank() == 1) return;  // and takes no further part
        gpus.set_step(7);
        const std::string message =
            "[all_reduce] rank 0 has waited 0.3 s for all 2 ranks to take part; got f32[4] at step 7; see "
            "whether one of them has stopped, or try a longer limit";
        CHECK(message_of<CommunicationError>([&] {
                gpus.all_reduce(x).wait();
                x.to_vector<float>();
              }) == message);
        CHECK(message_of<CommunicationError>([&] { gpus.all_reduce(x); }) == message);
        CHECK(message_of<CommunicationError>([&] { gpus.sum({1}); }) == message);
        CHECK(message_of<CommunicationError>([&] { gpus.set_step(8); }) == message);
        CHECK(message_of<CommunicationError>([&] { add(x, x); }) == message);
        CHECK(message_of<CommunicationError>([&] { cuda::synchronize(0); }) == message);
      },
      kLimit);
  CHECK(is_well(Device::cuda(0)));
  CHECK(is_well(Device::cuda(1)));
}

TEST_CASE("a thread that waits for a device while the limit passes gets the error there") {
  if (!has_gpus(2)) return;
  on_gpus(
      2,
      [](Communicator& gpus, Device device) {
        if (gpus.rank() == 1) return;
        const Tensor x = ones(device);
        const std::string message = message_of<CommunicationError>([&] {
          gpus.reduce_scatter(x).wait();
          add(x, x).to_vector<float>();
        });
        CHECK(message.find("[reduce_scatter] rank 0 has waited") == 0);
      },
      kLimit);
}

TEST_CASE("ranks that do not meet are abandoned after the limit") {
  if (!has_emulated_gpus(2)) return;
  EmulatedNccl nccl;
  nccl->fault = {"ncclCommInitRankConfig", 1, ncclSystemError, "Connection refused"};
  const auto start = [](Communicator& ranks) {
    const std::string message = message_of<CommunicationError>(
        [&] { nccl_communicator(reference::borrowed(ranks), ranks.rank(), kLimit); });
    CAPTURE(message);
    const std::string expected =
        ranks.rank() == 0
            ? "[nccl] rank 0 has waited 0.3 s for all 2 ranks to join"
            : "[nccl] NCCL cannot connect rank 1: unhandled system error (Connection refused); /dev/shm, ";
    CHECK(message.find(expected) == 0);
  };
  reference::as_ranks(2, start);
}

TEST_CASE("a failure of NCCL is reported in its own words with a remedy") {
  if (!has_emulated_gpus(2)) return;
  EmulatedNccl nccl;
  const auto message_with = [&](const emulator::NcclLibrary::Fault& fault) {
    nccl->fault = fault;
    std::string message;
    on_gpus(
        2,
        [&](Communicator& gpus, Device device) {
          const std::string own = message_of<CommunicationError>([&] {
            const Tensor x = ones(device);
            gpus.all_reduce(x).wait();
            x.to_vector<float>();
          });
          if (gpus.rank() == fault.rank) message = own;
        },
        kLimit);
    CHECK(is_well(Device::cuda(fault.rank)));
    return message;
  };
  const std::string memory = message_with(
      {"ncclAllReduce", 1, ncclSystemError, "Error while creating shared memory segment /dev/shm/nccl-x\n"});
  CHECK(memory.find("[all_reduce] NCCL has failed on rank 1; got f32[4] at step 0: unhandled system error "
                    "(Error while creating shared memory segment /dev/shm/nccl-x); /dev/shm, which ranks of "
                    "one machine share, has ") == 0);
  CHECK(memory.find(" MiB left; if that is little try --ipc=host or --shm-size=1g where the container is "
                    "started") != std::string::npos);
  CHECK(message_with({"ncclAllReduce", 0, ncclInvalidUsage, ""}) ==
        "[all_reduce] NCCL has failed on rank 0; got f32[4] at step 0: invalid usage; try NCCL_DEBUG=WARN, "
        "which says more");
}

TEST_CASE("an error that NCCL notices later is reported too") {
  if (!has_emulated_gpus(2)) return;
  EmulatedNccl nccl;
  nccl->fault = {"ncclCommGetAsyncError", 0, ncclRemoteError, "socket closed"};
  on_gpus(
      2,
      [&](Communicator& gpus, Device device) {
        const Tensor x = ones(device);
        if (gpus.rank() == 1) return;
        const std::string message = message_of<CommunicationError>([&] {
          gpus.all_reduce(x).wait();
          x.to_vector<float>();
        });
        CHECK(message ==
              "[all_reduce] NCCL has failed on rank 0; got f32[4] at step 0: remote process exited or there "
              "was a network error (socket closed); another rank has ended; see its message");
      },
      20);
}
