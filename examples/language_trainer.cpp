#include <tapeformer/autograd/error.h>
#include <tapeformer/data/text_stream.h>
#include <tapeformer/examples/language_run.h>
#include <tapeformer/examples/language_tokenizer.h>
#include <tapeformer/examples/language_trainer.h>
#include <tapeformer/nn/generate_text.h>

#include <omp.h>

#include <algorithm>
#include <utility>

namespace tapeformer {
namespace {

constexpr Index kPromptTokens = 16, kSampleTokens = 160;
constexpr double kSampleTemperature = 0.8;

/// `text` with every line set in, as the log shows it.
std::string set_in(const std::string& text) {
  std::string result = "  ";
  for (const char c : text) {
    result += c;
    if (c == '\n') result += "  ";
  }
  return result;
}

}  // namespace

LanguageTask::LanguageTask(const LanguageOptions& options, LanguageData data, DecoderOnly model,
                           Progress& progress)
    : options_(options),
      data_(std::move(data)),
      model_(std::move(model)),
      windows_(data_.train, options_.context, window_order(options_.order), options_.training.seed),
      measure_(data_.validation, *data_.tokenizer, options_.batch, options_.context, options_.training.seed,
               options_.head_loss()) {
  for (const TokenFile* file : {&data_.train, &data_.validation}) {
    if (file->vocabulary() > model_.config().vocabulary) {
      throw DataError(file->path(), 0,
                      "has a vocabulary of " + std::to_string(file->vocabulary()) +
                          ", and the model one of " + std::to_string(model_.config().vocabulary));
    }
  }
  model_.recompute_layers(options_.training.recompute_layers);
  progress.keep(count_text(static_cast<double>(data_.train.size())) + " tokens to train on, " +
                count_text(static_cast<double>(data_.validation.size())) + " to validate on; " +
                std::to_string(options_.batch * options_.context * options_.training.accumulate) +
                " tokens a step");
  progress.keep(model_text(model_.config()) + "; " +
                count_text(static_cast<double>(model_.parameter_count())) + " parameters; " +
                std::to_string(omp_get_max_threads()) + " threads");
}

BatchLoss LanguageTask::next_loss() {
  const LanguageBatch batch = language_batch(model_.config(), windows_.batch(batches_, options_.batch),
                                             options_.training.seed, batches_ * options_.batch);
  ++batches_;
  return {model_.loss(batch.inputs, batch.targets, batch.prefix_lengths, options_.head_loss()), batch.counted,
          batch.inputs.elements()};
}

Validation LanguageTask::validate(Progress& progress) {
  Validation result;
  const bool exactly = options_.validation_kind != "estimate";
  if (exactly) {
    const MeanLoss exact = measure_.exact(model_, progress);
    result.loss = exact.nats;
    if (exact.bytes > 0) result.further["bits_per_byte"] = exact.bits_per_byte();
  }
  if (options_.validation_kind != "exact") {
    const MeanLoss estimate = measure_.estimate(model_, options_.validation_batches, batches_, progress);
    if (!exactly) result.loss = estimate.nats;
    result.further["estimated_loss"] = estimate.nats;
    result.remark = format(exactly ? ", estimated %.4f ± %.4f" : ", an estimate ± %.4f",
                           exactly ? estimate.nats : estimate.standard_error, estimate.standard_error);
  }
  return result;
}

double LanguageTask::trial_loss(Progress& progress) {
  return measure_.estimate(model_, 1, batches_, progress).nats;
}

void LanguageTask::show_samples(Progress& progress) {
  const Index context = model_.config().context;
  const Index given = std::clamp<Index>(context / 2, 1, std::min(kPromptTokens, data_.validation.size()));
  TokenIds prompt(static_cast<std::size_t>(given));
  data_.validation.read(0, given, prompt.data());
  TextGenerationConfig config;
  config.sampling.temperature = kSampleTemperature;
  config.sampling.seed = options_.training.seed;
  config.sampling.stream = static_cast<std::uint64_t>(batches_);
  config.samples = options_.training.samples;
  config.max_tokens = std::clamp<Index>(context - given, 1, kSampleTokens);
  config.end = data_.tokenizer->end();
  std::vector<TokenIds> samples(static_cast<std::size_t>(config.samples), prompt);
  model_.eval();
  generate_text(model_, prompt, config, [&](Index sample, std::int32_t token) {
    samples[static_cast<std::size_t>(sample)].push_back(token);
    return true;
  });
  model_.train();
  for (const TokenIds& sample : samples) {
    TextStream stream(*data_.tokenizer);
    std::string text;
    for (const std::int32_t id : sample)
      if (id < data_.tokenizer->vocabulary_size()) text += stream.add(id);
    progress.keep(set_in(text + stream.finish()));
  }
}

void LanguageTask::describe(const RunFolder& folder) {
  describe_language_run(folder, options_, model_.config(), data_);
}

void LanguageTask::save_state(Json& state) const {
  state["options"] = options_;
  state["data_fingerprint"] = fingerprint(data_);
  state["batches"] = batches_;
}

void LanguageTask::load_state(const Json& state) {
  if (state.at("data_fingerprint").get<std::uint64_t>() != fingerprint(data_)) {
    throw DataError(data_.train.path(), 0,
                    "the data has changed since the checkpoint; restore it, or start anew");
  }
  batches_ = state.at("batches").get<Index>();
}

Json LanguageTask::conclude(Progress& progress) {
  // The batches that `evaluate` draws.
  const MeanLoss estimate = measure_.estimate(model_, options_.validation_batches, 0, progress);
  const std::string estimated = "estimated from " + std::to_string(options_.validation_batches) +
                                " batches " + format("%.4f ± %.4f", estimate.nats, estimate.standard_error);
  if (options_.validation_kind == "estimate") {  // the whole part may take longer than the training did
    progress.keep("the best weights: " + estimated);
    return {{"best_estimated_loss", estimate.nats}};
  }
  const MeanLoss exact = measure_.exact(model_, progress);
  progress.keep("the best weights: " + loss_text(exact) + "; " + estimated);
  return {{"best_loss", exact.nats}, {"best_estimated_loss", estimate.nats}};
}

int train_language_model(const RunFolder& folder, const LanguageOptions& options,
                         const TrainingControl& control) {
  return start_training(folder, control, [&](const Json*, Progress& progress) {
    std::shared_ptr<const TextTokenizer> tokenizer;
    if (!options.from.empty()) tokenizer = find_tokenizer(options.from);
    LanguageData data = make_language_data(options, folder, tokenizer, progress);
    DecoderOnly model = initial_model(options, data.train.vocabulary());
    return std::make_unique<LanguageTask>(options, std::move(data), std::move(model), progress);
  });
}

int resume_language_model(const RunFolder& folder, const TrainingControl& control) {
  return resume_training(folder, control, [&](const Json* checkpoint, Progress& progress) {
    const auto options = checkpoint->at("options").get<LanguageOptions>();
    Generator random(options.training.seed);  // the same streams of dropout; the weights are the checkpoint's
    DecoderOnly model(model_config_in(folder.path()), random);
    return std::make_unique<LanguageTask>(options, open_language_data(options, folder), std::move(model),
                                          progress);
  });
}

}  // namespace tapeformer
