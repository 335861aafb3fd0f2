#include <doctest/doctest.h>
#include <tapeformer/autograd/communication/data_parallel.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/tests/autograd/communication/ranks_case.h>
#include <tapeformer/tests/reference/support.h>
#include <tapeformer/tests/reference/thread_communicator.h>

using namespace tapeformer;
using reference::as_ranks;

namespace {

using Log = std::vector<std::string>;

/// One of two ranks with the same tensors: sums are twice as large. Notes the calls that start.
class Twins : public Communicator {
 public:
  explicit Twins(Log& log) : Communicator(0, 2), log_(log) {}

 protected:
  Communication start(const Request& request) override {
    log_.push_back(std::string(name_of(request.collective)) + " " + std::to_string(request.x.elements()));
    class Doubled : public Communication::State {
     public:
      explicit Doubled(Tensor x) : x_(std::move(x)) {}
      void wait() override { x_.copy_from(x_ + x_); }

     private:
      Tensor x_;
    };
    const bool sums =
        request.collective == Collective::all_reduce || request.collective == Collective::reduce_scatter;
    return sums ? Communication(std::make_shared<Doubled>(request.x)) : Communication();
  }

 private:
  Log& log_;
};

/// x, whose backward is noted.
Tensor noted(const Tensor& x, const char* name, Log& log) {
  const Tensor y = x.clone();
  return record("noted", {x}, {}, y, [name, &log](const Tensor& dy, const Gradients& into) {
    log.emplace_back(name);
    into[0] += dy;
  });
}

void* address(const Tensor& x) { return x.state()->storage->data; }

}  // namespace

TEST_CASE("buckets are sent in order while backward continues") {
  Log log;
  const Tensor x = Tensor::full({1}, 2, DType::f64);
  const Parameter first(Tensor::full({4}, 1, DType::f64)), second(Tensor::full({20}, 1, DType::f64)),
      third(Tensor::full({40}, 1, DType::f64));
  const auto pass = [&](DataParallel& parallel) {
    Tape tape;
    const Tensor a = noted(sum(x * first), "first", log), b = noted(sum(a * second), "second", log);
    const Tensor loss = noted(sum(b * third), "third", log);
    parallel.sum_during(tape);
    log.clear();
    tape.backward(loss);
    log.emplace_back("end");
    parallel.finish();
  };
  {
    DataParallel parallel(std::make_shared<Twins>(log), {first, second, third}, {64, false});
    for (int step = 0; step < 2; ++step) {
      pass(parallel);
      CHECK(log == Log{"third", "all_reduce 48", "second", "all_reduce 32", "first", "all_reduce 16", "end"});
      CHECK(third.gradient().at(39) == 2 * 160);
      CHECK(first.gradient().at(0) == 2 * 2 * 20 * 40);
      for (Parameter parameter : {first, second, third}) parameter.clear_gradient();
    }
  }
  {
    DataParallel parallel(std::make_shared<Twins>(log), {first, third, second}, {64, false});
    pass(parallel);
    CHECK(log == Log{"third", "second", "all_reduce 32", "all_reduce 48", "first", "all_reduce 16", "end"});
  }
  {  // frozen parameters are not waited for; parameters that the loss does not depend on are
    Parameter frozen(Tensor::full({60}, 1, DType::f64)), unused(Tensor::full({80}, 1, DType::f64));
    frozen.set_trainable(false);
    DataParallel parallel(std::make_shared<Twins>(log), {first, unused, second, third, frozen}, {64, false});
    pass(parallel);
    CHECK(log == Log{"third", "all_reduce 64", "all_reduce 48", "second", "all_reduce 32", "first", "end",
                     "all_reduce 80", "all_reduce 16"});
    CHECK_FALSE(frozen.gradient().defined());
  }
}

TEST_CASE("a parameter without a gradient counts as zeros and has none afterwards") {
  as_ranks(2, [](Communicator& ranks) {
    Parameter used(numbers({3}, 1)), sometimes(numbers({3}, 2));
    DataParallel parallel(reference::borrowed(ranks), {used, sometimes});
    for (int step = 0; step < 3; ++step) {
      Tape tape;
      // Rank 1 leaves it out in the second step.
      const bool takes = step != 1 || ranks.rank() == 0;
      const Tensor loss = takes ? sum(used * sometimes) : sum(used * used);
      parallel.sum_during(tape);
      tape.backward(loss);
      parallel.finish();
      CHECK(sometimes.gradient().defined() == takes);
      if (takes) CHECK(sometimes.gradient().at(2) == (step == 1 ? 1 : 2) * used.value().at(2));
      used.clear_gradient();
      sometimes.clear_gradient();
    }
  });
}

TEST_CASE("several passes before a step are summed over ranks once") {
  as_ranks(3, [](Communicator& ranks) {
    const Parameter x(numbers({5}, 1));
    DataParallel parallel(reference::borrowed(ranks), {x});
    for (const int part : {1, 2}) {
      Tape tape;
      const Tensor loss = sum(x * static_cast<double>(part * (ranks.rank() + 1)));
      if (part == 2) parallel.sum_during(tape);
      tape.backward(loss);
    }
    parallel.finish();
    CHECK(x.gradient().at(4) == (1 + 2) * (1 + 2 + 3));
  });
  as_ranks(2, [](Communicator& ranks) {  // or after the last of them
    const Parameter x(numbers({5}, 1));
    DataParallel parallel(reference::borrowed(ranks), {x});
    Tape tape;
    tape.backward(sum(x * static_cast<double>(ranks.rank() + 1)));
    parallel.finish();
    CHECK(x.gradient().at(4) == 3);
  });
}

TEST_CASE("buckets hold parameters one after the other, from the last to the first, aligned") {
  Log log;
  const auto of = [](Index count, DType type) { return Parameter(Tensor::full({count}, 1, type)); };
  const Parameter one = of(1, DType::f32), few = of(17, DType::f32), other = of(9, DType::f64),
                  none = of(0, DType::f64), many = of(300, DType::f32), last = of(2, DType::f32);
  DataParallel parallel(std::make_shared<Twins>(log), {last, many, none, other, few, one}, {1024, false});
  // 64 + 128 bytes, then another type, then more than a bucket holds.
  CHECK(log == Log{"broadcast 64", "broadcast 16", "broadcast 320", "broadcast 32"});
  const auto base = static_cast<char*>(address(one.value()));
  CHECK(address(few.value()) == base + 64);
  CHECK(reinterpret_cast<std::uintptr_t>(base) % 64 == 0);
  for (const Parameter& parameter : {one, few, other, none, many, last}) {
    const ParameterState& state = *parameter.state();
    CHECK(reinterpret_cast<std::uintptr_t>(address(state.value)) % 64 == 0);
    CHECK(reinterpret_cast<std::uintptr_t>(address(state.gradient)) % 64 == 0);
    CHECK(state.value.device() == default_device());
    CHECK(state.gradient.device() == default_device());
    CHECK_FALSE(parameter.gradient().defined());
    CHECK(state.updated.end == state.value.elements());
  }
}

TEST_CASE("views outlive what made them") {
  Log log;
  const Parameter x(numbers({3}, 1));
  const double before = x.value().at(2);
  { const DataParallel parallel(std::make_shared<Twins>(log), {x}); }
  const Tensor of_its_size = Tensor::zeros({16}, DType::f64, Device::cpu());
  CHECK(x.value().at(2) == before);
}

TEST_CASE("all ranks begin with the bits of rank 0, names, types and shadows") {
  as_ranks(3, [](Communicator& ranks) {
    RanksCase model(DType::f32, ranks.rank());
    const RanksCase expected(DType::f32, 0);
    model.wide.set_shadow(DType::bf16);
    const DataParallel parallel(reference::borrowed(ranks), model.parameters());
    for (std::size_t i = 0; i < 5; ++i) {
      const Parameter own = model.parameters()[i], of_first = expected.parameters()[i];
      CHECK(absolute_error(own.value(), of_first.value()) == 0);
      CHECK(own.value().describe() == of_first.value().describe());
    }
    CHECK(model.wide.used().dtype() == DType::bf16);
    CHECK(absolute_error(model.wide.used().to(DType::f32),
                         expected.wide.value().to(DType::bf16).to(DType::f32)) == 0);
  });
}

TEST_CASE("with one rank nothing is moved and nothing is done") {
  Parameter x(Tensor::full({3}, 2, DType::f64));
  const void* before = address(x.value());
  DataParallel parallel(communicator_alone(), {x}, {64, true});
  CHECK(address(x.value()) == before);
  CHECK_FALSE(x.state()->gradient.defined());
  CHECK_FALSE(parallel.is_sharded());
  Tape tape;
  const Tensor loss = sum(x * x);
  parallel.sum_during(tape);
  tape.backward(loss);
  parallel.finish();
  parallel.gather_values();
  CHECK(x.gradient().at(0) == 4);
  CHECK(x.state()->updated.end == 3);
}

TEST_CASE("parameters that cannot be laid out, or have moved, are refused") {
  Log log;
  const auto ranks = std::make_shared<Twins>(log);
  Parameter x(Tensor::full({3}, 1, DType::f64));
  CHECK_THROWS_WITH_AS(DataParallel(ranks, {x, x}),
                       "[data_parallel] a parameter must be given only once; got f64[3] twice", Error);
  CHECK_THROWS_WITH_AS(DataParallel(ranks, {Parameter(Tensor::zeros({2}, DType::bf16))}),
                       "[data_parallel] parameters must be f32 or f64; got bf16[2]; try f32 with "
                       "set_shadow(DType::bf16)",
                       DTypeError);
  CHECK_THROWS_WITH_AS(
      DataParallel(ranks, {x}, {0, false}),
      "[data_parallel] a bucket's size must be positive; got bucket_bytes=0; try the default, 25 MiB", Error);
  const std::string moved =
      "[data_parallel] a parameter's value and gradient must stay in their bucket's memory; got others for "
      "f64[3] (x); try value().copy_from(), or set_value() before DataParallel and the optimizer are made";
  x.set_name("x");
  {
    DataParallel parallel(ranks, {x});
    x.set_value(Tensor::full({3}, 2, DType::f64));
    CHECK(message_of<Error>([&] { parallel.finish(); }) == moved);
  }
  {
    DataParallel parallel(ranks, {x});
    x.state()->gradient = Tensor::full({3}, 2, DType::f64);
    CHECK(message_of<Error>([&] { parallel.finish(); }) == moved);
  }
  DataParallel parallel(ranks, {x});
  const auto pass = [&] {
    Tape tape;
    const Tensor loss = sum(x * x);
    parallel.sum_during(tape);
    tape.backward(loss);
  };
  pass();
  CHECK(message_of<Error>(pass) ==
        "[data_parallel] a gradient must not change once its sum has started; got another for f64[3] (x); "
        "try finish() after each backward that sums, and sum_during() only in the last of several passes");
}
