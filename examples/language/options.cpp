#include <tapeformer/autograd/config/json.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/data/token_windows.h>
#include <tapeformer/data/tokenizers/tokenizer.h>
#include <tapeformer/examples/language/options.h>
#include <tapeformer/optim/piecewise_constant.h>

#include <algorithm>
#include <set>

namespace tapeformer {
namespace {

struct FeedForwardKind {
  const char* name;
  Unary activation;
  bool gated;
};
constexpr FeedForwardKind kFeedForwardKinds[] = {
    {"gelu", Unary::gelu, false}, {"gelu_tanh", Unary::gelu_tanh, false},
    {"relu", Unary::relu, false}, {"relu_squared", Unary::relu_squared, false},
    {"silu", Unary::silu, false}, {"swiglu", Unary::silu, true},
    {"geglu", Unary::gelu, true}, {"geglu_tanh", Unary::gelu_tanh, true},
    {"reglu", Unary::relu, true}};

std::string feed_forward_name(const DecoderOnlyConfig& config) {
  for (const FeedForwardKind& kind : kFeedForwardKinds)
    if (kind.activation == config.activation && kind.gated == config.gated) return kind.name;
  return "another";
}

/// Sets activation and gating by one name. Throws: Error that lists the known names
void set_feed_forward_kind(DecoderOnlyConfig& model, const std::string& name) {
  const FeedForwardKind& kind = element_named(kFeedForwardKinds, name, "the feed-forward network");
  model.activation = kind.activation, model.gated = kind.gated;
}

/// Sets the biases of projections and layer norms.
void set_bias(DecoderOnlyConfig& model, bool bias) {
  model.attention.bias = model.norm_bias = model.feed_forward_bias = bias;
}

}  // namespace

void set_dropout(DecoderOnlyConfig& model, double dropout) {
  model.attention.dropout = model.embedding_dropout = model.residual_dropout = dropout;
}

void LanguageDataOptions::describe(const FieldVisitor& field) {
  const auto in_data = field.in_group("Data");
  in_data.path(
      "corpus", corpus,
      "UTF-8 files, or folders: every file in them, at any depth, that is UTF-8 without NUL bytes and whose "
      "name does not begin with a dot. Without any, the built-in text");
  in_data.path("validation", validation, "files or folders held out, instead of the corpus's end");
  in_data("validation_fraction", validation_fraction,
          "share of the corpus held out, at its end, where --validation names none", kProperShare);
  static const std::string tokenizer_help = "the kind of tokenizer to make: " + names_of(text_tokenizers());
  in_data("tokenizer", tokenizer, tokenizer_help.c_str());
  in_data.path(
      "tokenizer_model", tokenizer_model,
      "a tokenizer to use instead of making one, or (of as many tokens) instead of --from's: a folder with "
      "vocab.json and merges.txt, tokenizer.json or tokenizer.model, a SentencePiece model, or a run");
  in_data("vocabulary", vocabulary, "most tokens of a new bpe or sentencepiece tokenizer");
  in_data(
      "loss_on", one_of(loss_on, {"all", "answers"}),
      "the tokens that count: all, or answers. The corpus is then files of instructions, one line of JSON "
      "for each: {\"prompt\": \"...\", \"answer\": \"...\"}");
}

void LanguageOptions::describe(const FieldVisitor& field) {
  const auto in_data = field.in_group("Data"), in_model = field.in_group("Model"),
             in_training = field.in_group("Training");
  field.in_group("Preset")("preset", preset, "where the defaults below come from; see the end of this text");
  data.describe(field);
  in_data.path("tokens", tokens, "a folder that `prepare` wrote, instead of a corpus");
  in_data("order", one_of(order, all_names(kNames<WindowOrder>)),
          "random windows of the text, or sequential: epochs in which every window comes once");
  in_data("documents", one_of(documents, {"joined", "apart"}),
          "joined, or apart: in a window tokens attend to their own document only, and positions begin again "
          "with each; for tokenizers with an end token");
  static const std::string objective_help =
      "what is predicted: " +
      joined(objectives(), "; ", [](const Objective& one) { return format("{}, {}", one.name, one.help); });
  in_model.path(
      "from", from,
      "fine-tune: start from the weights in this run or Hugging Face folder, with its sizes and tokenizer; "
      "the schedule begins again");
  in_model("dropout",
           Property([this] { return model.residual_dropout; },
                    [this](double dropout) { set_dropout(model, dropout); }),
           "--embedding-dropout, --attention-dropout and --residual-dropout together", kBelowOne);
  model.describe(in_model);
  in_model("feed_forward_kind",
           Property([this] { return feed_forward_name(model); },
                    [this](const std::string& kind) { set_feed_forward_kind(model, kind); }),
           "gelu, gelu_tanh, relu, relu_squared or silu; gated: swiglu, geglu, geglu_tanh or reglu");
  in_model("objective",
           Property([this] { return std::string(objective_of(model).name); },
                    [this](const std::string& name) { set_objective(model, name); }),
           objective_help.c_str());
  in_model("bias",
           Property([this] { return model.feed_forward_bias; }, [this](bool bias) { set_bias(model, bias); }),
           "biases in projections and layer norms (--bias=false: none)");
  in_model("untied_head", negated(model.tie_head), "give the output its own matrix, not the embedding");
  training.describe(in_training);
  in_training("batch", batch, "rows of --context tokens per batch, over all processes", kPositiveSize);
  in_training("batch_schedule", batch_schedule,
              "changes of --batch during the run, by share of the steps: 0.2:16,0.5:32 is 16 from a fifth of "
              "the steps on, and 32 from half of them on");
  in_training("context_schedule", context_schedule,
              "the same for the tokens of a row, at most --context: 0:64,0.5:128");
  in_training("fused_head", fused_head, "never store all logits of a batch (for large vocabularies)");
  in_training("head_chunk", head_chunk, "rows of logits at a time with --fused-head; 0 for automatic",
              kNotNegative);
  const auto in_checks = in_training.in_part(TrainingOptions::kChecksPart);
  in_checks("validation_kind", one_of(validation_kind, {"auto", "exact", "estimate", "both"}),
            "exact (all of the held-out text), estimate (random batches), both, or auto: exact where that "
            "takes little of the time, else estimates, and exact at the end");
  in_checks("validation_batches", validation_batches,
            "random batches of the estimate; with auto, at most this many", kPositive);
}

LanguageOptions::LanguageOptions(const std::optional<std::string>& preset_name)
    : preset(preset_name.value_or(language_presets().front().name)) {
  model.context = 64;
  set_feed_forward_kind(model, "gelu");
  set_bias(model, false);
  for (const char* options : element_named(language_presets(), preset, "--preset").options)
    read_options(parse_json(options), fields_of(*this));
}

void LanguageDataOptions::check() const {
  check_options(fields_of(*this));
  const TokenizerKind* kind = find_kind(text_tokenizers(), tokenizer);
  require(kind != nullptr, "--tokenizer must be " + names_of(text_tokenizers()) + "; got " + tokenizer);
  require(vocabulary >= kind->least_vocabulary,
          format("--vocabulary must be at least {} with --tokenizer {}, which has all bytes; got {}",
                 kind->least_vocabulary, tokenizer, vocabulary));
}

void LanguageDataOptions::refuse_ignored(const Command& command) const {
  if (!validation.empty()) command.refuse({"--validation-fraction"}, "with --validation");
  if (!tokenizer_model.empty()) command.refuse({"--tokenizer", "--vocabulary"}, "with --tokenizer-model");
  const TokenizerKind* kind = find_kind(text_tokenizers(), tokenizer);
  if (kind != nullptr && kind->least_vocabulary == 0)
    command.refuse({"--vocabulary"}, "with --tokenizer " + tokenizer);
}

DecoderOnlyConfig LanguageOptions::model_config(Index vocabulary_size) const {
  DecoderOnlyConfig config = model;
  config.vocabulary = vocabulary_size;
  return config;
}

std::vector<BatchShape> LanguageOptions::batch_shapes() const {
  const PiecewiseConstant rows(batch_schedule, batch), context(context_schedule, model.context);
  std::set<Index> starts = {0};
  for (const PiecewiseConstant* values : {&rows, &context})
    for (const Index step : values->changes(training.steps)) starts.insert(step);
  std::vector<BatchShape> shapes;
  for (const Index step : starts) {
    if (step > 0) shapes.back().end_step = step;
    shapes.push_back({step, training.steps, rows.at(step, training.steps), context.at(step, training.steps)});
  }
  return shapes;
}

void LanguageOptions::check() const {
  check_options(fields_of(*this));
  const auto check_schedule = [&](const char* flag, const std::string& text, Index most) {
    if (text.empty()) return;
    try {
      const Index largest = PiecewiseConstant(text, 1).largest();
      require(most == 0 || largest <= most, format("goes up to {}, and --context is {}", largest, most));
    } catch (const Error& error) {
      throw Error(std::string(flag) + ": " + error.what());
    }
    require(order == "random", std::string(flag) + " needs --order random");
  };
  check_schedule("--batch-schedule", batch_schedule, 0);
  check_schedule("--context-schedule", context_schedule, model.context);
  data.check();
  require(tokens.empty() || (data.corpus.empty() && data.validation.empty()),
          "--tokens is a corpus already prepared; it excludes --corpus and --validation");
  require(tokens.empty() || data.tokenizer_model.empty(),
          "--tokens has a tokenizer; it excludes --tokenizer-model");
  require(head_chunk == 0 || fused_head, "--head-chunk needs --fused-head");
  require(data.loss_on == "all" || !model.bidirectional,
          format("--objective masked chooses the tokens that count; got --loss-on {}; try --loss-on all",
                 data.loss_on));
  if (documents == "apart") {
    const auto need = [](bool holds, const std::string& without) {
      require(holds, "--documents apart needs a model without " + without);
    };
    need(!model.prefix, "--objective prefix");
    need(model.attention.moba_block == 0, "--moba-block, whose blocks are counted from the start of a row");
    need(model.short_convolution == 0, "--short-convolution, which reaches over the start of a document");
    for (Index layer = 0; layer < model.layers; ++layer) {
      const std::string& kind = model.attention_config(layer).kind;
      need(!(attention_kind(kind).can & kOnlyCausal),
           "attention that reaches over the start of a document; got " + kind);
    }
  }
  training.check();
  if (from.empty()) model_config(data.vocabulary).check();  // whatever the vocabulary's size will be
}

void LanguageOptions::refuse_ignored(const Command& command) const {
  if (!tokens.empty())
    command.refuse({"--tokenizer", "--vocabulary", "--validation-fraction"}, "with --tokens");
  const auto any_layer = [&](const auto& holds, const std::string& letters) {
    for (Index layer = 0; layer < std::min<Index>(std::max<std::size_t>(letters.size(), 1), model.layers);
         ++layer)
      if (holds(layer)) return true;
    return false;
  };
  const std::string& pattern = model.attention_pattern;
  const auto is_full = [&](Index layer) { return model.has_full_attention(layer); };
  const auto has_weights = [&](Index layer) {
    return !(attention_kind(model.attention_config(layer).kind).can & kHasState);
  };
  const bool rotates = any_layer([&](Index layer) { return model.rotates(layer); }, pattern);
  if (!rotates) command.refuse({"--rotary-base"}, "without --positions rotary or --attention mla");
  if (!rotates && model.positions == PositionKind::rotary)
    command.refuse({"--positions"}, "on a state, which knows the order of tokens by itself");
  if (!any_layer(has_weights, pattern))
    command.refuse({"--attention-dropout"}, "on a state, which has no weights to drop");
  if (!any_layer(is_full, pattern))
    command.refuse({"--attention-pattern", "--full-attention"}, "without an F that a layer has");
  if (!any_layer([&](Index layer) { return !is_full(layer); }, pattern))
    command.refuse({"--attention"}, "without a D that a layer has");
  if (model.attention.kind == model.full_attention)
    command.refuse({"--attention-pattern"}, "on one kind of attention");
  if (model.layers == 1) command.refuse({"--kv-sharing", "--value-residual"}, "with --layers 1");
  if (!any_layer([&](Index layer) { return model.has_window(layer); }, model.windows))
    command.refuse({"--window"}, "without an S that a layer has");
  if (!any_layer([&](Index layer) { return !model.has_window(layer); }, model.windows + "L"))
    command.refuse({"--windows"}, "where all layers have the window");
  if (model.window_rotary_base > 0 && model.window > 0 && model.windows.empty())
    command.refuse({"--rotary-base"}, "with --window-rotary-base and a window in all layers");
  refuse_unused_parts(command, model.positions, model.attention, model.experts);
  if (model.swiglu.limit == 0) command.refuse({"--swiglu-alpha"}, "without --swiglu-limit");
  if (model.experts.experts == 0) command.refuse({"--experts-from"}, "without --experts");
  refuse_unused_adapters(command, !from.empty(), model.adapter.rank > 0);
  data.refuse_ignored(command);
  training.refuse_ignored(command);
}

void adapt_preset(LanguageOptions& options, const Command& command) {
  const auto given = [&](const std::string& name) { return command.find(flag_of(name)).given(); };
  const AttentionKind &usual = attention_kind(LanguageOptions(options.preset).model.attention.kind),
                      &kind = attention_kind(options.model.attention.kind);
  const DecoderOnlyConfig plain;
  const FieldList defaults = fields_of(plain);
  FieldList fields = fields_of(options.model);
  for (std::size_t i = 0; i < fields.size(); ++i) {
    const std::string& name = fields[i].name;
    const bool is_asked = !fields[i].help.empty() && given(name);
    const bool differs = usual.name != kind.name && fields[i].follows_kind;
    if (usual.uses(name) && (differs || !kind.uses(name)) && !is_asked) fields[i].set(defaults[i].value());
  }
  if ((kind.can & kHasState) && options.model.attention_pattern.empty() && !given("positions") &&
      options.model.positions == PositionKind::rotary)
    options.model.positions = PositionKind::none;
  const bool sequential = options.order != "random";
  if ((sequential || given("context")) && !given("context_schedule")) options.context_schedule.clear();
  if ((sequential || given("batch")) && !given("batch_schedule")) options.batch_schedule.clear();
  options.training.adapt(command);
}

void take_fine_tuned(LanguageOptions& options, const DecoderOnlyConfig& config, const Command& command) {
  const LanguageOptions asked = options;
  const auto given = [&](const char* flag) { return command.find(flag).given(); };
  for (const char* flag : {"--tokenizer", "--vocabulary"})
    require(!given(flag), std::string(flag) + " contradicts --from, whose model keeps its tokenizer");
  options.model = config;
  if (given("--objective"))
    set_objective(options.model, objective_of(asked.model).name);  // changes no weight
  options.model.context =
      std::min(config.context, given("--context") ? asked.model.context : kMostUnaskedContext);
  if (options.model.context < asked.model.context && !given("--context-schedule"))
    options.context_schedule.clear();
  take_fine_tuned(fields_of(options), fields_of(asked), options.from, command);
}

}  // namespace tapeformer
