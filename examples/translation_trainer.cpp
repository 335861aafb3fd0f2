#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/kernels/matmul.h>
#include <tapeformer/autograd/ops/loss.h>
#include <tapeformer/autograd/tape.h>
#include <tapeformer/data/toy_grammar.h>
#include <tapeformer/examples/program.h>
#include <tapeformer/examples/translation_trainer.h>
#include <tapeformer/nn/generate.h>
#include <tapeformer/optim/clip.h>

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace tapeformer {
namespace {

std::string format(const char* pattern, double a, double b = 0, double c = 0) {
  char text[160];
  std::snprintf(text, sizeof text, pattern, a, b, c);
  return text;
}

/// Tokens that count in the loss.
Index target_tokens(const TranslationBatch& batch) {
  const std::int32_t* ids = batch.target_outputs.data<std::int32_t>();
  return std::count_if(ids, ids + batch.target_outputs.elements(),
                       [](std::int32_t id) { return id != kIgnored; });
}

}  // namespace

double validation_loss(EncoderDecoder& model, TranslationBatches& batches, Progress& progress, Index most) {
  const RecordingPause pause;
  model.eval();
  batches.seek({0, 0});
  double total = 0;
  Index tokens = 0;
  CrossEntropyOptions plain;
  plain.ignored = kIgnored;
  const Index count = most > 0 ? std::min(most, batches.batches_per_epoch()) : batches.batches_per_epoch();
  for (Index i = 0; i < count; ++i) {
    const TranslationBatch batch = batches.next();
    const Tensor logits = model(batch.source_ids, batch.source_mask, batch.target_inputs);
    const Index counted = target_tokens(batch);
    total += cross_entropy(logits, batch.target_outputs, plain).item() * static_cast<double>(counted);
    tokens += counted;
    progress.show("validating " + std::to_string(i + 1) + "/" + std::to_string(count));
  }
  model.train();
  return total / static_cast<double>(tokens);
}

TranslationTrainer TranslationTrainer::start(const RunFolder& folder, const TranslationOptions& options,
                                             const TrainingControl& control) {
  options.check();
  folder.refuse_if_used();
  return TranslationTrainer(folder, options, control, nullptr);
}

TranslationTrainer TranslationTrainer::resume(const RunFolder& folder, const TrainingControl& control) {
  const Json checkpoint = folder.checkpoint_state();
  try {
    return TranslationTrainer(folder, checkpoint.at("options").get<TranslationOptions>(), control,
                              &checkpoint);
  } catch (const Json::exception& error) {
    throw CheckpointError(folder.path() +
                          ": the checkpoint's state does not fit this program: " + error.what());
  }
}

TranslationTrainer::TranslationTrainer(RunFolder folder, TranslationOptions options, TrainingControl control,
                                       const Json* checkpoint)
    : folder_(std::move(folder)), options_(std::move(options)), control_(control) {
  if (control_.threads == 0 && checkpoint != nullptr)
    control_.threads = checkpoint->at("threads").get<Index>();
  if (control_.threads > 0) omp_set_num_threads(static_cast<int>(control_.threads));
  if (*kernels::gemm_warning() != 0) progress_.keep(std::string("note: ") + kernels::gemm_warning());

  std::string report;
  corpus_ = load_corpus(options_, report);
  progress_.keep(report);
  if (checkpoint != nullptr) {
    vocabularies_ = Vocabularies::load(folder_.path(), folder_.config());
    if (options_.shared_vocabulary) vocabularies_.target = vocabularies_.source;
  } else {
    progress_.show("making the vocabularies");
    vocabularies_ = make_vocabularies(options_, corpus_.train);
  }
  data_fingerprint_ = fingerprint(corpus_);
  if (checkpoint != nullptr && checkpoint->at("data_fingerprint").get<std::uint64_t>() != data_fingerprint_) {
    throw DataError(folder_.path(), 0,
                    "the data has changed since the checkpoint; restore it, or start anew");
  }
  BatchingConfig batching;
  batching.token_budget = options_.batch_tokens;
  batching.max_tokens = options_.max_length;
  batching.seed = options_.training.seed;
  train_batches_ = std::make_unique<TranslationBatches>(encode(vocabularies_, corpus_.train), batching);
  batching.shuffle = false;
  validation_batches_ =
      std::make_unique<TranslationBatches>(encode(vocabularies_, corpus_.validation), batching);

  const EncoderDecoderConfig config = checkpoint != nullptr
                                          ? EncoderDecoderConfig::from_json(folder_.config().dump())
                                          : options_.model_config(vocabularies_.source->vocabulary_size(),
                                                                  vocabularies_.target->vocabulary_size());
  Generator random(options_.training.seed);
  model_ = std::make_unique<EncoderDecoder>(config, random);
  optimizer_ = std::make_unique<AdamW>(model_->parameters(), options_.training.adamw_config());
  schedule_ = std::make_unique<Schedule>(options_.training.schedule_config());
  progress_.keep("vocabularies of " + std::to_string(config.source_vocabulary) + " and " +
                 std::to_string(config.target_vocabulary) + " pieces; " +
                 count_text(static_cast<double>(model_->parameter_count())) + " parameters; " +
                 std::to_string(train_batches_->batches_per_epoch()) + " batches an epoch, " +
                 format("%.1f", 100 * train_batches_->padding_share()) + " % padding" +
                 (train_batches_->dropped() > 0
                      ? "; left out " + std::to_string(train_batches_->dropped()) + " pairs of more than " +
                            std::to_string(options_.max_length) + " tokens"
                      : "") +
                 "; " + std::to_string(omp_get_max_threads()) + " threads");

  if (checkpoint == nullptr) {
    folder_.create();
    Json described = Json::parse(config.to_json());
    described["training"] = options_;
    described["vocabularies"] = vocabularies_.description();
    described["data_fingerprint"] = data_fingerprint_;
    folder_.write("config.json", described.dump(2) + "\n");
    folder_.write("source.vocabulary", vocabularies_.source->serialize());
    folder_.write("target.vocabulary", vocabularies_.target->serialize());
    save_checkpoint();
    return;
  }
  folder_.load_checkpoint(*model_, *optimizer_);
  state_.step = checkpoint->at("step").get<Index>();
  state_.position = {checkpoint->at("epoch").get<Index>(), checkpoint->at("batch").get<Index>()};
  state_.best_loss = checkpoint->at("best_loss").get<double>();
  state_.has_best = checkpoint->at("has_best").get<bool>();
  state_.finished = checkpoint->at("finished").get<bool>();
  state_.validations_since_best = checkpoint->at("validations_since_best").get<Index>();
  state_.logged_loss = checkpoint->at("logged_loss").get<double>();
  state_.logged_steps = checkpoint->at("logged_steps").get<Index>();
  if (checkpoint->at("threads").get<int>() != omp_get_max_threads()) {
    progress_.keep("note: the run began with " + checkpoint->at("threads").dump() +
                   " threads; with another number the last bits of the results may differ");
  }
  checkpointed_step_ = state_.step;
  train_batches_->seek(state_.position);
  folder_.cut_metrics(state_.step);
  progress_.keep("resumed at step " + std::to_string(state_.step));
}

Json TranslationTrainer::state_json() const {
  Json json;
  json["options"] = options_;
  json["threads"] = omp_get_max_threads();
  json["data_fingerprint"] = data_fingerprint_;
  json["step"] = state_.step;
  json["epoch"] = state_.position.epoch;
  json["batch"] = state_.position.index;
  json["best_loss"] = state_.best_loss;
  json["has_best"] = state_.has_best;
  json["finished"] = state_.finished;
  json["validations_since_best"] = state_.validations_since_best;
  json["logged_loss"] = state_.logged_loss;
  json["logged_steps"] = state_.logged_steps;
  return json;
}

void TranslationTrainer::save_checkpoint() {
  if (checkpointed_step_ == state_.step && !state_.finished) return;
  // An update can ruin the weights after a loss that was still good: what is saved has been tried.
  require_finite(validation_loss(*model_, *validation_batches_, progress_, 1), "loss after the update");
  folder_.save_checkpoint(*model_, *optimizer_, state_json());
  checkpointed_step_ = state_.step;
}

void TranslationTrainer::require_finite(double value, const char* name) {
  if (std::isfinite(value)) return;
  progress_.clear();
  throw Error("step " + std::to_string(state_.step + 1) + ": the " + name +
              format(" is %g; stopped. ", value) +
              (checkpointed_step_ < 0 ? std::string("Nothing was saved")
                                      : "The checkpoint of step " + std::to_string(checkpointed_step_) +
                                            " in " + folder_.path() + " is unharmed") +
              "; try a lower --learning-rate or a longer --warmup");
}

double TranslationTrainer::train_step() {
  optimizer_->clear_gradients();
  CrossEntropyOptions smoothed;
  smoothed.ignored = kIgnored;
  smoothed.smoothing = options_.label_smoothing;
  const bool accumulates = options_.training.accumulate > 1;
  double loss_sum = 0;
  Index tokens = 0;
  for (Index part = 0; part < options_.training.accumulate; ++part) {
    const TranslationBatch batch = train_batches_->next();
    const Index counted = target_tokens(batch);
    Tape tape;
    const Tensor logits = (*model_)(batch.source_ids, batch.source_mask, batch.target_inputs);
    const Tensor loss = cross_entropy(logits, batch.target_outputs, smoothed);
    tape.backward(loss, accumulates ? Tensor::scalar(static_cast<double>(counted)) : Tensor());
    loss_sum += loss.item() * static_cast<double>(counted);
    tokens += counted;
    timed_tokens_ += batch.tokens;
  }
  state_.position = train_batches_->position();
  const auto& parameters = optimizer_->parameters();
  if (accumulates) scale_gradients(parameters, 1 / static_cast<double>(tokens));
  const double norm = options_.training.clip > 0 ? clip_gradient_norm(parameters, options_.training.clip)
                                                 : gradient_norm(parameters);
  const double loss = loss_sum / static_cast<double>(tokens);
  require_finite(loss, "loss");
  require_finite(norm, "gradient's norm");
  optimizer_->step((*schedule_)(state_.step));
  ++state_.step;
  return loss;
}

std::string TranslationTrainer::status(double loss) const {
  const double now = now_seconds();
  const double per_step = (now - started_) / static_cast<double>(state_.step - first_step_);
  const double left = per_step * static_cast<double>(options_.training.steps - state_.step);
  return "step " + std::to_string(state_.step) + "/" + std::to_string(options_.training.steps) +
         format("  loss %.4f  rate %.2e", loss, (*schedule_)(state_.step - 1)) + "  " +
         count_text(static_cast<double>(timed_tokens_) / std::max(1e-9, now - log_started_)) + " tokens/s  " +
         duration_text(left) + " left";
}

void TranslationTrainer::log_step(double loss) {
  state_.logged_loss += loss;
  ++state_.logged_steps;
  const double mean = state_.logged_loss / static_cast<double>(state_.logged_steps);
  if (progress_.on_terminal()) progress_.show(status(mean));
  if (state_.step % options_.training.log_every != 0 && state_.step != options_.training.steps) return;
  if (!progress_.on_terminal()) progress_.keep(status(mean));
  const double seconds = now_seconds() - log_started_;
  folder_.append_metrics({{"step", state_.step},
                          {"train_loss", mean},
                          {"learning_rate", (*schedule_)(state_.step - 1)},
                          {"tokens_per_second", std::round(static_cast<double>(timed_tokens_) / seconds)},
                          {"epoch", state_.position.epoch}});
  state_.logged_loss = 0;
  state_.logged_steps = timed_tokens_ = 0;
  log_started_ = now_seconds();
}

void TranslationTrainer::validate() {
  const double begun = now_seconds();
  const double loss = validation_loss(*model_, *validation_batches_, progress_);
  require_finite(loss, "validation loss");
  const bool better = !state_.has_best || loss < state_.best_loss;
  if (better) {
    state_.best_loss = loss;
    state_.has_best = true;
    state_.validations_since_best = 0;
    save_weights(folder_.file("weights.safetensors"), *model_);
  } else {
    ++state_.validations_since_best;
  }
  folder_.append_metrics(
      {{"step", state_.step}, {"validation_loss", loss}, {"perplexity", std::exp(loss)}, {"best", better}});
  progress_.keep("step " + std::to_string(state_.step) +
                 format(": validation loss %.4f, perplexity %.3f", loss, std::exp(loss)) +
                 (better ? ", the best so far" : "") + ", after " + duration_text(begun - started_));
  show_samples();
  log_started_ += now_seconds() - begun;
}

void TranslationTrainer::show_samples() {
  const auto count =
      std::min<std::size_t>(static_cast<std::size_t>(options_.training.samples), corpus_.validation.size());
  if (count == 0) return;
  std::vector<TokenIds> sources;
  for (std::size_t i = 0; i < count; ++i)
    sources.push_back(vocabularies_.source->encode(corpus_.validation[i].source));
  for (TokenIds& source : sources) {
    source.resize(std::min<std::size_t>(source.size(), static_cast<std::size_t>(options_.max_length - 1)));
  }
  model_->eval();
  const std::vector<Hypothesis> found = beam_search(*model_, sources);
  model_->train();
  for (std::size_t i = 0; i < count; ++i) {
    progress_.keep("  " + corpus_.validation[i].source + "  →  " +
                   vocabularies_.target->decode(found[i].tokens));
  }
}

int TranslationTrainer::run() {
  if (state_.finished) {
    progress_.keep("this training is finished; the best weights are in " +
                   folder_.file("weights.safetensors"));
    return kExitSuccess;
  }
  model_->train();
  first_step_ = state_.step;
  started_ = log_started_ = now_seconds();
  const Index checkpoint_every = options_.training.checkpoint_every > 0 ? options_.training.checkpoint_every
                                                                        : options_.training.validate_every;
  while (!state_.finished) {
    log_step(train_step());
    if (state_.step % options_.training.validate_every == 0 || state_.step == options_.training.steps) {
      validate();
      const bool patient =
          options_.training.patience == 0 || state_.validations_since_best < options_.training.patience;
      if (!patient)
        progress_.keep("no better validation for " + std::to_string(options_.training.patience) +
                       " times: stopped early");
      state_.finished = state_.step >= options_.training.steps || !patient;
    }
    if (state_.finished || state_.step % checkpoint_every == 0) save_checkpoint();
    if (state_.finished) break;
    const bool late = control_.max_minutes > 0 && now_seconds() - started_ > 60 * control_.max_minutes;
    if (!late && !interrupted()) continue;
    save_checkpoint();
    progress_.keep(
        (late ? "the time limit is reached" : "interrupted") + std::string(" at step ") +
        std::to_string(state_.step) + "; saved. Go on with: train_translation train --run " + folder_.path() +
        " --resume" +
        (state_.has_best ? "" : " (there was no validation yet, so there is nothing to translate with)"));
    return late ? kExitSuccess : kExitInterrupted;
  }
  progress_.keep("trained " + std::to_string(state_.step) + " steps in " +
                 duration_text(now_seconds() - started_) + "; best validation loss " +
                 format("%.4f", state_.best_loss) + "; weights in " + folder_.file("weights.safetensors"));
  return kExitSuccess;
}

}  // namespace tapeformer
