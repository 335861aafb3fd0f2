#include <doctest/doctest.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/tests/autograd/graph_course.h>
#include <tapeformer/tests/autograd/kernels/full_device.h>

#include <string>

using namespace tapeformer;

// Graphs on a device that is full: bodies need 6 units of memory at once, other work 8, and there are 13. A
// body fits next to a graph with a unit to spare, which a real device takes for itself.

namespace {

constexpr std::size_t kOfBody = 6, kOfOthers = 8, kRoom = 13;
const char* const kNoUse =
    "[memory] 3 graphs in a row were evicted by other work before they had run again 4 times; try a smaller "
    "batch, --recompute-layers or --precision bf16";

void other_work() { FullDevice::block(kOfOthers); }

/// A model whose steps draw, next to one that takes the same steps without graphs.
struct Pair {
  explicit Pair(Index most_graphs = CudaGraphCache::kMostGraphs) : replay(model.state(), most_graphs) {}

  static Tensor body(SmallModel& of, const Tensor& x) { return of.dropout(x) * of.weight.value(); }
  Tensor step(const std::string& tag = "step") {
    const Tensor x = numbers(++steps);
    const Tensor y = replay.run(tag, only(x), [this](const std::vector<Tensor>& given) {
      FullDevice::block(kOfBody);
      return body(model, given[0]);
    });
    CHECK(same(y, body(twin, x)));
    return y;
  }
  void check(Index run, Index captured, Index replayed, Index given_up) const {
    check_counts(replay, run, captured, replayed, given_up);
  }

  SmallModel model, twin;
  CudaGraphCache replay;
  double steps = 0;
};

}  // namespace

TEST_CASE("graphs are evicted when other work finds no memory, and captured again when their work returns") {
  if (!FullDevice::is_possible()) return;
  Pair pair;
  const FullDevice full(kRoom);
  std::vector<Tensor> results;
  for (Index i = 0; i < 30; ++i) {
    results.push_back(pair.step().to(Device::cpu()));
    if (i % 6 == 5) other_work();
  }
  pair.check(1, 5, 24, 4);
  CHECK(pair.replay.refusal() == "");  // each graph was used before it was evicted
  Pair again;                          // other work has not changed the results
  for (Index i = 0; i < 30; ++i) CHECK(same(again.step(), results[static_cast<std::size_t>(i)]));
}

TEST_CASE("all graphs of a device are evicted, whichever cache made them") {
  if (!FullDevice::is_possible()) return;
  Pair one, two;
  const FullDevice full(kRoom);
  for (Index i = 0; i < 8; ++i) {
    one.step();
    two.step("a");
    two.step("b");
    if (i == 4) other_work();
  }
  one.check(1, 2, 5, 1);
  two.check(2, 4, 10, 2);
}

TEST_CASE("an evicted graph makes room for another") {
  if (!FullDevice::is_possible()) return;
  Pair pair(1);
  const FullDevice full(kRoom);
  for (Index i = 0; i < 3; ++i) pair.step("a");
  other_work();
  for (Index i = 0; i < 3; ++i) pair.step("b");
  pair.check(2, 2, 2, 1);
  for (Index i = 0; i < 2; ++i) pair.step("a");  // and now no memory is left
  pair.check(4, 2, 2, 1);
}

TEST_CASE("graphs that are evicted too early to pay are no longer captured, and the reason is given") {
  if (!FullDevice::is_possible()) return;
  Pair pair;
  const FullDevice full(kRoom);
  for (Index i = 0; i < 8; ++i) {
    pair.step();
    other_work();
  }
  pair.check(5, 3, 0, 3);
  CHECK(pair.replay.refusal() == kNoUse);
  for (Index i = 0; i < 3; ++i) pair.step("other");
  pair.check(6, 4, 1, 3);
}

TEST_CASE("a result that finds no room next to its graph evicts it, and is right") {
  // The memory of a graph on a real device is unknown.
  if (!FullDevice::is_possible() || cuda::device_name(0).find("emulated") != 0) return;
  constexpr std::size_t kOfResult = 2;  // in units; the body needs thrice as much
  const Index rows = static_cast<Index>(kOfResult * FullDevice::unit() / sizeof(double)) / 40;
  SmallModel model, twin;
  CudaGraphCache replay(model.state());
  Index steps = 0;
  const auto step = [&] {
    const Tensor x = numbers(static_cast<double>(++steps));
    const auto body = [&](const std::vector<Tensor>& given) {
      FullDevice::block(3 * kOfResult);
      return Tensor::zeros({rows, 40}, DType::f64, Device::cuda()) + Pair::body(model, given[0]);
    };
    const Tensor y = replay.run("step", only(x), body).to(Device::cpu());
    const Tensor expected = Pair::body(twin, x).to(Device::cpu());
    for (const Index row : {Index{0}, rows - 1}) CHECK(same(reshape(slice(y, 0, row, 1), {40}), expected));
  };
  {
    const FullDevice full(9);  // the graph, and one result
    for (Index i = 0; i < 3; ++i) step();
    check_counts(replay, 1, 1, 1, 0);
    {
      const Handle<Storage> one_result_less = FullDevice::block(kOfResult);
      step();  // neither for a replay nor for a capture's
      check_counts(replay, 2, 2, 1, 2);
    }
    for (Index i = 0; i < 2; ++i) step();
    check_counts(replay, 2, 3, 2, 2);
    CHECK(replay.refusal() == "");
  }
  const FullDevice full(7);  // made where the graph has its memory: the graph gives way
  for (Index i = 0; i < 3; ++i) step();
  CHECK(replay.refusal() == kNoUse);
}

TEST_CASE("running out of memory is the same error as without graphs, and later steps continue") {
  if (!FullDevice::is_possible()) return;
  for (const Index most_graphs : {0, 8}) {
    CAPTURE(most_graphs);
    Pair pair(most_graphs);
    const FullDevice full(kRoom);
    const std::int64_t before = cuda::memory_statistics(0).in_use_bytes;
    for (Index i = 0; i < 4; ++i) pair.step();
    const std::string message = message_of<DeviceError>([] { FullDevice::block(kRoom + 2); });
    CHECK(message.find("[memory] cuda:0 does not have ") == 0);
    CHECK(message.find("; try a smaller batch, --recompute-layers or --precision bf16") != std::string::npos);
    CHECK(cuda::memory_statistics(0).in_use_bytes < before + 8192);
    for (Index i = 0; i < 2; ++i) pair.step();
    most_graphs == 0 ? pair.check(6, 0, 0, 0) : pair.check(1, 2, 3, 1);
  }
}
