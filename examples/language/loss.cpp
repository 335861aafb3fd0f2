#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/examples/language/loss.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <vector>

namespace tapeformer {
namespace {

constexpr std::uint64_t kExactSeed = 0;  // of objectives in exact losses, which do not depend on the run's
constexpr std::uint64_t kEstimateSeed = 0x657374696d617465;  // of estimates, distinct from the run's

/// The half-width of Student's 95 % interval, in standard errors: from a table for few degrees of freedom,
/// else by an expansion.
double student_t(Index freedom) {
  constexpr double kTable[] = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262};
  const auto n = static_cast<double>(freedom);
  return freedom <= static_cast<Index>(std::size(kTable)) ? kTable[freedom - 1]
                                                          : 1.96 + (2.372 + (2.82 + 2.56 / n) / n) / n;
}

/// Cuts the rows at document ends, and joins them to one. The number of starts is the largest possible, so
/// that all batches of a shape are alike; unused starts are the end of the row.
PackedDocuments set_documents_apart(TokenBatch& batch, std::int32_t document_end) {
  const Index length = batch.inputs.size(1), tokens = batch.inputs.elements();
  batch = {reshape(batch.inputs, {1, tokens}), reshape(batch.targets, {1, tokens})};
  const PackedDocuments documents{Tensor::empty({tokens + 1}, DType::i32, Device::cpu()),
                                  Tensor::empty({1, tokens}, DType::i32, Device::cpu())};
  const std::int32_t* const ids = batch.inputs.data<std::int32_t>();
  std::int32_t *const targets = batch.targets.data<std::int32_t>(),
                      *start = documents.starts.data<std::int32_t>(),
                      *const positions = documents.positions.data<std::int32_t>();
  std::fill_n(start, tokens + 1, static_cast<std::int32_t>(tokens));
  Index first = 0;
  for (Index i = 0; i < tokens; ++i) {
    if (i % length == 0 || ids[i - 1] == document_end) *start++ = static_cast<std::int32_t>(first = i);
    if (ids[i] == document_end) targets[i] = -1;  // the next document's first token
    positions[i] = static_cast<std::int32_t>(i - first);
  }
  return documents;
}

}  // namespace

Batch language_batch(const DecoderOnlyConfig& config, TokenBatch batch, std::uint64_t seed, Index first,
                     std::optional<std::int32_t> document_end, std::int32_t mask) {
  PackedDocuments documents;
  const ObjectiveDraw draw{seed, first, batch.inputs.size(1), config.vocabulary, mask};
  if (document_end) documents = set_documents_apart(batch, *document_end);
  const Tensor prefix_lengths = objective_of(config).prepare(batch, draw);
  const std::int32_t* const targets = batch.targets.data<std::int32_t>();
  const Index all = batch.targets.elements(), counted = all - std::count(targets, targets + all, -1);
  return {{batch.inputs, batch.targets, prefix_lengths, documents.starts, documents.positions},
          counted,
          counted > 0 ? all : 0};
}

void ignore_targets(Batch& batch) {
  std::fill_n(batch.tensors[1].data<std::int32_t>(), batch.tensors[1].elements(), -1);
  batch.counted = batch.tokens = 0;
}

Tensor language_loss(const DecoderOnly& model, const Batch& batch, const HeadLossConfig& head) {
  const std::vector<Tensor>& x = batch.tensors;
  return model.loss(x[0], x[1], x[2], head, {x[3], x[4]});
}

std::string EstimatedLoss::error_text() const {
  return batches < 2 ? "" : format(" ± {:.4f}", student_t(batches - 1) * standard_error);
}

/// Accumulates the losses of batches, of which each rank computes its share of the rows.
class LanguageMeasure::Sum {
 public:
  Sum(const LanguageMeasure& measure, DecoderOnly& model, Communicator& ranks)
      : measure_(measure), model_(model), ranks_(ranks), evaluation_(model) {}

  /// Adds a batch of `rows` rows, the first of which has the number `first` among all.
  void add(Index rows, std::uint64_t seed, Index first, const ReadRows& read) {
    const Share share = share_of(rows, ranks_.rank(), ranks_.size());
    if (share.size() == 0) {
      sums_.insert(sums_.end(), {0, 0, 0, 0});
      return;
    }
    const Batch batch = language_batch(model_.config(), read(share), seed, first + share.begin,
                                       measure_.document_end_, measure_.mask_);
    const double loss = language_loss(model_, batch.to(model_.device()), measure_.head_).item();
    const std::int32_t* const inputs = batch.tensors[0].data<std::int32_t>();
    const std::int32_t* const targets = batch.tensors[1].data<std::int32_t>();
    TextSize text;
    // A loss per byte would mean nothing for masked tokens, which do not make up a text.
    for (Index i = 0; i < batch.tensors[1].elements() && !model_.config().bidirectional; ++i) {
      if (targets[i] < 0) continue;
      const TokenText &token = measure_.texts_[static_cast<std::size_t>(targets[i])],
                      &before = measure_.texts_[static_cast<std::size_t>(inputs[i])];
      text += before.ends_with_white_space ? token.after_white_space : token.after_word;
    }
    const auto counted = static_cast<double>(batch.counted);
    sums_.insert(sums_.end(),
                 {loss * counted, counted, static_cast<double>(text.bytes), static_cast<double>(text.words)});
  }
  /// The mean, with the standard error from the variation between batches. All ranks must call it.
  EstimatedLoss mean() const {
    const std::vector<double> sums = ranks_.sum(sums_);
    double nats = 0, tokens = 0, bytes = 0, words = 0, count = 0, mean = 0, squares = 0;
    for (auto batch = sums.begin(); batch != sums.end(); batch += 4) {
      if (batch[1] == 0) continue;  // no answers
      nats += batch[0];
      tokens += batch[1];
      bytes += batch[2];
      words += batch[3];
      const double loss = batch[0] / batch[1], deviation = loss - mean;  // Welford's sums
      mean += deviation / ++count;
      squares += deviation * (loss - mean);
    }
    if (tokens == 0)
      throw DataError(measure_.file().path(), 0,
                      "has no answer or masked token in the rows that were measured; try a longer text, or "
                      "more --validation-batches");
    return {{nats, tokens, {static_cast<Index>(bytes), static_cast<Index>(words)}},
            static_cast<Index>(count),
            count < 2 ? 0 : std::sqrt(squares / (count - 1) / count)};
  }

 private:
  const LanguageMeasure& measure_;
  DecoderOnly& model_;
  Communicator& ranks_;
  const Evaluation evaluation_;
  std::vector<double> sums_;  // of each batch: nats, tokens that count, their bytes and words
};

LanguageMeasure::LanguageMeasure(TokenFile file, const Tokenizer& tokenizer, Index rows, Index length,
                                 std::uint64_t seed, const HeadLossConfig& head,
                                 std::optional<std::int32_t> document_end)
    : windows_(file, std::clamp<Index>(length, 1, std::max<Index>(1, file.size() - 1)), WindowOrder::random,
               seed ^ kEstimateSeed),
      rows_(rows),
      length_(length),
      seed_(seed),
      head_(head),
      document_end_(document_end),
      mask_(mask_token(tokenizer)) {
  for (Index id = 0; id < file.vocabulary(); ++id) {
    const bool known = id < tokenizer.vocabulary_size();  // others round up the model's size
    const std::string text = known ? tokenizer.bytes_of(static_cast<std::int32_t>(id)) : "";
    texts_.push_back(
        {size_of_text(text, false), size_of_text(text, true), text.empty() || is_white_space(text.back())});
  }
}

TextLoss LanguageMeasure::exact(DecoderOnly& model, Progress& progress, const Check& check,
                                Communicator& ranks) const {
  Sum sum(*this, model, ranks);
  Index windows = 0;
  for_each_window(file(), length_, rows_, [&](Index rows, const ReadRows& read) {
    if (check) check();
    sum.add(rows, kExactSeed, windows, read);
    windows += rows;
    const Index targets = file().size() - 1, seen = std::min(windows * length_, targets);
    progress.status("validating " + count_text(seen) + "/" + count_text(targets) + " tokens");
  });
  return sum.mean();
}

EstimatedLoss LanguageMeasure::estimate(DecoderOnly& model, Index batches, Progress& progress,
                                        const Check& check, Communicator& ranks) const {
  Sum sum(*this, model, ranks);
  for (Index i = 0; i < batches; ++i) {
    if (check) check();
    sum.add(rows_, seed_, i * rows_, [&](Share share) { return windows_.batch(i, rows_, share); });
    progress.status(format("validating {}/{}", i + 1, batches));
  }
  return sum.mean();
}

double LanguageMeasure::trial(DecoderOnly& model, Index number, Index rows) const {
  const Evaluation evaluation(model);
  const Tensor ids = windows_.batch(number, rows_, {0, rows}).inputs.to(model.device());
  return model.loss(ids, ids, {}, head_).item();
}

}  // namespace tapeformer
