#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/number_of.h>
#include <tapeformer/data/token_windows.h>
#include <tapeformer/examples/language/options.h>
#include <tapeformer/examples/language/presets.h>
#include <tapeformer/examples/shared/option_table.h>

#include <algorithm>
#include <filesystem>
#include <map>

namespace tapeformer {
namespace {

void require(bool holds, const std::string& rule) {
  if (!holds) throw Error(rule);
}

struct FeedForwardKind {
  const char* name;
  Unary activation;
  bool gated;
};
constexpr FeedForwardKind kFeedForwardKinds[] = {
    {"gelu", Unary::gelu, false},           {"gelu_tanh", Unary::gelu_tanh, false},
    {"relu", Unary::relu, false},           {"silu", Unary::silu, false},
    {"swiglu", Unary::silu, true},          {"geglu", Unary::gelu, true},
    {"geglu_tanh", Unary::gelu_tanh, true}, {"reglu", Unary::relu, true}};

const FeedForwardKind& feed_forward_kind_named(const std::string& name) {
  std::string names;
  for (const FeedForwardKind& kind : kFeedForwardKinds) {
    if (kind.name == name) return kind;
    names += (names.empty() ? "" : ", ") + std::string(kind.name);
  }
  throw Error("--feed-forward-kind must be one of " + names + "; got " + name);
}

std::string feed_forward_name(const DecoderOnlyConfig& config) {
  for (const FeedForwardKind& kind : kFeedForwardKinds)
    if (kind.activation == config.activation && kind.gated == config.gated) return kind.name;
  return "another";
}

void make_absolute(std::string& path) {
  if (!path.empty()) path = std::filesystem::absolute(path).string();
}

template <class Value>
std::string text_of(const Value& value) {
  return nlohmann::json(value).dump();
}

}  // namespace

template <class Self, class F>
void LanguageDataOptions::for_each(Self& o, const F& f) {
  f("Data", "corpus", o.corpus,
    "files of UTF-8, or folders, of which every file counts, at any depth and whatever its name, that is "
    "UTF-8 "
    "without NUL bytes; not those whose names begin with a dot. Without any, the built-in text");
  f("Data", "validation", o.validation, "files or folders held out, instead of the corpus's end");
  f("Data", "validation_fraction", o.validation_fraction,
    "share of the corpus held out, at its end, where --validation names none");
  f("Data", "tokenizer", o.tokenizer, "the kind to make: character, byte, bpe or sentencepiece");
  f("Data", "tokenizer_model", o.tokenizer_model,
    "a tokenizer to use instead of making one, or (of as many tokens) instead of --from's: a folder with "
    "vocab.json and merges.txt, tokenizer.json or tokenizer.model, a SentencePiece model, or a run");
  f("Data", "vocabulary", o.vocabulary, "most tokens of a bpe or sentencepiece tokenizer that is made");
}

template <class Self, class F>
void LanguageOptions::for_each(Self& o, const F& f) {
  f("Preset", "preset", o.preset, "where the defaults below come from; see the end of this text");
  LanguageDataOptions::for_each(o.data, f);
  f("Data", "tokens", o.tokens, "a folder that `prepare` wrote, instead of a corpus");
  f("Data", "order", o.order,
    "random windows of the text, or sequential: epochs in which every window comes once");
  f("Model", "from", o.from,
    "fine-tune: start from the weights in this run or Hugging Face folder, with its sizes and tokenizer; the "
    "schedule begins anew");
  f("Model", "layers", o.layers, "L, number of layers");
  f("Model", "heads", o.heads, "H, attention heads");
  f("Model", "width", o.width, "C, width of the states; a multiple of the heads");
  f("Model", "context", o.context, "most tokens that the model looks back on");
  f("Model", "attention", o.attention,
    "mha (multi-head), gqa (grouped-query), mqa (multi-query) or mla (latent)");
  f("Model", "groups", o.groups, "G, heads of keys and values with gqa; 0 for half of the heads");
  f("Model", "head_width", o.head_width, "D, width of a head; 0 for C / H");
  f("Model", "latent_width", o.latent_width, "width of mla's compressed keys and values; 0 for C / 2");
  f("Model", "query_latent_width", o.query_latent_width, "width of mla's compressed queries; 0 for none");
  f("Model", "rotary_width", o.rotary_width, "width of mla's rotary keys; 0 for half of a head");
  f("Model", "positions", o.positions, "learned, sinusoidal or rotary");
  f("Model", "rotary_base", o.rotary_base, "base of the rotary frequencies");
  f("Model", "norm", o.norm, "layer or rms, before every sublayer");
  f("Model", "epsilon", o.epsilon, "of the norms");
  f("Model", "feed_forward_kind", o.feed_forward_kind,
    "gelu, gelu_tanh, relu or silu; gated: swiglu, geglu, geglu_tanh or reglu");
  f("Model", "feed_forward", o.feed_forward,
    "F, hidden width of the feed-forward networks; 0 for 4 C, gated 8/3 C");
  f("Model", "bias", o.bias, "biases in projections and layer norms (--bias=false: none)");
  f("Model", "untied_head", o.untied_head, "give the output its own matrix, not the embedding");
  f("Model", "prefix", o.prefix, "let a prompt see itself in both directions, and train on what follows it");
  f("Model", "dropout", o.dropout, "share of embeddings, attention weights and sublayers' outputs dropped");
  TrainingOptions::for_each(o.training, f);
  f("Training", "batch", o.batch, "rows of --context tokens a batch");
  f("Training", "fused_head", o.fused_head, "never store all logits of a batch (for large vocabularies)");
  f("Training", "head_chunk", o.head_chunk,
    "rows of logits at a time with --fused-head; 0 for a good number");
  f("Training", "validation_kind", o.validation_kind,
    "exact (all of the held-out text), estimate (random batches), both, or auto: exact where that takes "
    "little of the time, else estimates, and exact at the end");
  f("Training", "validation_batches", o.validation_batches,
    "random batches of the estimate; with auto, at most");
}

LanguageOptions::LanguageOptions(const std::string& preset_name)
    : preset(preset_name.empty() ? language_presets().front().name : preset_name) {
  language_preset(preset).apply(*this);
}

void LanguageDataOptions::add_to(const Command& command) { add_options(command, *this); }
void LanguageOptions::add_to(const Command& command) { add_options(command, *this); }

void LanguageDataOptions::make_paths_absolute() {
  for (std::string& path : corpus) make_absolute(path);
  for (std::string& path : validation) make_absolute(path);
  make_absolute(tokenizer_model);
}

void LanguageOptions::make_paths_absolute() {
  data.make_paths_absolute();
  make_absolute(tokens);
  make_absolute(from);
}

void LanguageDataOptions::check() const {
  const std::map<std::string, Index> least = {
      {"character", 0}, {"byte", 0}, {"bpe", 257}, {"sentencepiece", 260}};
  const auto found = least.find(tokenizer);
  require(found != least.end(),
          "--tokenizer must be character, byte, bpe or sentencepiece; got " + tokenizer);
  require(vocabulary >= found->second, "--vocabulary must be at least " + std::to_string(found->second) +
                                           " with --tokenizer " + tokenizer + ", which has all bytes; got " +
                                           std::to_string(vocabulary));
  require(validation_fraction > 0 && validation_fraction < 1,
          "--validation-fraction must be above 0 and below 1; got " + std::to_string(validation_fraction));
  for (const std::string& path : corpus)
    require(!path.empty(), "--corpus must name a file or folder; got nothing");
  for (const std::string& path : validation)
    require(!path.empty(), "--validation must name a file or folder; got nothing");
}

void LanguageDataOptions::refuse_ignored(const Command& command) const {
  if (!validation.empty()) command.refuse({"--validation-fraction"}, "with --validation");
  if (!tokenizer_model.empty()) command.refuse({"--tokenizer", "--vocabulary"}, "with --tokenizer-model");
  if (tokenizer == "character" || tokenizer == "byte")
    command.refuse({"--vocabulary"}, "with --tokenizer " + tokenizer);
}

DecoderOnlyConfig LanguageOptions::model_config(Index vocabulary_size) const {
  const FeedForwardKind& kind = feed_forward_kind_named(feed_forward_kind);
  DecoderOnlyConfig config;
  config.vocabulary = vocabulary_size;
  config.context = context;
  config.layers = layers;
  config.width = width;
  config.attention.kind = attention;
  config.attention.heads = heads;
  config.attention.groups = groups;
  config.attention.key_width = head_width;
  config.attention.latent_width = latent_width;
  config.attention.query_latent_width = query_latent_width;
  config.attention.rotary_width = rotary_width;
  config.attention.bias = config.norm_bias = config.feed_forward_bias = bias;
  config.norm = norm_kind(norm);
  config.epsilon = epsilon;
  config.positions = position_kind(positions);
  config.attention.rotations.base = rotary_base;
  config.feed_forward = feed_forward;
  config.activation = kind.activation;
  config.gated = kind.gated;
  config.tie_head = !untied_head;
  config.attention.dropout = config.embedding_dropout = config.residual_dropout = dropout;
  config.prefix = prefix;
  return config;
}

void LanguageOptions::take_model(const DecoderOnlyConfig& config) {
  layers = config.layers;
  heads = config.attention.heads;
  width = config.width;
  context = config.context;
  attention = config.attention.kind;
  groups = config.attention.groups;
  head_width = config.attention.key_width;
  latent_width = config.attention.latent_width;
  query_latent_width = config.attention.query_latent_width;
  rotary_width = config.attention.rotary_width;
  positions = name_of(config.positions);
  rotary_base = config.attention.rotations.base;
  norm = name_of(config.norm);
  epsilon = config.epsilon;
  feed_forward_kind = feed_forward_name(config);
  feed_forward = config.feed_forward;
  bias = config.feed_forward_bias;
  untied_head = !config.tie_head;
  prefix = config.prefix;
}

void LanguageOptions::check() const {
  data.check();
  require(tokens.empty() || (data.corpus.empty() && data.validation.empty()),
          "--tokens is a corpus already prepared; it excludes --corpus and --validation");
  require(tokens.empty() || data.tokenizer_model.empty(),
          "--tokens has a tokenizer; it excludes --tokenizer-model");
  require(groups == 0 || attention == "gqa", "--groups needs --attention gqa");
  for (const auto& [name, size] :
       {std::pair("--latent-width", latent_width), std::pair("--query-latent-width", query_latent_width),
        std::pair("--rotary-width", rotary_width)}) {
    require(size == 0 || attention == "mla", std::string(name) + " needs --attention mla");
  }
  require(dropout >= 0 && dropout < 1, "--dropout must be in [0, 1); got " + std::to_string(dropout));
  require(batch > 0 && validation_batches > 0, "--batch and --validation-batches must be positive; got " +
                                                   std::to_string(batch) + " and " +
                                                   std::to_string(validation_batches));
  require(head_chunk >= 0, "--head-chunk must not be negative; got " + std::to_string(head_chunk));
  require(head_chunk == 0 || fused_head, "--head-chunk needs --fused-head");
  require(validation_kind == "auto" || validation_kind == "exact" || validation_kind == "estimate" ||
              validation_kind == "both",
          "--validation-kind must be auto, exact, estimate or both; got " + validation_kind);
  window_order(order);
  training.check();
  if (from.empty()) model_config(data.vocabulary).check();  // whatever the vocabulary's size will be
}

void LanguageOptions::refuse_ignored(const Command& command) const {
  if (!tokens.empty())
    command.refuse({"--tokenizer", "--vocabulary", "--validation-fraction"}, "with --tokens");
  if (positions != "rotary" && attention != "mla")
    command.refuse({"--rotary-base"}, "without --positions rotary or --attention mla");
  data.refuse_ignored(command);
  training.refuse_ignored(command);
}

void to_json(nlohmann::ordered_json& json, const LanguageOptions& options) { write_options(json, options); }

void from_json(const nlohmann::ordered_json& json, LanguageOptions& options) {
  read_options(json, options, {"recompute_layers"});
}

void adapt_preset(LanguageOptions& options, const Command& command) {
  const LanguageOptions preset(options.preset);
  const auto given = [&](const char* flag) { return command.find(flag).given(); };
  if (options.attention != preset.attention) {
    if (!given("--groups")) options.groups = 0;
    if (!given("--latent-width")) options.latent_width = 0;
    if (!given("--query-latent-width")) options.query_latent_width = 0;
    if (!given("--rotary-width")) options.rotary_width = 0;
  }
  options.training.adapt_warmup(command);
}

void take_fine_tuned(LanguageOptions& options, const DecoderOnlyConfig& config, const Command& command) {
  const LanguageOptions asked = options;
  options.take_model(config);
  std::map<std::string, std::string> has;
  LanguageOptions::for_each(options, [&](const char*, const char* name, const auto& field, const char*) {
    has[name] = text_of(field);
  });
  options.context = std::min(config.context, kMostUnaskedContext);
  LanguageOptions::for_each(asked, [&](const char* group, const char* name, const auto& field, const char*) {
    if (!command.find(flag_of(name)).given()) return;
    const std::string option = name;
    require(option != "tokenizer" && option != "vocabulary",
            flag_of(option) + " contradicts --from, whose model keeps its tokenizer");
    if (option == "context" && asked.context > 0 && asked.context <= config.context) {
      options.context = asked.context;  // shorter windows are fine
    } else if (option == "prefix") {
      options.prefix = asked.prefix;  // changes no weight
    } else if (group == std::string("Model") && text_of(field) != has[option]) {
      throw Error(flag_of(option) + " " + text_of(field) + " contradicts --from " + options.from +
                  ", which has " + has[option]);
    }
  });
}

std::string model_text(const DecoderOnlyConfig& config) {
  const AttentionConfig attention = config.attention_config().resolved();
  std::string text = number_of(config.layers, "layer") + ", width " + std::to_string(config.width) +
                     ", context " + std::to_string(config.context) + ", vocabulary " +
                     std::to_string(config.vocabulary) + ", " + number_of(attention.heads, "head") + " of " +
                     attention.kind;
  if (attention.groups > 1) text += " on " + std::to_string(attention.key_heads()) + " of keys and values";
  text += std::string(", ") + name_of(config.positions) + " positions, " + name_of(config.norm) + " norm, " +
          feed_forward_name(config) + " of " + std::to_string(config.hidden_width()) +
          (config.feed_forward_bias ? ", biases" : ", no biases") +
          (config.tie_head ? ", tied head" : ", a head of its own");
  if (config.prefix) text += ", prefix";
  return text;
}

}  // namespace tapeformer
