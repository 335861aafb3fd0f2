#pragma once

#include <tapeformer/autograd/communication/data_parallel.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/matmul.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/optim/adamw.h>
#include <tapeformer/tests/reference/support.h>
#include <tapeformer/tests/reference/thread_communicator.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace tapeformer {

/// Numbers between -1 and 1 that follow from their positions and `seed`, in the CPU's memory: threads play
/// the ranks, and an emulated GPU has only one.
inline Tensor numbers(const Shape& shape, double seed, DType type = DType::f64) {
  const Tensor x = Tensor::empty(shape, DType::f64, Device::cpu());
  for (Index i = 0; i < x.elements(); ++i)
    x.data<double>()[i] =
        std::sin(static_cast<double>(seed_of_tests()) + seed + 12.9898 * static_cast<double>(i + 1));
  return x.to(type);
}

/// A model with parameters of 1 to 45 elements, one of them used twice.
struct RanksCase {
  static constexpr Index kRows = 7;  // of a batch

  explicit RanksCase(DType type, double seed = 0, Device device = Device::cpu())
      : gain(numbers({1}, seed + 1, type).to(device)),
        wide(numbers({5, 9}, seed + 2, type).to(device)),
        bias(numbers({9}, seed + 3, type).to(device)),
        narrow(numbers({9, 3}, seed + 4, type).to(device)),
        back(numbers({5, 3}, seed + 5, type).to(device)) {
    int number = 0;
    for (Parameter& parameter : parameters()) parameter.set_name("p" + std::to_string(number++));
  }
  std::vector<Parameter> parameters() const { return {gain, wide, bias, narrow, back}; }

  /// The first of the rows of rank `rank` of `size`: unequal shares, some of them empty.
  static Index first_row(int rank, int size) { return kRows * rank * rank / (Index{size} * size); }

  /// Runs this rank's rows of a step's batch forward and backward. A rank without rows takes one that counts
  /// as nothing.
  void pass(Communicator& ranks, DataParallel& parallel, int step) const {
    const Tensor& value = gain.value();
    const Index from = first_row(ranks.rank(), ranks.size()),
                rows = first_row(ranks.rank() + 1, ranks.size()) - from;
    const auto own = [&](const Shape& shape, double seed) {
      const Tensor batch = numbers(shape, seed, value.dtype());
      return slice(batch, 0, from, std::max<Index>(rows, 1)).to(value.device()).to(gain.used().dtype());
    };
    const Tensor x = own({kRows, 5}, 10 * step + 6), target = own({kRows, 3}, 10 * step + 7);
    Tape tape;
    const Tensor hidden = tanh(matmul(x, wide) + bias);
    const Tensor y = matmul(hidden, narrow) * gain + matmul(matmul(hidden, transposed(wide)), back);
    const Tensor loss = sum((y - target) * (y - target));
    parallel.sum_during(tape);
    tape.backward(loss, Tensor::scalar_like(loss, rows > 0 ? 1 : 0));
    parallel.finish();
  }

  Parameter gain, wide, bias, narrow, back;
};

struct RanksRun {
  DType type = DType::f64;
  bool sharded = false, in_bf16 = false;  // of f32
  double max_norm = 0.5;
  int from = 0, to = 10;  // steps
  std::function<std::unique_ptr<Optimizer>(const RanksCase&)> make = [](const RanksCase& model) {
    return std::make_unique<AdamW>(model.parameters());
  };
  /// Called on every rank before the first step and after the last one.
  std::function<void(Communicator&, Optimizer&)> before, after;
};

/// max over parameters of max |a - b| / max |b|, on all ranks.
inline double error_of(const std::vector<std::vector<Tensor>>& ranks, const std::vector<Tensor>& expected) {
  double error = 0;
  for (const std::vector<Tensor>& values : ranks)
    for (std::size_t i = 0; i < expected.size(); ++i)
      error = larger(error, relative_error(values[i], expected[i]));
  return error;
}

/// Trains a RanksCase as one rank, from the values of `start` if there are any, and returns its values.
inline std::vector<Tensor> trained_rank(Communicator& ranks, const RanksRun& run,
                                        const std::vector<Tensor>& start = {},
                                        Device device = Device::cpu()) {
  const RanksCase model(run.type, ranks.rank(), device);  // rank 0's parameters count
  for (std::size_t i = 0; i < start.size() && ranks.rank() == 0; ++i)
    model.parameters()[i].value().copy_from(start[i]);
  if (run.in_bf16)
    for (Parameter& parameter : model.parameters()) parameter.set_shadow(DType::bf16);
  DataParallel parallel(reference::borrowed(ranks), model.parameters(), {256, run.sharded});
  const std::unique_ptr<Optimizer> optimizer = run.make(model);
  optimizer->set_shards(parallel);
  if (run.before) run.before(ranks, *optimizer);
  for (int step = run.from; step < run.to; ++step) {
    model.pass(ranks, parallel, step);
    optimizer->clipped_step(0.05, 1.0 / RanksCase::kRows, run.max_norm);
    parallel.gather_values();
    optimizer->clear_gradients();
  }
  if (run.after) run.after(ranks, *optimizer);
  std::vector<Tensor> values;
  parallel.with_whole_values([&] {
    for (const Parameter& parameter : model.parameters())
      values.push_back(parameter.value().to(Device::cpu()).clone());
  });
  return values;
}

/// The values of each of `size` ranks.
inline std::vector<std::vector<Tensor>> trained(int size, const RanksRun& run,
                                                const std::vector<Tensor>& start = {}) {
  std::vector<std::vector<Tensor>> values(static_cast<std::size_t>(size));
  reference::as_ranks(size, [&](Communicator& ranks) {
    values[static_cast<std::size_t>(ranks.rank())] = trained_rank(ranks, run, start);
  });
  return values;
}

}  // namespace tapeformer
