#include <doctest/doctest.h>
#include <tapeformer/autograd/cuda_graph_cache.h>
#include <tapeformer/autograd/device.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/autograd/profile.h>
#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/nn/transformer/decoder_only.h>
#include <tapeformer/tests/autograd/kernels/cuda_case.h>
#include <tapeformer/tests/nn/cuda_graph_case.h>
#include <tapeformer/tests/reference/support.h>

#include <functional>

using namespace tapeformer;

TEST_CASE("on the CPU, and for a model without parameters, the body runs each time") {
  DecoderOnlyConfig config;
  config.vocabulary = 11, config.context = 8, config.layers = 1, config.attention.heads = 1, config.width = 4;
  config.feed_forward = 4;
  auto model = fresh_module<DecoderOnly>(config);
  model.to(Device::cpu());
  CudaGraphCache replay(model.state());
  Index ran = 0;
  for (Index i = 0; i < 4; ++i) {
    const Tensor x = Tensor::full({2}, static_cast<double>(i), DType::f64, Device::cpu());
    const Tensor y = replay.run("double", {x}, [&](const std::vector<Tensor>& given) {
      ++ran;
      return given[0] + given[0];
    });
    CHECK(y.at(1) == static_cast<double>(2 * i));
  }
  CHECK(ran == 4);
  CHECK(replay.counts().run == 4);
  CHECK(replay.counts().captured == 0);
  CHECK(replay.refusal().empty());
}

TEST_CASE("a frozen parameter, other weights, another mode and another tag are other keys") {
  if (!has_gpu()) return;
  SmallModel model;
  CudaGraphCache replay(model.state());
  const auto doubled = [&](const std::string& tag = "a") {
    return replay
        .run(tag, only(numbers(1)), [&](const std::vector<Tensor>& x) { return model.weight.value() * x[0]; })
        .at(7);
  };
  const auto captured = [&] { return replay.counts().captured; };
  for (Index i = 0; i < 3; ++i) CHECK(doubled() == 3);
  CHECK(captured() == 1);
  model.weight.set_value(numbers(4));
  for (Index i = 0; i < 3; ++i) CHECK(doubled() == 4);
  CHECK(captured() == 2);
  model.weight.set_trainable(false);
  for (Index i = 0; i < 2; ++i) doubled();
  CHECK(captured() == 3);
  model.eval();
  for (Index i = 0; i < 2; ++i) doubled();
  CHECK(captured() == 4);
  for (Index i = 0; i < 2; ++i) doubled("b");
  CHECK(captured() == 5);
  set_matmul_precision(MatmulPrecision::tf32);
  for (Index i = 0; i < 2; ++i) doubled("b");
  set_matmul_precision(MatmulPrecision::f32);
  CHECK(captured() == 6);
}

TEST_CASE("a result stays what it is when its graph runs again") {
  if (!has_gpu()) return;
  SmallModel model;
  CudaGraphCache replay(model.state());
  std::vector<Tensor> results;
  for (Index i = 0; i < 5; ++i) {
    results.push_back(replay.run("double", only(numbers(static_cast<double>(i))),
                                 [](const std::vector<Tensor>& x) { return x[0] + x[0]; }));
  }
  for (std::size_t i = 0; i < 5; ++i) CHECK(results[i].at(39) == 2 * static_cast<double>(i));
  CHECK(replay.counts().replayed == 3);
}

TEST_CASE("a body that waits, reads back or copies runs without a graph, once and with the same draws") {
  if (!has_gpu()) return;
  using Work = std::function<void(const Tensor&)>;
  const std::vector<std::pair<const char*, Work>> all = {
      {"read", [](const Tensor& x) { x.at(0); }},
      {"read", [](const Tensor& x) { x.to(Device::cpu()); }},
      {"waiting", [](const Tensor&) { cuda::synchronize(0); }},
      {"upload", [](const Tensor&) { Tensor::zeros({3}, DType::f32, Device::cpu()).to(Device::cuda()); }},
      {"upload",
       [](const Tensor& x) { x.clone().copy_from(Tensor::full({40}, 1, DType::f64, Device::cpu())); }},
      {"draws of a layer", [](const Tensor& x) {
         Generator random(test_seed(1));
         Dropout({0.5}, random)(x);
       }}};
  for (const auto& [name, work] : all) {
    const std::string what = name;
    CAPTURE(what);
    SmallModel model, twin;
    CudaGraphCache replay(model.state());
    for (Index i = 0; i < 4; ++i) {
      const Tensor x = numbers(static_cast<double>(i + 1));
      const auto body = [&, &job = work](SmallModel& m, const Tensor& given) {
        const Tensor y = m.dropout(given) + m.weight.value();
        job(given);
        return y;
      };
      const Tensor y =
          replay.run("x", only(x), [&](const std::vector<Tensor>& given) { return body(model, given[0]); });
      CHECK(same(y, body(twin, x)));
    }
    CHECK(replay.counts().run == 4);
    CHECK(replay.counts().captured == 0);
    CHECK(replay.refusal().find(what) != std::string::npos);
    CHECK(*model.named_counters()[0].second == 4);
  }
}

TEST_CASE("a body that is refused after its reverse pass adds its gradients once") {
  if (!has_gpu()) return;
  SmallModel model(0);
  CudaGraphCache replay(model.state());
  for (Index i = 0; i < 4; ++i) {
    model.clear_gradients();
    replay.run("x", only(numbers(static_cast<double>(i))), [&](const std::vector<Tensor>& x) {
      Tape tape;
      const Tensor y = sum(x[0] * model.weight);
      tape.backward(y);
      y.item();
      return y;
    });
    CHECK(same(model.weight.gradient(), numbers(static_cast<double>(i))));
  }
  CHECK(replay.counts().run == 4);
}

TEST_CASE("a body without a result runs without a graph") {
  if (!has_gpu()) return;
  SmallModel model;
  CudaGraphCache replay(model.state());
  for (Index i = 0; i < 3; ++i)
    replay.run("nothing", only(numbers(1)), [](const std::vector<Tensor>&) { return Tensor(); });
  CHECK(replay.counts().run == 3);
  CHECK(replay.refusal() == "[cuda] a graph needs a result; got none");
}

TEST_CASE("tensors that a body keeps are right, and from then on it runs without a graph") {
  if (!has_gpu()) return;
  SmallModel model;
  CudaGraphCache replay(model.state());
  std::vector<Tensor> kept;
  for (Index i = 0; i < 4; ++i) {
    const Tensor y =
        replay.run("keeps", only(numbers(static_cast<double>(i))), [&](const std::vector<Tensor>& x) {
          kept.push_back(x[0] + x[0]);
          return kept.back() + x[0];
        });
    CHECK(y.at(3) == 3 * static_cast<double>(i));
  }
  // Another graph in the same memory.
  for (Index i = 0; i < 3; ++i)
    replay.run("other", only(numbers(9)), [](const std::vector<Tensor>& x) { return x[0] * x[0] + x[0]; });
  REQUIRE(kept.size() == 4);
  for (std::size_t i = 0; i < 4; ++i) CHECK(kept[i].at(3) == 2 * static_cast<double>(i));
  CHECK(replay.refusal().find("keeps memory of its own; kept 512 bytes") != std::string::npos);
  CHECK(replay.counts().run == 4);
}

TEST_CASE("memory from outside that a graph uses lives as long as the graph") {
  if (!has_gpu()) return;
  SmallModel model;
  CudaGraphCache replay(model.state());
  Tensor table = numbers(10);
  const auto run = [&] {
    return replay
        .run("table", only(numbers(1)),
             [held = table.state()->storage](const std::vector<Tensor>& x) {
               return x[0] + Tensor::adopt(held, {40}, DType::f64);
             })
        .at(5);
  };
  for (Index i = 0; i < 2; ++i) CHECK(run() == 11);
  const Handle<Storage> storage = table.state()->storage;
  CHECK(storage->references == 3);  // the table, this one and the graph
}

TEST_CASE("an exception from a body is passed on and leaves everything as it was") {
  if (!has_gpu()) return;
  SmallModel model;
  CudaGraphCache replay(model.state());
  bool fails = false;
  const auto run = [&] {
    return replay.run("x", only(numbers(1)), [&](const std::vector<Tensor>& x) {
      Tape tape;
      const Tensor y = sum(model.dropout(x[0] * model.weight));
      tape.backward(y);
      if (fails) throw ShapeError("[body] no");
      return y;
    });
  };
  run();
  model.clear_gradients();
  run();
  fails = true;
  model.clear_gradients();
  CHECK(message_of<ShapeError>(run) == "[body] no");
  CHECK(*model.named_counters()[0].second == 2);
  CHECK_FALSE(model.weight.gradient().defined());
  fails = false;
  run();
  CHECK(model.weight.gradient().defined());
  CHECK(replay.counts().captured == 1);
}

TEST_CASE("a limited number of graphs is kept; work that is done once makes none") {
  if (!has_gpu()) return;
  SmallModel model;
  CudaGraphCache replay(model.state(), 2);
  const auto run = [&](const std::string& tag) {
    replay.run(tag, only(numbers(1)), [](const std::vector<Tensor>& x) { return x[0] + x[0]; });
  };
  for (const char* tag : {"a", "b", "c", "d"}) run(tag);
  CHECK(replay.counts().captured == 0);
  for (Index i = 0; i < 3; ++i)
    for (const char* tag : {"a", "b", "c", "d"}) run(tag);
  CHECK(replay.counts().captured == 2);
  CHECK(replay.counts().replayed == 4);
  for (Index i = 0; i < 1000; ++i) run("c");  // the others have not run for long
  CHECK(replay.counts().captured == 3);
}

TEST_CASE("under a tape or a profile the body runs as usual") {
  if (!has_gpu()) return;
  SmallModel model;
  CudaGraphCache replay(model.state());
  const auto run = [&] {
    return replay.run("x", only(numbers(1)),
                      [&](const std::vector<Tensor>& x) { return x[0] * model.weight; });
  };
  {
    Tape tape;
    for (Index i = 0; i < 3; ++i) CHECK(tape.tracks(run()));
  }
  {
    const Profile profile;
    for (Index i = 0; i < 3; ++i) run();
    CHECK(profile.lines().size() == 1);
  }
  CHECK(replay.counts().run == 6);
}

TEST_CASE("graphs compute in the same memory, which goes with the last of them") {
  if (!has_gpu()) return;
  SmallModel model;
  cuda::synchronize(0);
  const std::int64_t before = cuda::memory_statistics(0).in_use_bytes;
  {
    CudaGraphCache replay(model.state());
    const Tensor x = Tensor::full({1 << 20}, 1, DType::f64, Device::cuda());
    const std::int64_t input = cuda::memory_statistics(0).in_use_bytes - before;
    std::int64_t after_first = 0;
    for (const char* tag : {"a", "b", "c"}) {
      for (Index i = 0; i < 3; ++i) {
        replay.run(tag, only(x), [](const std::vector<Tensor>& given) {
          Tensor y = given[0];
          for (int round = 0; round < 5; ++round) y = y + given[0];
          return sum(y);
        });
      }
      const std::int64_t now = cuda::memory_statistics(0).in_use_bytes - before;
      if (after_first == 0) after_first = now;
      // The first has brought the graphs' memory, two vectors at a time; each its own input.
      if (std::string(tag) == "a") CHECK(now < 4 * input + (4 << 20));
      if (std::string(tag) == "c") CHECK(now < after_first + 2 * input + (1 << 20));
    }
    CHECK(replay.counts().captured == 3);
  }
  cuda::synchronize(0);
  CHECK(cuda::memory_statistics(0).in_use_bytes == before);
}
