#include <tapeformer/autograd/error.h>
#include <tapeformer/nn/formats/meta_llama.h>
#include <tapeformer/nn/formats/strict_json.h>

namespace tapeformer {
namespace {

constexpr const char* kEmbedding = "tok_embeddings.weight";
constexpr int kLevels = 4;

std::string layer(Index i, const char* name) { return "layers." + std::to_string(i) + "." + name; }

/// The size of a matrix along `axis`, which must be positive.
Index matrix_size(const SafetensorsFolder& files, const std::string& name, int axis) {
  const Shape& shape = files.shape(name);
  if (shape.rank() != 2 || shape.elements() == 0) {
    throw CheckpointError(files.path() + ": tensor '" + name + "' must be a matrix; got " + shape.text());
  }
  return shape[axis];
}

RotaryConfig read_rotations(JsonFields& fields) {
  RotaryConfig rotations;
  rotations.base = fields.number("rope_theta", 10000);
  const bool scaled = fields.flag("use_scaled_rope", false);
  if (!scaled) {
    fields.ignore({"rope_scaling_factor", "rope_high_freq_factor"});
    return rotations;
  }
  // Without a default, because files differ in the one that they assume.
  rotations.factor = fields.number("rope_scaling_factor");
  rotations.high_frequency = fields.number("rope_high_freq_factor", 4);
  rotations.original_context = 8192;
  if (rotations.high_frequency <= rotations.low_frequency) {
    fields.fail("rope_high_freq_factor", "must be above 1");
  }
  return rotations;
}

}  // namespace

bool has_meta_names(const SafetensorsFolder& files) { return files.contains(kEmbedding); }

DecoderOnlyConfig meta_llama_config(const SafetensorsFolder& files, const MetaLlamaSettings& settings) {
  const auto fail = [&](const std::string& what) { throw CheckpointError(files.path() + ": " + what); };
  if (settings.heads <= 0 || settings.context <= 0) {
    fail("heads and context must be positive; got heads=" + std::to_string(settings.heads) +
         ", context=" + std::to_string(settings.context));
  }
  DecoderOnlyConfig config;
  config.vocabulary = matrix_size(files, kEmbedding, 0);
  config.width = matrix_size(files, kEmbedding, 1);
  config.context = settings.context;
  config.layers = 0;
  while (files.contains(layer(config.layers, "attention_norm.weight"))) ++config.layers;
  const Index queries = matrix_size(files, layer(0, "attention.wq.weight"), 0),
              keys = matrix_size(files, layer(0, "attention.wk.weight"), 0);
  config.attention.heads = settings.heads;
  config.attention.key_width = queries / settings.heads;
  if (queries % settings.heads != 0 || keys % config.attention.key_width != 0) {
    fail("queries of " + std::to_string(queries) + " and keys of " + std::to_string(keys) +
         " components do not divide into " + std::to_string(settings.heads) + " heads");
  }
  const Index groups = keys / config.attention.key_width;
  if (groups != config.attention.heads) {
    config.attention.kind = "gqa";
    config.attention.groups = groups;
  }
  config.feed_forward = matrix_size(files, layer(0, "feed_forward.w1.weight"), 0);
  config.gated = true;
  config.activation = Unary::silu;
  config.norm = NormKind::rms;
  config.epsilon = settings.epsilon;
  config.positions = PositionKind::rotary;
  config.attention.rotations = settings.rotations;
  config.attention.rotations.layout = RotaryLayout::interleaved;
  config.attention.bias = config.feed_forward_bias = false;
  config.tie_head = !files.contains("output.weight");
  try {
    config.check();
  } catch (const Error& error) {
    fail(error.what());
  }
  return config;
}

DecoderOnlyConfig meta_llama_config(const SafetensorsFolder& files, const std::string& params_json) {
  auto json = parse_json(params_json, "params.json", kLevels);
  const auto vocabulary = json.find("vocab_size");
  if (vocabulary != json.end() && *vocabulary == -1) json.erase("vocab_size");  // the size of the tokenizer
  JsonFields fields(std::move(json), "params.json: ");
  MetaLlamaSettings settings;
  settings.heads = fields.size("n_heads");
  settings.context = fields.size("max_seq_len", settings.context);
  settings.epsilon = fields.number("norm_eps", settings.epsilon);
  settings.rotations = read_rotations(fields);
  const DecoderOnlyConfig config = meta_llama_config(files, settings);
  const auto require = [&](const char* name, Index given, Index found) {
    if (given == found) return;
    fields.fail(name, "is " + std::to_string(given) + ", but " + std::to_string(found) +
                          " by the tensors of " + files.path());
  };
  require("dim", fields.size("dim"), config.width);
  require("n_layers", fields.size("n_layers"), config.layers);
  require("n_kv_heads", fields.size("n_kv_heads", config.attention.heads), config.attention.key_heads());
  require("head_dim", fields.size("head_dim", config.attention.key_width), config.attention.key_width);
  require("hidden_dim", fields.size("hidden_dim", config.feed_forward), config.feed_forward);
  require("vocab_size", fields.size("vocab_size", config.vocabulary), config.vocabulary);
  fields.demand("sliding_window", nullptr);
  fields.demand("moe", nullptr);
  // The first two gave the size of the feed-forward network, which the tensors tell; the last is a size of
  // buffers.
  fields.ignore({"multiple_of", "ffn_dim_multiplier", "max_batch_size"});
  fields.finish();
  return config;
}

}  // namespace tapeformer
