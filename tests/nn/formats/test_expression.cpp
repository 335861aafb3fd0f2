#include <tapeformer/nn/attention/attention_kind.h>
#include <tapeformer/nn/formats/expression.h>
#include <tapeformer/nn/formats/gguf_model.h>
#include <tapeformer/nn/formats/hugging_face.h>
#include <tapeformer/tests/nn/module_case.h>
#include <tapeformer/tests/reference/config_case.h>
#include <tapeformer/tests/reference/random_cases.h>

#include <set>

using namespace tapeformer;

namespace {

DecoderOnlyConfig expressible_llama() {
  DecoderOnlyConfig config;
  config.vocabulary = 5, config.layers = 2, config.width = 24, config.context = 8;
  config.norm = NormKind::rms, config.positions = PositionKind::rotary;
  config.gated = true, config.activation = Unary::silu;
  return config;
}

/// Fields that a file need not have: they follow from weights or other fields, or nothing depends on them.
const std::string kNotInFiles =
    " attention groups attention_bias attention_output_bias norm_bias feed_forward_bias rotary_layout "
    "rotary_low_frequency rotary_high_frequency rotary_max_positions zero_init embedding_dropout "
    "residual_dropout feed_forward_dropout attention_dropout qk_norm_epsilon full_attention bias_buckets "
    "bias_distance windows position_pattern attention_pattern router_z_loss ";

/// The first field that differs between `read` and `config`.
std::string lost_field(const DecoderOnlyConfig& config, const DecoderOnlyConfig& read) {
  const FieldList ours = fields_of(config), theirs = fields_of(read);
  for (std::size_t i = 0; i < ours.size(); ++i) {
    const std::string &name = ours[i].name, value = ours[i].text();
    const bool is_derived =
        value == "0" && (name == "head_width" || name == "feed_forward" || name == "window_rotary_base" ||
                         name == "latent_width" || name == "rotary_width" || name == "expert_width" ||
                         name.find("state_") == 0);
    const bool is_idle = (name.find("rotary_") == 0 && config.positions != PositionKind::rotary) ||
                         (name == "swiglu_alpha" && config.swiglu.limit == 0);
    if (kNotInFiles.find(" " + name + " ") == std::string::npos && !is_derived && !is_idle &&
        value != theirs[i].text())
      return name;
  }
  for (Index layer = 0; layer < config.layers; ++layer)
    if (config.has_window(layer) != read.has_window(layer) || config.rotates(layer) != read.rotates(layer) ||
        (attention_kind(config.attention_config(layer).kind).can & kHasState) !=
            (attention_kind(read.attention_config(layer).kind).can & kHasState))
      return "windows, positions or states";
  return {};
}

/// Writes the model; false if that is refused.
bool is_written(const Expression& expression, const DecoderOnlyConfig& config) {
  Generator random(0);
  DecoderOnly model(config, random);
  try {
    if (expression.format == &gguf_format()) {
      gguf_metadata(config);
    } else {
      const DecoderOnlyConfig read = hugging_face_config(hugging_face_json(config));
      CHECK(expression_in(transformers_format(), read).family == expression.family);
      CHECK(lost_field(config, read) == "");
    }
    foreign_tensors(expression.family->names, layouts_of(model), model);
    return true;
  } catch (const CheckpointError& error) {
    CHECK(std::string(error.what()) == message_of<CheckpointError>([&] { expression.check(); }));
    return false;
  }
}

void check_expressions(const DecoderOnlyConfig& config) {
  for (const ModelFormat* const format : {&transformers_format(), &gguf_format()}) {
    const Expression expression = expression_in(*format, config);
    CAPTURE(format->name);
    CHECK(is_written(expression, config) == expression.changes.empty());
    CHECK_NOTHROW(expression.nearest.check());
    const Expression again = expression_in(*format, expression.nearest);
    CHECK(again.changes.empty());
    CHECK(is_written(again, expression.nearest));
    if (expression.changes.empty()) CHECK(expression.nearest.to_json() == config.to_json());
  }
}

std::string refused(const DecoderOnlyConfig& config) {
  return message_of<CheckpointError>([&] { expression_in(transformers_format(), config).check(); });
}

}  // namespace

TEST_CASE_FIXTURE(SingleThread,
                  "what a format can express is written, and the rest refused with a remedy that works") {
  DecoderOnlyConfig gpt2, gemma = expressible_llama(), minutes = expressible_llama(),
                          state = expressible_llama(), some = expressible_llama(),
                          scaled = expressible_llama(), bloom, plain = expressible_llama(),
                          differential = expressible_llama(), hybrid = expressible_llama();
  gpt2.vocabulary = 5, gpt2.layers = 2, gpt2.width = 24, gpt2.context = 8;
  gemma.sublayer_norms = SublayerNorms::both, gemma.embedding_scale = 0, gemma.attention.score_scale = 0.5;
  gemma.feed_forward_bias = false, gemma.window = 3, gemma.windows = "SL";
  minutes.gated = false, minutes.activation = Unary::relu_squared, minutes.short_convolution = 4;
  minutes.attention.qk_norm = QkNorm::rms;
  some.position_pattern = "RN";
  scaled.residual_scale = 0.5, scaled.head_scale = 0.25, scaled.attention.score_scale = 0.25;
  state.attention.kind = "gla", state.attention_pattern = "DF";
  bloom = gpt2;
  bloom.positions = PositionKind::alibi, bloom.embedding_norm = true;
  plain.norm_gain = plain.gated = plain.feed_forward_bias = false, plain.activation = Unary::relu_squared;
  plain.embedding_norm = plain.attention.rotations.reversed = true;
  plain.attention.qk_norm = QkNorm::plain, plain.attention.qk_norm_epsilon = plain.epsilon;
  differential.attention.kind = "differential", differential.attention.head_norm_gain = false;
  differential.feed_forward_bias = false, differential.attention.key_width = 4;
  hybrid.attention.kind = "gated_deltanet", hybrid.attention_pattern = "DF", hybrid.full_attention = "gqa";
  hybrid.attention.qk_norm = QkNorm::rms, hybrid.attention.output_gate = OutputGate::element;
  hybrid.attention.bias = hybrid.feed_forward_bias = false;
  hybrid.attention.own = {{"state_norm_epsilon", hybrid.epsilon}};
  hybrid.attention.qk_norm_epsilon = hybrid.epsilon;
  hybrid.attention.rotations.layout = RotaryLayout::half_split;
  DecoderOnlyConfig mixed = hybrid;
  mixed.experts.experts = 3, mixed.experts.shared = 5, mixed.experts.shared_gate = true;
  std::vector<DecoderOnlyConfig> starts = {
      gpt2,  expressible_llama(), gemma,  minutes, state, some, scaled, bloom,
      plain, differential,        hybrid, mixed};
  for (const DecoderOnlyConfig& start : {bloom, plain, differential, hybrid, mixed})
    CHECK(refused(start) == "nothing was thrown");
  for (const char* const kind : {"gqa", "mqa", "mla", "differential"}) {
    starts.push_back(expressible_llama());
    starts.back().attention.kind = kind;
  }
  Generator random(test_seed(4));
  const int cases = random_cases(45);
  Index tried = 0;
  for (const DecoderOnlyConfig& start : starts) {
    check_expressions(start);
    const std::size_t fields = fields_of(start).size();
    for (int i = 0; i < cases; ++i) {
      DecoderOnlyConfig config = start;
      std::set<std::string> changed = {"vocabulary", "activation"};  // not a format's concern; the case below
      for (std::uint64_t more = 1 + random.below(3); more > 0; --more) {
        FieldList list = fields_of(config);
        ConfigField& field = list[random.below(fields)];
        if (changed.insert(field.name).second) change(field);
      }
      try {
        Generator draws(1);
        DecoderOnly(config, draws);
      } catch (const Error&) {  // not a model
        continue;
      }
      INFO(config.to_json());
      check_expressions(config);
      ++tried;
    }
  }
  CHECK(tried > cases);
}

TEST_CASE("layers that share a pattern with others leave nothing of those behind") {
  for (const auto& [kind, full] : {std::pair("gla", "gqa"), {"mha", "gqa"}, {"gla", "differential"}}) {
    DecoderOnlyConfig config = expressible_llama();
    config.attention.kind = kind, config.full_attention = full, config.attention_pattern = "DF";
    config.attention.groups = 2;
    check_expressions(config);
  }
}

TEST_CASE("the nearest family is the one that wants the fewest changes") {
  const auto family = [](const DecoderOnlyConfig& config) {
    return std::string(expression_in(transformers_format(), config).family->type);
  };
  DecoderOnlyConfig config = expressible_llama();
  CHECK(family(config) == "llama");
  config.window = 4;
  CHECK(family(config) == "smollm3");  // as a Mistral has no biases
  config.attention.bias = config.feed_forward_bias = false;
  CHECK(family(config) == "mistral");
  config = expressible_llama();
  config.attention.qk_norm = QkNorm::rms, config.feed_forward_bias = false;
  CHECK(refused(config) ==
        "[export] transformers has no such model; Qwen 3 differs least; got epsilon=1e-05; try "
        "epsilon=1e-06");  // that of the norms of queries and keys
  config.attention.qk_norm_epsilon = config.epsilon;
  CHECK(family(config) == "qwen3");
  CHECK_NOTHROW(expression_in(transformers_format(), config).check());
  config = expressible_llama();
  config.norm = NormKind::layer;
  CHECK(refused(config) ==
        "[export] transformers has no such model; Llama differs least; got norm=layer; try norm=rms");
}
