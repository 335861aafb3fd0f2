#include <tapeformer/autograd/tape.h>
#include <tapeformer/data/hash.h>
#include <tapeformer/examples/language/loss.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace tapeformer {
namespace {

constexpr std::uint64_t kPrefixSeed = 0x707265666978;  // of prefix lengths, distinct from the windows'
constexpr std::uint64_t kExactSeed = 0;  // of prefixes in exact losses, which must not depend on the seed
constexpr std::uint64_t kEstimateSeed = 0x657374696d617465;  // of estimates, distinct from the training's

}  // namespace

LanguageBatch language_batch(const DecoderOnlyConfig& config, TokenBatch batch, std::uint64_t seed,
                             Index first) {
  LanguageBatch result{std::move(batch.inputs), std::move(batch.targets), {}, 0};
  const Index rows = result.inputs.size(0), length = result.inputs.size(1);
  result.counted = rows * length;
  if (!config.prefix) return result;
  result.prefix_lengths = Tensor::empty({rows}, DType::i32, Device::cpu());
  std::int32_t* const targets = result.targets.data<std::int32_t>();
  for (Index row = 0; row < rows; ++row) {
    const auto place = static_cast<std::uint64_t>(first + row);
    const auto choices = static_cast<std::uint64_t>(std::max<Index>(1, length - 1));
    const auto prefix = static_cast<Index>(1 + bounded(mix_bits(seed ^ kPrefixSeed, place), choices));
    result.prefix_lengths.data<std::int32_t>()[row] = static_cast<std::int32_t>(prefix);
    // The last token of the prompt predicts the first one after it.
    std::fill_n(targets + row * length, prefix - 1, -1);
    result.counted -= prefix - 1;
  }
  return result;
}

LanguageBatch LanguageBatch::to(Device device) const {
  const Tensor lengths = prefix_lengths.defined() ? prefix_lengths.to(device) : prefix_lengths;
  return {inputs.to(device), targets.to(device), lengths, counted};
}

double MeanLoss::bits_per_byte() const {
  return nats * static_cast<double>(tokens) / (std::log(2.0) * static_cast<double>(bytes));
}

std::string MeanLoss::error_text() const { return batches < 2 ? "" : format(" ± %.4f", standard_error); }

/// Accumulates the losses of batches.
class LanguageMeasure::Sum {
 public:
  Sum(const LanguageMeasure& measure, DecoderOnly& model) : measure_(measure), model_(model) {
    model_.eval();
  }
  ~Sum() { model_.train(); }
  Sum(const Sum&) = delete;
  Sum& operator=(const Sum&) = delete;

  void add(TokenBatch tokens, std::uint64_t seed, Index first) {
    const LanguageBatch batch = language_batch(model_.config(), std::move(tokens), seed, first);
    const LanguageBatch there = batch.to(model_.device());
    const double loss = model_.loss(there.inputs, there.targets, there.prefix_lengths, measure_.head_).item();
    const std::int32_t* const targets = batch.targets.data<std::int32_t>();
    for (Index i = 0; i < batch.targets.elements(); ++i)
      bytes_ += targets[i] < 0 ? 0 : measure_.bytes_of_[static_cast<std::size_t>(targets[i])];
    nats_ += loss * static_cast<double>(batch.counted);
    tokens_ += batch.counted;
    ++batches_;
    const double deviation = loss - mean_;  // Welford's sums: memory stays constant
    mean_ += deviation / static_cast<double>(batches_);
    squares_ += deviation * (loss - mean_);
  }
  MeanLoss mean() const { return {nats_ / static_cast<double>(tokens_), tokens_, bytes_, 0, 0}; }
  /// The standard error of the mean, from the variation between batches.
  double standard_error() const {
    if (batches_ < 2) return 0;
    const auto count = static_cast<double>(batches_);
    return std::sqrt(squares_ / (count - 1) / count);
  }

 private:
  const LanguageMeasure& measure_;
  DecoderOnly& model_;
  const NoGradGuard pause_;
  double nats_ = 0;
  Index tokens_ = 0, bytes_ = 0, batches_ = 0;
  double mean_ = 0, squares_ = 0;  // of the batches' losses; squared deviations
};

LanguageMeasure::LanguageMeasure(TokenFile file, const TextTokenizer& tokenizer, Index rows, Index length,
                                 std::uint64_t seed, const HeadLossConfig& head)
    : windows_(file, std::clamp<Index>(length, 1, std::max<Index>(1, file.size() - 1)), WindowOrder::random,
               seed ^ kEstimateSeed),
      rows_(rows),
      length_(length),
      seed_(seed),
      head_(head) {
  for (Index id = 0; id < file.vocabulary(); ++id) {
    const bool known = id < tokenizer.vocabulary_size();  // others round up the model's size
    bytes_of_.push_back(known ? static_cast<Index>(tokenizer.bytes_of(static_cast<std::int32_t>(id)).size())
                              : 0);
  }
}

MeanLoss LanguageMeasure::exact(DecoderOnly& model, Progress& progress, const Check& check) const {
  Sum sum(*this, model);
  Index windows = 0, seen = 0;
  for_each_window(file(), length_, rows_, [&](const TokenBatch& batch) {
    if (check) check();
    seen += batch.inputs.elements();
    sum.add(batch, kExactSeed, windows);
    windows += batch.inputs.size(0);
    progress.show("validating " + count_text(seen) + "/" + count_text(file().size() - 1) + " tokens");
  });
  return sum.mean();
}

MeanLoss LanguageMeasure::estimate(DecoderOnly& model, Index batches, Index number, Progress& progress,
                                   const Check& check) const {
  Sum sum(*this, model);
  for (Index i = 0; i < batches; ++i) {
    if (check) check();
    const Index drawn = number * batches + i;
    sum.add(windows_.batch(drawn, rows_), seed_, drawn * rows_);
    progress.show("validating " + std::to_string(i + 1) + "/" + std::to_string(batches));
  }
  MeanLoss result = sum.mean();
  result.batches = batches;
  result.standard_error = sum.standard_error();
  return result;
}

}  // namespace tapeformer
