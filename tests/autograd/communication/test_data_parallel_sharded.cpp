#include <doctest/doctest.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/optim/clip.h>
#include <tapeformer/optim/sgd.h>
#include <tapeformer/tests/autograd/communication/ranks_case.h>
#include <tapeformer/tests/optim/optim_case.h>
#include <tapeformer/tests/reference/support.h>

#include <algorithm>
#include <mutex>

using namespace tapeformer;
using reference::as_ranks;

namespace {

RanksRun sharded(DType type = DType::f64, double max_norm = 0.5) {
  RanksRun run;
  run.type = type;
  run.sharded = true;
  run.max_norm = max_norm;
  return run;
}

/// Shows the state of an optimizer.
struct Keeper : Sgd {
  explicit Keeper(std::vector<Parameter> parameters) : Sgd(std::move(parameters), {0.9, 0}) {}
  Index bytes() const {
    Index sum = 0;
    for (const Tensor& tensor : zeros_like_parameters()) sum += tensor.bytes();
    return sum;
  }
};

/// An optimizer of a user's own, with state of one kind and steps that do nothing.
struct Idle : Optimizer {
  Idle(const std::vector<Parameter>& parameters, bool whole, bool directly = false)
      : Optimizer("idle", parameters), shows_directly(directly) {
    if (!whole) state = zeros_like_parameters();
    for (const Parameter& parameter : parameters)
      if (whole) state.push_back(Tensor::zeros(parameter.value().shape(), DType::f64, Device::cpu()));
  }
  void visit_state(OptimizerVisitor& visitor) override {
    if (shows_directly) return visitor.tensor(state_name("state", 2), state[2]);
    visit_tensors(visitor, "state", state);
  }
  void gather(double, MultiTensorList& table) override {
    for (std::size_t i = 0; i < state.size(); ++i) table.add(parameters_[i], state[i], {}, 0);
  }
  void update(const kernels::StepTensors&, const Tensor&) override {}
  bool shows_directly;
  std::vector<Tensor> state;
};

}  // namespace

TEST_CASE("ranks with unequal shares of each batch, or of the optimizer's work, train what one trains") {
  const std::vector<Tensor> alone = trained(1, {})[0];
  for (const int size : {1, 2, 3, 4}) {
    for (const RanksRun& run : {RanksRun(), sharded()}) {
      CAPTURE(size);
      CAPTURE(run.sharded);
      const auto values = trained(size, run);
      CHECK(error_of(values, values[0]) == 0);
      CHECK_BELOW(error_of(values, alone), 1e-12);
    }
  }
}

TEST_CASE("without clipping, shards have the bits of whole parameters, and runs repeat theirs") {
  for (const int size : {2, 3, 4}) {
    RanksRun whole;
    whole.type = DType::f32;
    whole.max_norm = 0;
    CHECK(error_of(trained(size, sharded(DType::f32, 0)), trained(size, whole)[0]) == 0);
    CHECK(error_of(trained(size, sharded(DType::f32)), trained(size, sharded(DType::f32))[0]) == 0);
  }
}

TEST_CASE("the norm is that of all ranks' gradients, but for the rounding of its sum") {
  double alone = 0;
  for (const int size : {1, 2, 3, 4}) {
    as_ranks(size, [&](Communicator& ranks) {
      const RanksCase model(DType::f64);
      DataParallel parallel(reference::borrowed(ranks), model.parameters(), {256, true});
      AdamW optimizer(model.parameters());
      optimizer.set_shards(parallel);
      model.pass(ranks, parallel, 0);
      const double norm = optimizer.clipped_step(0.1, 0.25, 0.5).item();
      if (size == 1) alone = norm;
      // Sums of 101 squares, and a rank's own root and square.
      CHECK_BELOW(std::abs(norm - alone), (101 + 4) * std::ldexp(1, -53) * 2 * alone);
      optimizer.clear_gradients();
      CHECK(optimizer.clipped_step(0.1, 0.25, 0.5).item() == 0);
    });
  }
  CHECK(alone > 0.5);
}

TEST_CASE("a norm that is not finite on one rank changes nothing on any") {
  as_ranks(3, [](Communicator& ranks) {
    const RanksCase model(DType::f64);
    DataParallel parallel(reference::borrowed(ranks), model.parameters(), {256, true});
    AdamW optimizer(model.parameters());
    optimizer.set_shards(parallel);
    const std::vector<double> before = model.wide.value().to_vector<double>();
    model.pass(ranks, parallel, 0);
    if (ranks.rank() == 1) model.wide.gradient().data<double>()[model.wide.state()->updated.begin] = INFINITY;
    CHECK(model.wide.state()->updated.begin < model.wide.state()->updated.end);
    CHECK_FALSE(std::isfinite(optimizer.clipped_step(0.1, 1, 1).item()));
    parallel.gather_values();
    CHECK(model.wide.value().to_vector<double>() == before);
  });
}

TEST_CASE("a checkpoint of several ranks resumes on any number of ranks") {
  OptimizerCopy saved, whole;
  RanksRun first = sharded(), second = sharded(), plain;
  first.to = second.from = 4;
  first.after = [&](Communicator& ranks, Optimizer& optimizer) {
    OptimizerCopy own;
    optimizer.visit_state(own);
    if (ranks.rank() == 1) saved = own;  // as any other
  };
  const std::vector<Tensor> middle = trained(3, first)[2], end = trained(3, sharded())[0];
  plain.to = 4;
  plain.after = [&](Communicator&, Optimizer& optimizer) { optimizer.visit_state(whole); };
  trained(1, plain);
  CHECK(saved.counters == whole.counters);
  REQUIRE(saved.tensors.size() == 10);
  for (const auto& [name, tensor] : saved.tensors) {
    CHECK(tensor.shape() == whole.tensors.at(name).shape());
    CHECK_BELOW(relative_error(tensor, whole.tensors.at(name)), 1e-12);
  }
  const auto resume = [&](Communicator&, Optimizer& optimizer) {
    OptimizerCopy own = saved;
    own.restores = true;
    optimizer.visit_state(own);
  };
  for (const bool divides : {true, false}) {
    for (const int size : {1, 2, 3, 4}) {
      CAPTURE(size);
      RanksRun rest = second;
      rest.sharded = divides;
      rest.before = resume;
      const auto values = trained(size, rest, middle);
      CHECK_BELOW(error_of(values, end), size == 3 && divides ? 0 : 1e-12);
    }
  }
}

TEST_CASE("each rank keeps its share of the state") {
  for (const int size : {2, 3, 4}) {
    Index all = 0, most = 0;
    std::mutex mutex;
    as_ranks(size, [&](Communicator& ranks) {
      const RanksCase model(DType::f64);
      const DataParallel parallel(reference::borrowed(ranks), model.parameters(), {256, true});
      const Index own = Keeper(model.parameters()).bytes();
      const std::lock_guard<std::mutex> lock(mutex);
      all += own;
      most = std::max(most, own);
    });
    CHECK(all == 8 * (1 + 45 + 9 + 27 + 15));
    CHECK(most <= all / size + 5 * 64);  // each parameter begins at a multiple of 64 bytes
  }
}

TEST_CASE("each rank keeps its share of values with a shadow, and trains to the same bits") {
  const auto start = [] { return numbers({50}, 1, DType::f32); };
  const auto trained_with = [&](int size, bool sharded) {
    std::vector<Tensor> result;
    as_ranks(size, [&](Communicator& ranks) {
      Parameter x(start()), plain(numbers({7}, 2, DType::f32));
      x.set_shadow(DType::bf16);
      DataParallel parallel(reference::borrowed(ranks), {x, plain}, {256, sharded});
      AdamW optimizer({x, plain});
      optimizer.set_shards(parallel);
      for (int step = 0; step < 3; ++step) {
        for (const Parameter& parameter : {x, plain}) {
          ParameterState& state = *parameter.state();
          state.gradient.copy_from(numbers(state.gradient.shape(), 3 * step + ranks.rank(), DType::f32));
          state.has_gradient = true;
        }
        parallel.finish();
        optimizer.clipped_step(0.1, 1, 0);
        parallel.gather_values();
      }
      const ParameterState& state = *x.state();
      if (sharded) CHECK((state.share.defined() ? state.share.elements() : 0) == updated_elements(x));
      const Tensor used = x.used().to(DType::f32).clone();
      parallel.with_whole_values([&] {
        CHECK(absolute_error(used, x.value().to(DType::bf16).to(DType::f32)) == 0);
        if (ranks.rank() == size - 1) result = {x.value().clone(), plain.value().clone()};
      });
    });
    return result;
  };
  for (const int size : {2, 3, 4}) {
    CAPTURE(size);
    const auto whole = trained_with(size, false), divided = trained_with(size, true);
    CHECK(absolute_error(whole[0], start()) > 0.1);
    for (std::size_t i = 0; i < 2; ++i) CHECK(absolute_error(whole[i], divided[i]) == 0);
  }
}

TEST_CASE("divided values have memory only while they are whole, and are loaded then") {
  as_ranks(2, [](Communicator& ranks) {
    Parameter x(numbers({50}, 1, DType::f32));
    x.set_name("x");
    x.set_shadow(DType::bf16);
    DataParallel parallel(reference::borrowed(ranks), {x}, {256, true});
    const auto is_refused = [&](const std::function<void()>& use) {
      const std::string message = message_of<Error>(use);
      CHECK(message.find("f32[50] (x), which is divided between processes; try DataParallel::with_whole") !=
            std::string::npos);
    };
    const auto are_refused = [&] {
      is_refused([&] { x.value().at(3); });
      is_refused([&] { x.value().data<float>(); });
      is_refused([&] { x.value().raw(); });
      is_refused([&] { x.value().to(DType::f64); });
      is_refused([&] { x.value().copy_from(numbers({50}, 2, DType::f32)); });
    };
    are_refused();
    const Tensor loaded = numbers({50}, 2, DType::f32);
    CHECK_THROWS_AS(parallel.with_whole_values([&] {
      x.value().copy_from(loaded);
      x.refresh_shadow();
      throw Error("the disk is full");
    }),
                    Error);
    are_refused();
    CHECK(absolute_error(x.used().to(DType::f32), loaded.to(DType::bf16).to(DType::f32)) == 0);
    parallel.with_whole_values([&] { CHECK(absolute_error(x.value(), loaded) == 0); });
    parallel.gather_for_another();
    DataParallel another(reference::borrowed(ranks), {x}, {256, true});
    another.with_whole_values([&] { CHECK(absolute_error(x.value(), loaded) == 0); });
    x.set_value(loaded);  // moves it out of the buckets
    CHECK(x.value().at(3) == loaded.at(3));
    CHECK_THROWS_AS(another.finish(), Error);
  });
}

TEST_CASE("an optimizer of one's own keeps and shows the pieces that the base class makes") {
  as_ranks(2, [](Communicator& ranks) {
    const RanksCase model(DType::f64);
    DataParallel parallel(reference::borrowed(ranks), model.parameters(), {256, true});
    Idle optimizer(model.parameters(), false);
    optimizer.set_shards(parallel);
    for (const Tensor& piece : optimizer.state)
      piece.copy_from(Tensor::full(piece.shape(), ranks.rank() + 1, DType::f64, Device::cpu()));
    OptimizerCopy copy;
    optimizer.visit_state(copy);
    const Tensor wide = copy.tensors.at("idle.state.p1");
    CHECK(wide.shape() == Shape{5, 9});
    const Index border =
        ranks.rank() == 0 ? model.wide.state()->updated.end : model.wide.state()->updated.begin;
    for (Index i = 0; i < 45; ++i) CHECK(wide.at(i) == (i < border ? 1 : 2));
    model.pass(ranks, parallel, 0);
    optimizer.clipped_step(0.1, 1, 0);
  });
}

TEST_CASE("an optimizer that does not know of the shards is refused") {
  const auto step = [](DataParallel&, Optimizer& optimizer) { optimizer.clipped_step(0.1, 1, 1); };
  const auto save = [](DataParallel&, Optimizer& optimizer) {
    OptimizerCopy copy;
    optimizer.visit_state(copy);
  };
  const auto told = [](const auto& use) {
    return [use](DataParallel& parallel, Optimizer& optimizer) {
      optimizer.set_shards(parallel);
      use(parallel, optimizer);
    };
  };
  const std::string untold =
      "[idle] parts divided between ranks must be put together for a norm and for state; got f64[";
  const std::string too_much =
      "[idle] a parameter's state must have the elements that this process updates; got state=f64[";
  const struct {
    bool keeps_whole_state;
    std::function<void(DataParallel&, Optimizer&)> use;
    std::string message;
  } all[] = {
      {false, step, untold},
      {false, save, untold},
      {true, told(step), too_much},
      {true, told(save), too_much},
      {false,
       [](DataParallel& parallel, Optimizer&) {
         Idle({Parameter(numbers({3}, 1))}, false).set_shards(parallel);
       },
       "[idle] ranks must share all parameters of an optimizer; got f64[3], which DataParallel was not"},
      {false,
       [](DataParallel& parallel, Optimizer& optimizer) {
         Idle(optimizer.parameters(), false, true).set_shards(parallel);
       },
       "[set_shards] state that ranks divide must be shown as a whole; got idle.state.p2; try "
       "visit_tensors()"},
      {false, [](DataParallel&, Optimizer& optimizer) { gradient_norm(optimizer.parameters()); },
       "[clip] no rank knows the norm of a gradient that is divided between ranks; got gradient=f64["}};
  for (const auto& each : all) {
    const auto run = [&](Communicator& ranks) {
      const RanksCase model(DType::f64);
      DataParallel parallel(reference::borrowed(ranks), model.parameters(), {256, true});
      Idle optimizer(model.parameters(), each.keeps_whole_state);
      model.pass(ranks, parallel, 0);
      each.use(parallel, optimizer);
    };
    CHECK(message_of<Error>([&] { as_ranks(2, run); }).find(each.message) == 0);
  }
}
