#include <tapeformer/autograd/ops/embedding.h>
#include <tapeformer/tests/nn/generation/language_case.h>
#include <tapeformer/tests/nn/transformer/decoder_only_case.h>

using namespace tapeformer;

namespace {

struct SharingVariant {
  std::string name;
  std::function<void(DecoderOnlyConfig&)> change;
};

/// Differences between layers, and values that they pass to each other.
const std::vector<SharingVariant>& sharing_variants() {
  static const std::vector<SharingVariant> all = {
      {"windows", [](auto& c) { c.window = 7; }},
      {"windows in SSL", [](auto& c) { c.window = 16, c.windows = "SSL"; }},
      {"windows in SSL with their base",
       [](auto& c) { c.window = 16, c.windows = "SSL", c.window_rotary_base = 50; }},
      {"value residual", [](auto& c) { c.value_residual = true; }},
      {"keys of 2", [](auto& c) { c.kv_sharing = 2; }},
      {"keys of 3, windows in SL", [](auto& c) { c.kv_sharing = 3, c.window = 20, c.windows = "SL"; }},
      {"keys of all, no positions", [](auto& c) { c.kv_sharing = 5, c.positions = PositionKind::none; }},
  };
  return all;
}

DecoderOnlyConfig config_of(const SharingVariant& variant) {
  DecoderOnlyConfig config = language_config({"gqa", PositionKind::rotary}, 256);
  config.layers = 5;
  variant.change(config);
  return config;
}

Tensor tokens(Index rows, Index length) { return random_ids({rows, length}, kLanguageVocabulary, 7); }

std::string windows_of(const std::string& windows, Index layers) {
  DecoderOnlyConfig config;
  config.window = 4, config.windows = windows, config.layers = layers;
  std::string letters;
  for (Index i = 0; i < layers; ++i) letters += config.has_window(i) ? 'S' : 'L';
  return letters;
}

}  // namespace

TEST_CASE("windows repeat, the last layer sees all, and a letter for each layer is taken as it is") {
  CHECK(windows_of("", 3) == "SSS");
  CHECK(windows_of("SSSL", 9) == "SSSLSSSLL");
  CHECK(windows_of("SSSL", 7) == "SSSLSSL");
  CHECK(windows_of("S", 3) == "SSL");
  CHECK(windows_of("SLS", 3) == "SLS");
  DecoderOnlyConfig config;
  CHECK_FALSE(config.has_window(0));
}

TEST_CASE("windowed layers have a rotary base of their own, and are not scaled") {
  DecoderOnlyConfig config = language_config({"gqa", PositionKind::rotary}, 40);
  config.layers = 3, config.window = 5, config.windows = "SL";
  RotaryConfig& rotations = config.attention.rotations;
  rotations = {70, RotaryLayout::half_split, 2, 99, 4, 32, 1, 8, true, 1.1, true};
  CHECK(config.attention_config(0).rotations.base == 70);
  config.window_rotary_base = 20;
  const RotaryConfig of_window = config.attention_config(0).rotations;
  CHECK(of_window.base == 20);
  CHECK(of_window.factor == 1);
  CHECK(of_window.original_context == 0);
  CHECK_FALSE(of_window.yarn);
  CHECK(of_window.attention_factor == 1);
  CHECK(of_window.layout == RotaryLayout::half_split);
  CHECK(of_window.width == 2);
  CHECK(of_window.max_positions == 99);
  CHECK(of_window.reversed);
  for (const Index layer : {1, 2}) CHECK(config.attention_config(layer).rotations.base == 70);
}

TEST_CASE("layers of another kind or base rotate queries and keys by their own angles") {
  const std::vector<SharingVariant> own_angles = {
      {"mla, then gqa", [](auto& c) { c.attention.kind = "mla", c.attention_pattern = "DF"; }},
      {"gqa, then mla", [](auto& c) { c.full_attention = "mla", c.attention_pattern = "DF"; }},
      {"another base", [](auto& c) { c.window_rotary_base = 7; }},
      {"both",
       [](auto& c) { c.window_rotary_base = 7, c.attention_pattern = "DF", c.attention.kind = "mla"; }},
  };
  for (const SharingVariant& variant : own_angles) {
    CAPTURE(variant.name);
    DecoderOnlyConfig config = language_config({"gqa", PositionKind::rotary}, 20);
    config.full_attention = "gqa", config.layers = 3, config.window = 4, config.windows = "SLL";
    variant.change(config);
    DecoderOnly model = language_model(config);
    const std::map<std::string, Tensor> values = parameters_of(model);
    const auto load = [&](Module& part, const std::string& path) {
      for (auto& [name, parameter] : part.named_parameters()) parameter.set_value(values.at(path + name));
    };
    const Tensor ids = tokens(2, 12);
    Generator random(test_seed(1));
    Tensor x_btc = embedding(values.at("embedding.weight"), ids);
    for (Index i = 0; i < config.layers; ++i) {
      DecoderOnlyLayer layer(config, random, i);
      load(layer, "layers." + std::to_string(i) + ".");
      DecoderOnlyContext context;
      context.causal = true;
      x_btc = layer(x_btc, context);
    }
    Norm norm({config.norm, config.width, config.epsilon, config.norm_bias});
    load(norm, "norm.");
    CHECK_BELOW(relative_error(norm(x_btc), model.states(ids)), 1e-13);
  }
}

TEST_CASE_FIXTURE(SingleThread,
                  "over many tokens, caches in any portions give what all tokens give at once") {
  const Index length = cached_tokens();
  for (const SharingVariant& variant : sharing_variants()) {
    const DecoderOnly model = language_model(config_of(variant));
    const Tensor ids = tokens(2, length), whole = model.states(ids);
    for (const CacheKind kind : {CacheKind::contiguous, CacheKind::paged}) {
      CAPTURE(variant.name);
      LayerCaches caches = model.start({kind, 0, 7});
      TensorList parts;
      for (Index from = 0; from < length;) {
        const Index count = from == 10 ? 15 : 1;
        parts.push_back(model.states(columns(ids, from, count), caches));
        from += count;
      }
      CHECK_BELOW(relative_error(concat(parts, 1), whole), 1e-11);
      caches.reorder({1, 0, 1});
      CHECK(caches.layer(0).rows() == 3);
    }
  }
}

TEST_CASE("layers that share keys and values have neither their parameters nor caches of their own") {
  const auto sizes = [](Index sharing) {
    DecoderOnlyConfig config = config_of(sharing_variants()[0]);
    config.layers = 6, config.kv_sharing = sharing;
    DecoderOnly model = language_model(config);
    LayerCaches caches = model.start();
    model.states(tokens(2, 10), caches);
    return std::pair(model.parameter_count(), caches.bytes());
  };
  const auto [parameters, bytes] = sizes(1);
  const Index of_layer = 2 * 2 * 4 * (16 + 1);  // two groups' keys and values of width 4 from 16, and biases
  CHECK(bytes == 6 * 2 * 10 * 2 * 2 * 4 * 8);
  for (const Index sharing : {2, 3, 4, 6}) {
    CAPTURE(sharing);
    const Index layers = (5 / sharing) + 1;
    CHECK(sizes(sharing).first == parameters - (6 - layers) * of_layer);
    CHECK(sizes(sharing).second == bytes / 6 * layers);
  }
}

TEST_CASE("options that contradict each other are refused") {
  const auto refused = [](const std::function<void(DecoderOnlyConfig&)>& change) {
    DecoderOnlyConfig config = language_config({"gqa", PositionKind::rotary}, 20);
    change(config);
    return message_of<Error>([&] { config.check(); });
  };
  CHECK(refused([](auto& c) { c.windows = "SL"; }) ==
        "[decoder_only] windows=SL need a window; try window=128");
  CHECK(refused([](auto& c) { c.window = 4, c.windows = "SX"; }) ==
        "[decoder_only] windows must consist of S and L, as SSSL does; got SX");
  CHECK(refused([](auto& c) { c.window = 4, c.windows = "SSSL"; }) ==
        "[decoder_only] windows must have at most one letter per layer; got SSSL for 2 layers");
  CHECK(refused([](auto& c) { c.window_rotary_base = 100; }) ==
        "[decoder_only] window_rotary_base=100 needs a window in layers with rotary positions; try "
        "window=128 and positions=rotary");
  CHECK(refused([](auto& c) {
          c.window_rotary_base = 7, c.window = 4, c.attention.kind = "deltanet", c.attention_pattern = "DF";
          c.windows = "LL";
        }) != "nothing was thrown");
  CHECK(
      refused([](auto& c) {
        c.window_rotary_base = 7, c.window = 4, c.attention = {"mla", 4}, c.positions = PositionKind::learned;
      }) == "nothing was thrown");
  CHECK(refused([](auto& c) { c.window_rotary_base = 7, c.window = 4, c.kv_sharing = 2; }) ==
        "[decoder_only] kv_sharing excludes window_rotary_base, since layers that share keys rotate "
        "them alike");
  CHECK(refused([](auto& c) { c.kv_sharing = 2, c.value_residual = true; }) ==
        "[decoder_only] kv_sharing excludes value_residual, since layers that share have no values of "
        "their own");
  CHECK(refused([](auto& c) {
          c.attention = {"mla", 4}, c.value_residual = true;
        }) == "[decoder_only] value_residual is for attention=mha, gqa, mqa; got mla");
  CHECK(refused([](auto& c) {
          c.attention = {"mla", 4}, c.kv_sharing = 2;
        }) == "[decoder_only] kv_sharing is for attention=mha, gqa, mqa; got mla");
  CHECK(refused([](auto& c) { c.attention.shared_keys = true; }) ==
        "[decoder_only] the model decides its attention's shared_keys; got shared_keys=true; try "
        "shared_keys=false");
}
