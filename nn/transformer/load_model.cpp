#include <tapeformer/autograd/words.h>
#include <tapeformer/nn/attention/attention_kind.h>
#include <tapeformer/nn/attention/heads.h>
#include <tapeformer/nn/transformer/load_model.h>

#include <algorithm>

namespace tapeformer {
namespace {

constexpr double kProportion = 4;           // a model this many times larger than its file passes
constexpr Index kMostLayers = 1000;         // that are counted: a damaged file may name any number
constexpr double kMostSinusoids = 1 << 27;  // a GiB

double parameters_of(const AttentionConfig& attention) {
  if (!attention_kind(attention.kind).cost) return 0;
  return static_cast<double>(attention_cost(attention, {}).parameters);
}

double product(Index a, Index b) { return static_cast<double>(a) * static_cast<double>(b); }

}  // namespace

LeastSize least_size(const DecoderOnlyConfig& config) {
  const double embedding = product(config.vocabulary, config.width),
               positions = product(config.context, config.width),
               feed_forward = product(config.width, config.hidden_width()) * (config.gated ? 3 : 2);
  LeastSize size;
  size.layers = config.layers;
  size.weights = embedding * (config.tie_head ? 1 : 2) + feed_forward * static_cast<double>(config.layers);
  DecoderOnlyConfig some = config;
  some.layers = std::min(config.layers, kMostLayers);
  for_each_attention(some,
                     [&](const AttentionConfig& attention) { size.weights += parameters_of(attention); });
  size.weights += 2 * product(config.short_convolution, config.width) * static_cast<double>(config.layers);
  if (config.positions == PositionKind::learned) size.weights += positions;
  if (config.positions == PositionKind::sinusoidal) size.sinusoids = positions;
  return size;
}

LeastSize least_size(const EncoderDecoderConfig& config) {
  const TransformerLayerConfig& layer = config.layer;
  const double source = product(config.source_vocabulary, layer.width),
               target = product(config.target_vocabulary, layer.width),
               positions = 2 * product(config.max_length, layer.width),
               feed_forward = 2 * product(layer.width, or_else(layer.feed_forward, 4 * layer.width)),
               self = parameters_of(layer.attention_config(false)) + feed_forward,
               cross = parameters_of(layer.attention_config(true));
  LeastSize size;
  size.layers = config.encoder_layers + config.decoder_layers;
  size.weights = source + (config.tie_embeddings ? 0 : target) + (config.tie_target_head ? 0 : target) +
                 static_cast<double>(config.encoder_layers) * self +
                 static_cast<double>(config.decoder_layers) * (self + cross);
  if (config.positions == PositionKind::learned) size.weights += positions;
  if (config.positions == PositionKind::sinusoidal) size.sinusoids = positions;
  return size;
}

void check_proportion(const LeastSize& size, const SafetensorsFile& file) {
  double numbers = 0;
  const std::vector<std::string> names = file.names();
  for (const std::string& name : names) numbers += static_cast<double>(file.shape(name).elements());
  const auto fail = [&](const std::string& what) {
    throw CheckpointError(file.path() + ": the weights do not fit the model: " + what);
  };
  const auto text = [](double number) {
    std::ostringstream out;
    out << number;
    return out.str();
  };
  if (size.layers > static_cast<Index>(names.size())) {
    fail("too few tensors for " + number_of(size.layers, "layer"));
  }
  if (size.weights > kProportion * numbers) {
    fail(text(numbers) + " numbers in the file and " + text(size.weights) + " or more in the model");
  }
  if (size.sinusoids > kMostSinusoids) {
    fail("a table of " + text(size.sinusoids) + " sinusoids is too large; try fewer positions");
  }
}

}  // namespace tapeformer
