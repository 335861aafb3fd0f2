#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/data/text_stream.h>
#include <tapeformer/examples/language/run.h>
#include <tapeformer/examples/language/tokenizer.h>
#include <tapeformer/examples/language/trainer.h>
#include <tapeformer/examples/report/report_data.h>
#include <tapeformer/examples/shared/option_table.h>
#include <tapeformer/nn/generation/generate_text.h>

#include <omp.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

namespace tapeformer {
namespace {

constexpr Index kPromptTokens = 16, kSampleTokens = 160, kShownTokens = 24;
constexpr double kSampleTemperature = 0.8;

// The cost of a forward pass relative to a whole step, and the shares of a run's time that validations
// may take.
constexpr double kForwardShare = 1.0 / 3, kValidationShare = 0.03, kEstimateShare = 0.005, kEndShare = 0.025;

/// The tokenizer for the weights in options.from: that of --tokenizer-model, else the weights' own, else, if
/// they have none, that of --tokens.
/// Throws: DataError for one that is not the weights' own and has another number of tokens than the model
std::shared_ptr<const Tokenizer> tokenizer_from(const LanguageOptions& options) {
  const std::string &named = options.data.tokenizer_model, &tokens = options.tokens,
                    from = base_of(options.from);
  if (named.empty() && (tokens.empty() || has_tokenizer(from))) return find_tokenizer(from);
  const std::string& path = named.empty() ? tokens : named;
  auto tokenizer = find_tokenizer(path);
  const Index rows = model_config_in(options.from).vocabulary;
  if (tokenizer->vocabulary_size() == rows) return tokenizer;
  throw DataError(
      path, 0,
      format("is a tokenizer of {} tokens, but the model in {} has {}; try the one that it was trained with",
             tokenizer->vocabulary_size(), options.from, rows));
}

/// "1024 tokens per step", or a range if the number changes.
std::string tokens_per_step(const std::vector<BatchShape>& shapes, Index accumulate) {
  std::set<Index> counts;
  for (const BatchShape& shape : shapes) counts.insert(accumulate * shape.rows * shape.context);
  const std::string least = counts.size() > 1 ? std::to_string(*counts.begin()) + " to " : "";
  return least + number_of(*counts.rbegin(), "token") + " per step";
}

}  // namespace

ValidationPlan validation_plan(const LanguageOptions& options, Index validation_tokens) {
  const std::string& kind = options.validation_kind;
  const Index asked = options.validation_batches;
  ValidationPlan plan;
  plan.end_batches = asked;
  plan.exact = plan.exact_end = kind != "estimate";
  if (kind != "exact") plan.batches = asked;
  if (kind != "auto") return plan;
  const TrainingOptions& training = options.training;
  const Index batch = options.batch * options.model.context;
  // In units of training on one token.
  double work = 0;
  for (const BatchShape& shape : options.batch_shapes())
    work += static_cast<double>(shape.end_step - shape.first_step) *
            static_cast<double>(training.accumulate * shape.rows * shape.context);
  const double exact = kForwardShare * static_cast<double>(validation_tokens);
  const auto validations = static_cast<double>((training.steps - 1) / training.validate_every + 1);
  const double affordable =
      kEstimateShare * work / (validations * kForwardShare * static_cast<double>(batch));
  const Index batches = std::max<Index>(1, std::min(asked, static_cast<Index>(affordable)));
  plan.exact = (validations + 1) * exact <= kValidationShare * work || validation_tokens <= batches * batch;
  plan.exact_end = plan.exact || exact <= kEndShare * work;
  plan.batches = plan.exact ? 0 : batches;
  plan.end_batches = plan.exact_end ? 0 : asked;
  return plan;
}

namespace {

/// The choices of experts in the text's first row.
LayerRecord choices_of_experts(DecoderOnly& model, const TokenFile& text, Index context) {
  const Index length = std::min(context, text.size());
  const Tensor ids = Tensor::empty({1, length}, DType::i32);
  text.read(0, length, ids.data<std::int32_t>());
  const Evaluation evaluation(model);
  LayerRecord record;
  model.states(ids.to(model.device()), {}, {}, &record);
  return record;
}

}  // namespace

LanguageTask::LanguageTask(const LanguageOptions& options, LanguageData data, DecoderOnly model,
                           Progress& progress)
    : options_(options),
      data_(std::move(data)),
      model_(std::move(model)),
      shapes_(options_.batch_shapes()),
      measure_(data_.validation, *data_.tokenizer, options_.batch, options_.model.context,
               options_.training.seed, options_.head_loss(), document_end(options_, *data_.tokenizer)),
      plan_(validation_plan(options_, data_.validation.size())) {
  for (const TokenFile* file : {&data_.train, &data_.validation})
    if (file->vocabulary() > model_.config().vocabulary)
      throw DataError(file->path(), 0,
                      format("has a vocabulary of {}, but the model one of {}", file->vocabulary(),
                             model_.config().vocabulary));
  if (vocabulary_with_mask(model_.config(), 0, *data_.tokenizer) > model_.config().vocabulary)
    throw Error(
        format("--objective {} needs a mask token; got {} in the model and its tokenizer; try a model "
               "trained with it",
               objective_of(model_.config()).name, number_of(model_.config().vocabulary, "token")));
  windows(options_.model.context);  // throws if the text is too short
  model_.recompute_layers(options_.training.recompute_layers);
  progress.log(format("{} tokens to train on, {} to validate on; {}", count_text(data_.train.size()),
                      count_text(data_.validation.size()),
                      tokens_per_step(shapes_, options_.training.accumulate)));
  progress.log(format("{}; {} parameters; {}", changes_text(model_.config()),
                      count_text(model_.parameter_count()), number_of(omp_get_max_threads(), "thread")));
}

void LanguageTask::set_steps(Index steps, bool is_begun) {
  options_.training.set_steps(steps, is_begun);
  shapes_ = options_.batch_shapes();
  plan_ = validation_plan(options_, data_.validation.size());
}

TokenWindows LanguageTask::windows(Index context) const {
  return TokenWindows(data_.train, context, kind_named<WindowOrder>(options_.order), options_.training.seed);
}

BatchShape LanguageTask::shape_of(Index batch) const {
  const Index step = batch / options_.training.accumulate;
  const auto later = std::find_if(shapes_.begin(), shapes_.end(),
                                  [&](const BatchShape& shape) { return shape.first_step > step; });
  return *std::prev(later);
}

std::vector<Index> LanguageTask::batch_changes() const {
  std::vector<Index> steps;
  for (std::size_t i = 1; i < shapes_.size(); ++i) steps.push_back(shapes_[i].first_step);
  return steps;
}

Index LanguageTask::epoch(Index batches) const {
  Index tokens = 0;
  for (const BatchShape& shape : shapes_) {
    const Index accumulate = options_.training.accumulate, end = shape.end_step * accumulate;
    tokens += std::max<Index>(0, std::min(end, batches) - shape.first_step * accumulate) * shape.rows *
              shape.context;
  }
  return tokens / (windows(options_.model.context).windows() * options_.model.context);
}

Batch LanguageTask::batch(Index number, BatchShare share) {
  const BatchShape all = shape_of(number);
  Share rows = share_of(all.rows, share.rank, share.ranks);
  const bool counts = rows.size() > 0;
  if (!counts) rows = {0, 1};  // all ranks compute the same graph
  Batch here = language_batch(model_.config(), windows(all.context).batch(number, all.rows, rows),
                              options_.training.seed, number * all.rows + rows.begin,
                              document_end(options_, *data_.tokenizer), mask_token(*data_.tokenizer));
  if (!counts) ignore_targets(here);
  return here.to(model_.device());
}

Tensor LanguageTask::loss(const Batch& batch) { return language_loss(model_, batch, options_.head_loss()); }

Validation LanguageTask::validate(Progress& progress) {
  Validation result;
  if (plan_.exact) {
    const TextLoss exact = measure_.exact(model_, progress, {}, ranks());
    result.loss = exact.mean();
    result.further = exact.units();
  }
  if (plan_.batches > 0) {
    const EstimatedLoss estimate = measure_.estimate(model_, plan_.batches, progress, {}, ranks());
    if (!plan_.exact) result.loss = estimate.mean();
    result.further.emplace_back("estimated_loss", estimate.mean());
    const std::string error = estimate.error_text();
    result.remark = plan_.exact
                        ? format(", estimated {:.4f}{}", estimate.mean(), error)
                        : ", estimated" + error + " from " + number_of(plan_.batches, "batch", "batches");
  }
  if (const DecoderOnlyConfig& config = model_.config(); config.experts.experts > 0)
    result.add_expert_shares(choices_of_experts(model_, data_.validation, options_.model.context),
                             [&](Index router) { return std::to_string(config.experts_from + router); });
  return result;
}

Index LanguageTask::validation_tokens(bool at_end) const {
  const Index estimated =
      (at_end ? plan_.end_batches : plan_.batches) * options_.batch * options_.model.context;
  return estimated + ((at_end ? plan_.exact_end : plan_.exact) ? data_.validation.size() : 0);
}

double LanguageTask::trial_loss(Index batches, Progress&) {
  // The same rows on every rank, and no more than fit into a step.
  return measure_.trial(model_, batches, share_of(options_.batch, 0, ranks().size()).size());
}

std::vector<std::string> LanguageTask::samples(Index batches, bool graphs) {
  if (model_.config().bidirectional) return {};  // it continues no text
  const Index context = model_.config().context;
  const Index given = std::clamp<Index>(context / 2, 1, std::min(kPromptTokens, data_.validation.size()));
  TokenIds prompt(static_cast<std::size_t>(given));
  data_.validation.read(0, given, prompt.data());
  TextGenerationConfig config;
  config.sampling.temperature = kSampleTemperature;
  config.sampling.seed = options_.training.seed;
  config.sampling.stream = static_cast<std::uint64_t>(batches);
  config.samples = options_.training.samples;
  config.max_tokens = std::clamp<Index>(context - given, 1, kSampleTokens);
  config.ends = data_.tokenizer->ends();
  config.graphs = graphs;
  std::vector<TokenIds> samples(static_cast<std::size_t>(config.samples));
  const Evaluation evaluation(model_);
  generate_text(model_, prompt, config, [&](Index sample, std::int32_t token) {
    samples[static_cast<std::size_t>(sample)].push_back(token);
    return true;
  });
  std::vector<std::string> texts;
  for (const TokenIds& sample : samples) {
    TextStream stream(*data_.tokenizer);
    const auto text_of = [&](const TokenIds& ids) {
      std::string text;
      for (const std::int32_t id : ids)
        if (id < data_.tokenizer->vocabulary_size()) text += stream.add(id);
      return text;
    };
    const std::string begins = text_of(prompt), goes_on = text_of(sample);
    texts.push_back("[" + begins + "]" + goes_on + stream.finish());
  }
  return texts;
}

Json LanguageTask::attention_example() {
  const Index count = std::min({kShownTokens, model_.config().context, data_.validation.size()});
  TokenIds ids(static_cast<std::size_t>(count));
  data_.validation.read(0, count, ids.data());
  std::vector<std::string> labels;
  for (const std::int32_t id : ids)
    labels.push_back(id < data_.tokenizer->vocabulary_size() ? data_.tokenizer->bytes_of(id) : "");
  const Evaluation evaluation(model_);
  return attention_json(model_.attention_weights(Tensor::from(ids, {1, count}).to(model_.device())), "layer",
                        labels, labels);
}

void LanguageTask::describe(const RunFolder& folder) {
  describe_language_run(folder, options_, model_.config(), data_);
}

void LanguageTask::save_state(Json& state) const {
  state["options"] = options_;
  state["data_fingerprint"] = fingerprint(data_);
  // All losses of a run must be comparable, even if its number of steps changes later.
  state["validation_plan"] = {plan_.exact, plan_.batches, plan_.exact_end, plan_.end_batches};
}

void LanguageTask::load_state(const Json& state) {
  if (state.at("data_fingerprint").get<std::uint64_t>() != fingerprint(data_)) {
    throw DataError(data_.train.path(), 0,
                    "the data has changed since the checkpoint; restore it, or start again");
  }
  if (state.contains("validation_plan")) {  // older checkpoints lack it
    const Json& plan = state.at("validation_plan");
    plan_ = {plan.at(0).get<bool>(), plan.at(1).get<Index>(), plan.at(2).get<bool>(),
             plan.at(3).get<Index>()};
  }
}

Json LanguageTask::conclude(Progress& progress) {
  Json result;
  std::string said;
  if (plan_.exact_end) {
    const TextLoss exact = measure_.exact(model_, progress, {}, ranks());
    result["best_loss"] = exact.mean();
    for (const auto& [unit, value] : exact.units()) result["best_" + unit] = value;
    said = exact.to_string();
  }
  if (plan_.end_batches > 0) {
    // The same batches as in `evaluate`.
    const EstimatedLoss estimate = measure_.estimate(model_, plan_.end_batches, progress, {}, ranks());
    result["best_estimated_loss"] = estimate.mean();
    said += format("{}estimated from {} {:.4f}{}", said.empty() ? "" : "; ",
                   number_of(plan_.end_batches, "batch", "batches"), estimate.mean(), estimate.error_text());
  }
  progress.log("the best weights: " + said);
  return result;
}

int train_language_model(const RunFolder& folder, const LanguageOptions& options,
                         const TrainingControl& control) {
  return start_training(folder, control, [&](const Json*, Progress& progress) {
    std::shared_ptr<const Tokenizer> tokenizer;
    if (!options.from.empty()) tokenizer = tokenizer_from(options);
    // Rank 0 has made the data before the others reach this point.
    LanguageData data = folder.writes() ? make_language_data(options, folder, tokenizer, progress)
                                        : open_language_data(options, folder);
    DecoderOnly model =
        initial_model(options, vocabulary_with_mask(options.model, data.train.vocabulary(), *data.tokenizer));
    if (!options.from.empty()) progress.log(fine_tuning_text(options.from, options, fields_of(options)));
    return std::make_unique<LanguageTask>(options, std::move(data), std::move(model), progress);
  });
}

int resume_language_model(const RunFolder& folder, const TrainingControl& control) {
  return resume_training(folder, control, [&](const Json* checkpoint, Progress& progress) {
    auto options = checkpoint->at("options").get<LanguageOptions>();
    Generator random(options.training.seed);  // only for the streams of dropout
    DecoderOnly model(model_config_in(folder.path()), random);
    set_objective(options.model, objective_of(model.config()).name);  // which older options lack
    return std::make_unique<LanguageTask>(options, open_language_data(options, folder), std::move(model),
                                          progress);
  });
}

}  // namespace tapeformer
