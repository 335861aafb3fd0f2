#include <tapeformer/examples/language/options.h>
#include <tapeformer/examples/shared/option_table.h>
#include <tapeformer/tests/examples/arguments.h>
#include <tapeformer/tests/nn/module_case.h>
#include <tapeformer/tests/nn/transformer/config_variants.h>
#include <tapeformer/tests/reference/random_cases.h>
#include <tapeformer/tests/reference/sanitized.h>

#include <map>
#include <optional>
#include <utility>

// No option of the model is accepted and then does nothing.
using namespace tapeformer;

namespace {

constexpr Index kPairTokens = 20;  // enough for distances of several buckets

/// An option and its argument, empty for a flag.
using Choice = std::pair<std::string, std::string>;

const std::map<std::string, std::string> kSmall = {
    {"--layers", "2"}, {"--width", "16"}, {"--heads", "2"}, {"--context", "24"}, {"--feed-forward", "12"}};

std::vector<std::string> arguments_of(const std::vector<Choice>& choices) {
  std::map<std::string, std::string> given = kSmall;
  for (const auto& [flag, value] : choices) given[flag] = value;
  std::vector<std::string> arguments;
  for (const auto& [flag, value] : given) {
    arguments.push_back(flag);
    if (!value.empty()) arguments.push_back(value);
  }
  return arguments;
}

/// The model that the program makes; none if it refuses the options. `refusal` receives the message.
std::optional<DecoderOnlyConfig> model_of(const std::vector<Choice>& choices,
                                          std::string* refusal = nullptr) {
  LanguageOptions options;
  const CommandLine line;
  options.add_to(line);
  try {
    read(line, arguments_of(choices));
    adapt_preset(options, line);
    options.check();
    options.refuse_ignored(line);
    return options.model_config(13);
  } catch (const Error& error) {
    if (refusal != nullptr) *refusal = error.what();
    return {};
  }
}

/// The configuration with its groups spelled out: a request for the default ones changes nothing.
std::string text_of(DecoderOnlyConfig config) {
  config.attention.groups = config.attention_config().resolved().groups;
  return config.to_json();
}

/// The possible effects of an option: parameters, and their results in a step of training.
struct Traits {
  std::string parameters;
  Tensor states;
  double layer_losses = 0;
  bool operator==(const Traits& other) const {
    return parameters == other.parameters && same_bits(states, other.states) &&
           layer_losses == other.layer_losses;
  }
};

const Traits& traits_of(const DecoderOnlyConfig& config) {
  static std::map<std::string, Traits> known;
  const auto [at, is_new] = known.try_emplace(config.to_json());
  if (!is_new) return at->second;
  auto model = fresh_module<DecoderOnly>(config);
  randomise(model, 5);
  for (auto& [name, parameter] : model.named_parameters())
    at->second.parameters += name + parameter.value().shape().text();
  std::vector<std::int32_t> ids;
  for (Index i = 0; i < 2 * kPairTokens; ++i) ids.push_back(static_cast<std::int32_t>(i * i % 13));
  Tape tape;  // as in training, where dropout acts
  LayerRecord record;
  const Tensor prefix = config.prefix ? ids_of({4, 6}, {2}) : Tensor(),
               states = model.states(ids_of(ids, {2, kPairTokens}), prefix, {}, &record);
  at->second.states = model.logits(states).detach();
  for (const Tensor& losses : {record.router_losses, record.index_losses})
    if (losses.defined()) at->second.layer_losses += losses.item();
  return at->second;
}

/// Other arguments of an option than its own: all of its names.
std::vector<std::string> other_arguments(const ConfigField& field) {
  const FieldValue zero = field.zero();
  if (std::holds_alternative<bool>(zero)) return {""};
  if (std::holds_alternative<Index>(zero)) return {flag_of(field.name) == "--heads" ? "4" : "2"};
  const std::string flag = flag_of(field.name);
  if (std::holds_alternative<double>(zero))
    return {flag == "--nsa-window" ? "4" : field.text() == "0" ? "0.5" : "700"};
  if (flag == "--attention-pattern") return {"DF", "F"};
  if (flag == "--windows") return {"SL", "L"};
  return names_for(field);
}

std::vector<Choice> all_choices() {
  std::vector<Choice> choices;
  LanguageOptions options;
  for (const ConfigField& field : fields_of(options)) {
    // The length of rows, a number of blocks where these rows have one, and effects that show only in the
    // first parameters, or in another folder's.
    const std::string name = field.name;
    if (name == "context" || name == "nsa_top_k" || name == "zero_init" || name == "from") continue;
    if (std::string(field.group) != "Model" || field.help.empty()) continue;
    for (const std::string& value : other_arguments(field)) choices.emplace_back(flag_of(field.name), value);
  }
  return choices;
}

}  // namespace

TEST_CASE_FIXTURE(SingleThread, "each accepted option, alone or next to another, changes the model") {
  const std::vector<Choice> choices = all_choices();
  const DecoderOnlyConfig usual = *model_of({});
  Generator random(test_seed(2));
  const Index one_in = is_sanitized() ? 48 : 3;
  const auto check_change = [](const DecoderOnlyConfig& without,
                               const std::optional<DecoderOnlyConfig>& with) {
    if (!with || text_of(*with) == text_of(without)) return;  // refused, or what it was
    CHECK(!(traits_of(*with) == traits_of(without)));
  };
  for (const Choice& one : choices) {
    INFO(one.first, " ", one.second);
    const auto alone = model_of({one});
    check_change(usual, alone);
    if (!alone) continue;
    for (const Choice& other : choices) {
      if (one.first == other.first || random.below(one_in) >= random_cases(3)) continue;
      INFO("before ", other.first, " ", other.second);
      check_change(*alone, model_of({one, other}));
    }
  }
}
