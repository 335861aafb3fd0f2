#include <tapeformer/autograd/config/json.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/examples/report/report_data.h>
#include <tapeformer/examples/shared/option_table.h>
#include <tapeformer/examples/translation/heat_map.h>
#include <tapeformer/examples/translation/run.h>
#include <tapeformer/examples/translation/trainer.h>
#include <tapeformer/nn/formats/ends_with.h>
#include <tapeformer/nn/generation/generate.h>

#include <omp.h>

#include <algorithm>
#include <iterator>

namespace tapeformer {
namespace {

constexpr Index kShownTokens = 24;  // per side, in a report

/// The logit of padding in a model that never writes it; e^-100 is below the rounding of any probability.
constexpr double kNeverLogit = -100;

/// The decoder's table of embeddings, which may be the encoder's too.
Parameter target_embedding(EncoderDecoder& model) {
  Parameter found;
  for (const auto& [name, parameter] : model.named_parameters())
    if (ends_with(name, "coder.embedding.weight")) found = parameter;
  return found;
}

/// The number of tokens that count in the loss of a batch on the CPU.
Index target_tokens(const TranslationBatch& batch) {
  const std::int32_t* ids = batch.target_outputs.data<std::int32_t>();
  return std::count_if(ids, ids + batch.target_outputs.elements(),
                       [](std::int32_t id) { return id != kIgnored; });
}

/// The size of the target sentences of a batch on the CPU, each with a line end.
TextSize size_of_targets(const TranslationBatch& batch, const Tokenizer& words) {
  const Index rows = batch.target_outputs.size(0), length = batch.target_outputs.size(1);
  const std::int32_t* ids = batch.target_outputs.data<std::int32_t>();
  TextSize size;
  for (Index row = 0; row < rows; ++row, ids += length) {
    TokenIds sentence;
    std::copy_if(ids, ids + length, std::back_inserter(sentence),
                 [](std::int32_t id) { return id != kIgnored; });
    if (!sentence.empty()) size += size_of_text(words.decode(sentence) + "\n");
  }
  return size;
}

/// The share of process `rank` in the loss of the first `count` batches, which `ranks` processes divide.
TextLoss sum_losses(EncoderDecoder& model, TranslationBatches& batches, Index count, int rank, int ranks,
                    const Tokenizer& words, Progress& progress) {
  const Evaluation evaluation(model);
  batches.seek({0, 0});
  TextLoss sum;
  CrossEntropyOptions plain;
  plain.ignored = kIgnored;
  for (Index i = 0; i < count; ++i) {
    const TranslationBatch here = batches.next(rank, ranks);
    const auto counted = static_cast<double>(target_tokens(here));
    const TranslationBatch batch = here.to(model.device());
    const Tensor loss =
        model.loss(batch.source_ids, batch.source_mask, batch.target_inputs, batch.target_outputs, plain);
    sum.nats += loss.item() * counted;
    sum.tokens += counted;
    sum.text += size_of_targets(here, words);
    progress.status(format("validating {}/{}", i + 1, count));
  }
  return sum;
}

/// The choices of experts in the first of these batches.
LayerRecord choices_of_experts(EncoderDecoder& model, TranslationBatches& batches) {
  const Evaluation evaluation(model);
  batches.seek({0, 0});
  const TranslationBatch batch = batches.next(0, 1).to(model.device());
  LayerRecord record;
  const Tensor memory = model.encode(batch.source_ids, batch.source_mask, &record);
  model.decode(batch.target_inputs, memory, batch.source_mask, nullptr, &record);
  return record;
}

/// A note on targets that come back changed from their tokens; empty if there are none.
std::string changed_targets_text(const Tokenizer& words, const std::vector<TextPair>& pairs) {
  constexpr std::size_t kMostTried = 1000;
  const std::size_t tried = std::min(kMostTried, pairs.size());
  std::size_t changed = 0;
  std::string example;
  for (std::size_t i = 0; i < tried; ++i) {
    const std::string &target = pairs[i].target, written = words.decode(words.encode(target));
    if (written == target) continue;
    if (changed++ == 0) example = format("\"{}\" comes back as \"{}\"", target, written);
  }
  return changed == 0 ? ""
                      : format("\nnote: the vocabulary changes {} of the first {} targets: {}", changed,
                               tried, example);
}

}  // namespace

TextLoss validation_loss(EncoderDecoder& model, TranslationBatches& batches, const Tokenizer& words,
                         Progress& progress, Communicator& ranks) {
  const TextLoss own =
      sum_losses(model, batches, batches.batches_per_epoch(), ranks.rank(), ranks.size(), words, progress);
  const std::vector<double> all = ranks.sum(
      {own.nats, own.tokens, static_cast<double>(own.text.bytes), static_cast<double>(own.text.words)});
  return {all[0], all[1], {static_cast<Index>(all[2]), static_cast<Index>(all[3])}};
}

std::string left_out_text(const TranslationBatches& batches, const BatchingConfig& config) {
  std::vector<std::string> parts;
  if (batches.dropped() > 0)
    parts.push_back(number_of(batches.dropped(), "pair") + " of more than " +
                    number_of(std::min(config.token_budget, config.max_tokens), "token"));
  if (batches.dropped_empty() > 0)
    parts.push_back(number_of(batches.dropped_empty(), "pair") + " with a side of no tokens");
  return joined(parts, " and ");
}

TranslationTask::TranslationTask(const TranslationOptions& options, Progress& progress) : options_(options) {
  options_.check();
  load_pairs(progress);
  if (options_.from.empty()) {
    progress.status("making the vocabularies");
    vocabularies_ = make_vocabularies(options_, corpus_.train);
    make_batches_and_model(options_.model_config(vocabularies_.source->vocabulary_size(),
                                                 vocabularies_.target->vocabulary_size()),
                           progress);
    if (vocabularies_.frame.begins_zero) start_from_zeros();
    return;
  }
  TranslationRun from = TranslationRun::load(options_.from, 0, options_.sentences);
  vocabularies_ = from.words;
  EncoderDecoderConfig config = from.model.config();
  config.layer.dropout = options_.model.layer.dropout;
  config.layer.attention.index_top_k = options_.model.layer.attention.index_top_k;
  config.layer.attention.index_loss = options_.model.layer.attention.index_loss;
  config.adapter = options_.model.adapter;
  make_batches_and_model(config, progress);
  copy_weights(from.model, *model_);
  progress.log(fine_tuning_text(options_.from, options_, fields_of(options_)) +
               changed_targets_text(*vocabularies_.target, corpus_.train));
}

TranslationTask::TranslationTask(const RunFolder& folder, const Json& checkpoint, Progress& progress)
    : options_(checkpoint.at("options").get<TranslationOptions>()) {
  load_pairs(progress);
  if (checkpoint.at("data_fingerprint").get<std::uint64_t>() != data_fingerprint_) {
    throw DataError(folder.path(), 0,
                    "the data has changed since the checkpoint; restore it, or start again");
  }
  const Json config = folder.config();
  vocabularies_ = Vocabularies::load(folder.path(), config);
  make_batches_and_model(EncoderDecoderConfig::from_json(config.dump()), progress);
}

void TranslationTask::load_pairs(Progress& progress) {
  std::string report;
  corpus_ = load_corpus(options_, report);
  data_fingerprint_ = fingerprint(corpus_);
  progress.log(report);
}

void TranslationTask::make_batches_and_model(const EncoderDecoderConfig& config, Progress& progress) {
  BatchingConfig batching;
  batching.token_budget = options_.batch_tokens;
  batching.max_tokens = options_.model.max_length;
  batching.seed = options_.training.seed;
  batching.frame = vocabularies_.frame;
  const auto batches_of = [&](const std::vector<TextPair>& pairs, const char* part) {
    try {
      return std::make_unique<TranslationBatches>(encode(vocabularies_, pairs), batching);
    } catch (const DataError& error) {
      throw DataError(std::string("the ") + part + " pairs: " + error.what());
    }
  };
  train_batches_ = batches_of(corpus_.train, "training");
  batching.shuffle = false;
  validation_batches_ = batches_of(corpus_.validation, "validation");
  Generator random(options_.training.seed);
  model_ = std::make_unique<EncoderDecoder>(config, random);
  model_->recompute_layers(options_.training.recompute_layers);
  const std::string left_out = left_out_text(*train_batches_, batching);
  progress.log(format("vocabularies of {} and {}; {} parameters; {} per epoch, {:.1f} % padding{}; {}",
                      config.source_vocabulary, number_of(config.target_vocabulary, "piece"),
                      count_text(model_->parameter_count()),
                      number_of(train_batches_->batches_per_epoch(), "batch", "batches"),
                      100 * train_batches_->padding_share(), left_out.empty() ? "" : "; left out " + left_out,
                      number_of(omp_get_max_threads(), "thread")));
}

void TranslationTask::describe(const RunFolder& folder) {
  Json described = parse_json(model_->config().to_json());
  described["training"] = options_;
  described["vocabularies"] = vocabularies_.description();
  described["data_fingerprint"] = data_fingerprint_;
  folder.write("config.json", described.dump(2) + "\n");
  folder.write("source.vocabulary", vocabularies_.source->serialize());
  folder.write("target.vocabulary", vocabularies_.target->serialize());
}

void TranslationTask::save_state(Json& state) const {
  state["options"] = options_;
  state["data_fingerprint"] = data_fingerprint_;
}

Json TranslationTask::conclude(Progress& progress) {
  const TextLoss loss =
      validation_loss(*model_, *validation_batches_, *vocabularies_.target, progress, ranks());
  progress.log("the best weights: " + loss.to_string());
  Json result = {{"best_loss", loss.mean()}};
  for (const auto& [unit, value] : loss.units()) result["best_" + unit] = value;
  return result;
}

Batch TranslationTask::batch(Index number, BatchShare share) {
  const Index per_epoch = train_batches_->batches_per_epoch();
  train_batches_->seek({number / per_epoch, number % per_epoch});
  const TranslationBatch here = train_batches_->next(share.rank, share.ranks);
  const TranslationBatch there = here.to(model_->device());
  return {{there.source_ids, there.source_mask, there.target_inputs, there.target_outputs},
          target_tokens(here),
          here.tokens};
}

Tensor TranslationTask::loss(const Batch& batch) {
  CrossEntropyOptions smoothed;
  smoothed.ignored = kIgnored;
  smoothed.smoothing = options_.label_smoothing;
  const auto &source_ids = batch.tensors[0], &source_mask = batch.tensors[1],
             &target_inputs = batch.tensors[2], &target_outputs = batch.tensors[3];
  return model_->loss(source_ids, source_mask, target_inputs, target_outputs, smoothed);
}

void TranslationTask::start_from_zeros() {
  Parameter embedding = target_embedding(*model_);
  embedding.value().copy_from(without_padding(embedding.value()));
  for (auto& [name, parameter] : model_->named_parameters()) {
    if (name != "head.bias") continue;
    const Tensor bias = parameter.value().clone().to(Device::cpu());
    bias.data<float>()[vocabularies_.target->padding()] = kNeverLogit;
    parameter.value().copy_from(bias);
  }
}

void TranslationTask::adjust_gradients() {
  if (!vocabularies_.frame.begins_zero) return;
  const Parameter embedding = target_embedding(*model_);
  if (Tensor gradient = embedding.gradient(); gradient.defined())
    gradient.copy_from(without_padding(gradient));
}

Tensor TranslationTask::without_padding(const Tensor& rows) {
  const NoGradGuard pause;
  if (!not_padding_.defined() || not_padding_.device() != rows.device()) {
    const Tensor kept = Tensor::full({rows.size(0), 1}, 1, rows.dtype(), Device::cpu());
    kept.data<float>()[vocabularies_.target->padding()] = 0;
    not_padding_ = kept.to(rows.device());
  }
  return rows * not_padding_;
}

Validation TranslationTask::validate(Progress& progress) {
  const TextLoss loss =
      validation_loss(*model_, *validation_batches_, *vocabularies_.target, progress, ranks());
  Validation result{loss.mean(), loss.units(), ""};
  if (const EncoderDecoderConfig& config = model_->config(); config.layer.experts.experts > 0) {
    const auto layer = [&](Index router) {
      const Index in_decoder = router - config.encoder_layers;
      return in_decoder < 0 ? format("encoder.{}", router) : format("decoder.{}", in_decoder);
    };
    result.add_expert_shares(choices_of_experts(*model_, *validation_batches_), layer);
  }
  return result;
}

double TranslationTask::trial_loss(Index, Progress& progress) {
  // The same pairs on every rank, and no more than fit into a step.
  return sum_losses(*model_, *validation_batches_, 1, 0, ranks().size(), *vocabularies_.target, progress)
      .mean();
}

std::vector<std::string> TranslationTask::samples(Index, bool graphs) {
  const auto count =
      std::min<std::size_t>(static_cast<std::size_t>(options_.training.samples), corpus_.validation.size());
  std::vector<TokenIds> sources;
  for (std::size_t i = 0; i < count; ++i) {
    TokenIds& source = sources.emplace_back(vocabularies_.encode_source(corpus_.validation[i].source));
    source.resize(std::min(source.size(), vocabularies_.most_source(options_.model.max_length)));
  }
  SearchConfig search;
  search.graphs = graphs;
  vocabularies_.set_frame(search);
  const Evaluation evaluation(*model_);
  const std::vector<Hypothesis> found = beam_search(*model_, sources, search);
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < count; ++i) {
    const TextPair& pair = corpus_.validation[i];
    texts.push_back(format("{}  →  {}  (reference: {})", pair.source,
                           vocabularies_.target->decode(found[i].tokens), pair.target));
  }
  return texts;
}

Json TranslationTask::attention_example() {
  if (corpus_.validation.empty()) return {};
  const TextPair& pair = corpus_.validation.front();
  const SentenceFrame& frame = vocabularies_.frame;
  TokenIds source = vocabularies_.encode_source(pair.source),
           target = vocabularies_.target->encode(pair.target);
  const auto shorten = [&](TokenIds& ids, Index framed) {
    const Index most = std::min<Index>(kShownTokens, options_.model.max_length - framed);
    ids.resize(std::min(ids.size(), static_cast<std::size_t>(most)));
  };
  shorten(source, frame.source_length(0)), shorten(target, frame.target_length(0));
  source = frame.source(source), target = frame.target(target);
  const Evaluation evaluation(*model_);
  return attention_json(cross_attention_weights(*model_, source, target, frame.begin), "decoder layer",
                        pieces_of(*vocabularies_.target, target), pieces_of(*vocabularies_.source, source));
}

}  // namespace tapeformer
