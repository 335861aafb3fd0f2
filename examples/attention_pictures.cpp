// Draws the attention weights of each mechanism of nn/attention/README.md: one layer with random weights,
// over one sentence. Usage: attention_pictures FOLDER; writes NAME.svg for each row of the table below
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/examples/shared/program.h>
#include <tapeformer/examples/translation/attention_svg.h>
#include <tapeformer/nn/attention/attention_kind.h>

#include <algorithm>
#include <cstdio>

namespace tapeformer {
namespace {

using Words = std::vector<std::string>;

constexpr Index kWidth = 16, kHeads = 4;  // C, H

/// With one word twice, to show which mechanisms distinguish its places.
const Words kSentence = {"the", "cat", "saw", "the", "dog", "and", "it", "slept"};

/// One picture: a layer and its call. With several heads only the first five words are drawn, to stay small.
struct Row {
  std::string name, title;
  std::function<void(AttentionConfig&, AttentionContext&)> choose;
  Index heads = 1;
  std::string kind = "mha";
};

/// Variants of one head of multi-head attention, each with a single feature. rows() adds attention_kinds().
std::vector<Row> variants() {
  using Config = AttentionConfig;
  const auto causal = [](const std::function<void(Config&)>& change) {
    return [change](Config& config, AttentionContext& context) {
      context.causal = true;
      change(config);
    };
  };
  const auto prefix = [](Config&, AttentionContext& context) {
    context.causal = true;
    context.prefix_lengths = Tensor::from<std::int32_t>({4}, {1});
  };
  const auto window = [](Config&, AttentionContext& context) {
    context.causal = true;
    context.window_before = 2;
  };
  const auto buckets = [](Config& config) {
    config.relative_bias = RelativeBias::buckets;
    config.bias_buckets = 4, config.bias_distance = 4;
  };
  const auto alibi = [](Config& config) { config.relative_bias = RelativeBias::alibi; };
  const auto sigmoid = [](Config& config) {
    config.weighting = AttentionWeighting::sigmoid, config.sigmoid_keys = 8;
  };
  return {
      {"scaled_dot_product", "every word sees all", [](Config&, AttentionContext&) {}},
      {"causal", "no word sees a later one", causal([](Config&) {})},
      {"prefix", "the first four see each other", prefix},
      {"window", "a window of three", window},
      {"rotary", "turned by positions", causal([](Config& config) { config.rotary = true; })},
      {"qk_norm", "queries and keys of one length", causal([](Config& c) { c.qk_norm = QkNorm::rms; })},
      {"buckets", "a bias for each bucket of distances, four heads", causal(buckets), kHeads},
      {"alibi", "slopes of distance, four heads", causal(alibi), kHeads},
      {"softcap", "no score beyond 1", causal([](Config& config) { config.softcap = 1; })},
      {"sigmoid", "each weight by itself", causal(sigmoid)},
      {"moba", "two blocks of two words each",
       causal([](Config& config) { config.moba_block = 2, config.moba_top_k = 2; })},
      {"indexer", "the two words with the largest scores, four heads",
       causal([](Config& config) { config.index_top_k = 2, config.index_heads = 4; }), kHeads, "mla"},
      {"sinks", "rows that add up to less than one, four heads",
       causal([](Config& config) { config.sinks = true; }), kHeads},
  };
}

/// All pictures, those of kinds with all heads. Kinds with a state have no weights, and
/// those of differential attention may be negative, which a heat map cannot show.
std::vector<Row> rows() {
  std::vector<Row> all = variants();
  for (const AttentionKind& kind : attention_kinds()) {
    if (kind.can & kHasState || kind.name == "differential") continue;
    const bool is_causal = kind.can & kCanModelLanguage;
    const bool has_blocks = kind.uses("nsa_span");
    const auto call = [is_causal, has_blocks](AttentionConfig& config, AttentionContext& context) {
      context.causal = is_causal;
      if (has_blocks)
        config.own = {
            {"nsa_span", 2}, {"nsa_stride", 1}, {"nsa_block", 2}, {"nsa_top_k", 2}, {"nsa_window", 1}};
    };
    all.push_back({kind.name, kind.title + " attention, four heads", call, kHeads, kind.name});
  }
  return all;
}

/// Standard normal components for each word, the same at all of its places. Shapes: [1, T, C]
Tensor embedded(const Words& words) {
  TensorList rows;
  for (const std::string& word : words) {
    const auto first = std::find(words.begin(), words.end(), word) - words.begin();
    Generator random(7, static_cast<std::uint64_t>(first));
    rows.push_back(Tensor::randn({1, 1, kWidth}, random, DType::f64));
  }
  return concat(rows, 1);
}

/// Shapes: [H, T, T]
Tensor weights_of(const Row& row, const Words& words) {
  AttentionConfig config;
  config.kind = row.kind;
  config.width = kWidth, config.heads = row.heads;
  AttentionContext context;
  row.choose(config, context);
  Generator random(1);
  const std::unique_ptr<Attention> layer = make_attention(config, random);
  layer->to(DType::f64);
  for (auto& [name, parameter] : layer->named_parameters()) {
    const bool is_gain = name.find("norm.weight") != std::string::npos;
    random.fill_normal(parameter.value(), is_gain ? 1 : 0, is_gain ? 0 : 0.4);
  }
  const Tensor x_btc = embedded(words);
  Tensor weights_bhtt;
  context.weights = &weights_bhtt;
  (*layer)(x_btc, x_btc, context);
  const auto length = static_cast<Index>(words.size());
  return reshape(weights_bhtt, {row.heads, length, length});
}

int draw_all(const std::string& folder) {
  for (const Row& row : rows()) {
    const Words words(kSentence.begin(), row.heads > 1 ? kSentence.begin() + 5 : kSentence.end());
    write_heat_map(folder + "/" + row.name + ".svg", weights_of(row, words), words, words,
                   {row.heads == 1, row.title});
    std::printf("%s.svg  %s\n", row.name.c_str(), row.title.c_str());
  }
  return kExitSuccess;
}

}  // namespace
}  // namespace tapeformer

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: attention_pictures FOLDER\n");
    return tapeformer::kExitBadInput;
  }
  return tapeformer::run_program("attention_pictures", [&] { return tapeformer::draw_all(argv[1]); });
}
