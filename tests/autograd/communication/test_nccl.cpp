#include <tapeformer/autograd/cuda/cuda.h>
#include <tapeformer/autograd/cuda/graph.h>
#include <tapeformer/autograd/cuda_graph_cache.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/nn/module.h>
#include <tapeformer/tests/autograd/communication/collectives_case.h>
#include <tapeformer/tests/autograd/communication/nccl_case.h>
#include <tapeformer/tests/reference/support.h>

#include <functional>
#include <string>
#include <vector>

using namespace tapeformer;
using reference::as_ranks;
using Values = std::vector<double>;

namespace {

constexpr Index kCount = 12;  // divides by 2 and 3

Tensor own_numbers(int rank, Device device) { return own_numbers(rank, kCount, DType::f64, device); }
Values read(const Tensor& x) { return x.to(Device::cpu()).to(DType::f64).to_vector<double>(); }

/// Why the ranks of `size` threads cannot meet; `device_of` chooses their GPUs.
std::string refusal(int size, const std::function<int(int)>& device_of) {
  return message_of<CommunicationError>([&] {
    as_ranks(size, [&](Communicator& ranks) {
      nccl_communicator(reference::borrowed(ranks), device_of(ranks.rank()), 20);
    });
  });
}
int own(int rank) { return rank; }

}  // namespace

TEST_CASE("GPUs sum, divide, gather and send in every type") {
  for (const int size : {2, 3}) {
    if (!has_gpus(size)) continue;
    on_gpus(size, [&](Communicator& gpus, Device device) {
      CHECK(gpus.size() == size);
      for (const DType type : {DType::f32, DType::f64, DType::bf16, DType::i32})
        check_collectives(gpus, kCount, type, device);
    });
  }
}

TEST_CASE("tensors of the CPU go between the processes") {
  if (!has_gpus(2)) return;
  on_gpus(2, [](Communicator& gpus, Device) {
    CHECK(gpus.sum({1, static_cast<double>(gpus.rank())}) == Values{2, 1});
    CHECK(gpus.gather(std::string(1, static_cast<char>('a' + gpus.rank()))) ==
          std::vector<std::string>{"a", "b"});
  });
}

TEST_CASE("operations run after the kernels before them, and before the kernels after their wait") {
  if (!has_gpus(2)) return;
  EmulatedNccl nccl;
  for (const bool is_early : {true, false}) {
    CAPTURE(is_early);
    nccl->is_early = is_early;
    on_gpus(2, [](Communicator& gpus, Device device) {
      const Tensor x = Tensor::zeros({kCount}, DType::f64, device),
                   y = Tensor::zeros({kCount}, DType::f64, device);
      for (int round = 1; round < 5; ++round) {
        x.copy_from(filled({kCount}, [&](Index i) { return round * number(gpus.rank(), i); }));
        y.copy_from(filled({kCount}, [&](Index i) { return round + number(gpus.rank(), i); }));
        Communication of_x = gpus.all_reduce(x), of_y = gpus.all_reduce(y);
        of_x.wait();
        const Tensor twice = add(x, x);
        of_y.wait();
        const Tensor both = add(twice, y);
        x.copy_from(Tensor::zeros({kCount}, DType::f64, Device::cpu()));  // comes after all of that
        const Values got = read(both);
        for (Index i = 0; i < kCount; ++i)
          CHECK(got[static_cast<std::size_t>(i)] == (2 * round + 1) * sum_at(2, i) + 2 * round);
      }
    });
  }
}

TEST_CASE("memory without another holder, or of an operation without a wait, is not reused too soon") {
  if (!has_gpus(2)) return;
  on_gpus(2, [](Communicator& gpus, Device device) {
    for (int round = 0; round < 3; ++round) {
      gpus.all_reduce(own_numbers(gpus.rank(), device));
      Communication holds_alone = gpus.all_reduce(own_numbers(gpus.rank(), device));
      const Tensor next = Tensor::full({kCount}, 7, DType::f64, device);
      CHECK(read(add(next, next)) == Values(kCount, 14));
      holds_alone.wait();
    }
    const Tensor x = own_numbers(gpus.rank(), device);
    gpus.all_reduce(x).wait();
    CHECK(read(x)[0] == sum_at(2, 0));
  });
}

TEST_CASE("a graph holds no communication; the step runs kernel by kernel and says why") {
  if (!has_gpus(2)) return;
  on_gpus(2, [](Communicator& gpus, Device device) {
    class Model : public Module {
     public:
      explicit Model(Device where) : weight(Tensor::zeros({1}, DType::f64, where)) {}
      void visit(ParameterVisitor& visitor) override { visitor.parameter("weight", weight); }

     private:
      Parameter weight;
    } model(device);
    CudaGraphCache graphs(model.state());
    for (int round = 0; round < 4; ++round) {
      const Tensor result = graphs.run("step", {own_numbers(gpus.rank(), device)}, [&](const auto& inputs) {
        const Tensor x = add(inputs[0], inputs[0]);
        gpus.all_reduce(x).wait();
        return add(x, x);
      });
      CHECK(read(result)[0] == 4 * sum_at(2, 0));
    }
    CHECK(graphs.counts().captured == 0);
    CHECK(graphs.refusal() == "[cuda] a graph cannot hold communication between processes");
    // Nor does one wait for operations started outside, for which a replay would not wait.
    const Tensor x = own_numbers(gpus.rank(), device);
    Communication communication = gpus.all_reduce(x);
    {
      const cuda::Capture capture(device.index, 0);
      CHECK_THROWS_WITH_AS(communication.wait(), "[cuda] a graph cannot hold a wait for other GPUs",
                           cuda::NotCapturable);
    }
    CHECK(read(x)[0] == sum_at(2, 0));
  });
}

TEST_CASE("the events tell how long GPUs communicated, and how long kernels stood still") {
  if (!has_emulated_gpus(2)) return;
  EmulatedNccl nccl;
  nccl->microseconds = 500;
  for (const bool is_early : {true, false}) {
    CAPTURE(is_early);
    nccl->is_early = is_early;
    on_gpus(2, [&](Communicator& gpus, Device device) {
      const Tensor x = own_numbers(gpus.rank(), device), y = own_numbers(gpus.rank(), device);
      for (int round = 0; round < 4; ++round) {
        Communication of_x = gpus.all_reduce(x), of_y = gpus.all_reduce(y);
        of_x.wait();
        of_y.wait();
        gpus.time();  // nothing counts twice
      }
      gpus.sum({1});  // both have started all
      read(x);
      read(y);
      const CommunicationTime time = gpus.time();
      CHECK(time.busy == doctest::Approx(8 * 500e-6));
      CHECK(time.waited <= time.busy * (1 + 1e-6));
      const double waited_by_all = gpus.sum({time.waited})[0];
      if (!is_early) {
        CHECK(waited_by_all > 499e-6);
      } else if (!cuda::is_host_readable()) {
        CHECK(waited_by_all == 0);  // all was over when the kernels came to it
      }
    });
  }
}

TEST_CASE("one process needs no NCCL, and a tensor must be on the rank's GPU") {
  EmulatedNccl nccl;
  nccl->why_missing = "[nccl] missing";
  const auto alone = communicator_alone();
  CHECK(nccl_communicator(alone, 0).get() == alone.get());
  nccl->why_missing = "";
  if (!has_gpus(2)) return;
  on_gpus(2, [](Communicator& gpus, Device device) {
    const Device other = Device::cuda(1 - device.index);
    const Tensor x = Tensor::zeros({2}, DType::f32, other);
    CHECK(message_of<DeviceError>([&] { gpus.all_gather(x); }) ==
          "[all_gather] the tensor must be on " + device.text() + ", this rank's; got x=f32[2] on " +
              other.text());
  });
}

TEST_CASE("ranks without a GPU of their own are refused by number") {
  if (!has_gpus(2)) return;
  const int count = cuda::device_count();
  CHECK(refusal(count + 1, own) == "[nccl] rank " + std::to_string(count) +
                                       " cannot take part: there is no cuda:" + std::to_string(count) + ": " +
                                       cuda::availability() +
                                       "; start as many ranks on each machine as it has GPUs");
  CHECK(refusal(2, [](int) { return 1; })
            .find("[nccl] each rank needs a GPU of its own; got one for both rank 0 and rank 1; start as "
                  "many") == 0);
}

TEST_CASE("an NCCL that is missing, too old or not the others' is refused on every rank") {
  if (!has_emulated_gpus(2)) return;
  EmulatedNccl nccl;
  nccl->why_missing = "[nccl] sums between GPUs need libnccl.so.2, which cannot be loaded";
  CHECK(refusal(2, own) == "[nccl] rank 0 cannot take part: " + nccl->why_missing);
  nccl->why_missing = "";
  nccl->versions.fill(21205);
  CHECK(refusal(2, own) ==
        "[nccl] rank 0 cannot take part: NCCL is too old; got 2.12.5; install 2.14.0 or newer");
  nccl->versions = {22809, 22602};
  CHECK(refusal(2, own) ==
        "[nccl] all ranks need the same NCCL; got 2.28.9 on rank 0 and 2.26.2 on rank 1; install one of "
        "them everywhere");
  nccl->versions.fill(21400);
  nccl->fault = {"ncclGetUniqueId", 0, ncclInternalError, "no interface"};
  CHECK(refusal(2, own) ==
        "[nccl] rank 0 cannot take part: NCCL has failed: internal error (no interface); try "
        "NCCL_DEBUG=WARN, which says more");
}

TEST_CASE("the emulator reports differences between the ranks") {
  if (!has_emulated_gpus(2)) return;
  EmulatedNccl nccl;
  std::string seen;
  nccl->complain = [&](const std::string& what) { seen = what; };
  const auto differing = [&](const std::function<void(Communicator&, Device)>& body) {
    seen.clear();
    on_gpus(2, [&](Communicator& gpus, Device device) {
      body(gpus, device);
      cuda::synchronize(device.index);
    });
    return seen;
  };
  const std::string two = "ranks call different operations: ";
  CHECK(differing([](Communicator& gpus, Device device) {
          gpus.all_reduce(Tensor::zeros({gpus.rank() + 2}, DType::f32, device));
        }) == two +
                  "ncclAllReduce of 2 elements of type 7, reduction 0, root 0 and ncclAllReduce of 3 "
                  "elements of type 7, reduction 0, root 0");
  CHECK(differing([](Communicator& gpus, Device device) {
          gpus.all_reduce(Tensor::zeros({2}, gpus.rank() == 0 ? DType::f64 : DType::bf16, device));
        }).find(two) == 0);
  CHECK(differing([](Communicator& gpus, Device device) {
          const Tensor x = Tensor::zeros({2}, DType::f32, device);
          if (gpus.rank() == 0) gpus.all_gather(x);
          gpus.all_reduce(x);
          if (gpus.rank() == 1) gpus.all_gather(x);
        }).find(two) == 0);
}
