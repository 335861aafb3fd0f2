#include <tapeformer/autograd/config/yaml.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/autograd/system/file.h>
#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/nn/formats/expression.h>
#include <tapeformer/nn/formats/families/families.h>
#include <tapeformer/nn/formats/marian_npz.h>
#include <tapeformer/nn/formats/npz.h>

#include <algorithm>
#include <map>

namespace tapeformer {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kOptions = "special:model.yml";

/// Norms before sublayers and after the last, or after each; and of the embeddings. A d is dropout.
void describe_norms(TranslationMap& map) {
  map.has({"norm_first", "embedding_norm"});
  EncoderDecoderConfig& model = map.model;
  bool& first = model.layer.norm_first;
  const auto ops = [&](const char* name, const char* otherwise, const std::vector<std::string>& known) {
    std::string text = map.reads->text(name, otherwise), given = text;
    text.erase(std::remove(text.begin(), text.end(), 'd'), text.end());
    if (std::find(known.begin(), known.end(), text) == known.end())
      map.reads->fail(name, "= " + given + " changes the arithmetic and is not implemented");
    return text;
  };
  if (map.reads) {
    first = ops("transformer-preprocess", "", {"", "n"}) == "n";
    ops("transformer-postprocess", "dan", {first ? "a" : "an"});
    ops("transformer-postprocess-top", "", {first ? "n" : ""});
    model.embedding_norm = ops("transformer-postprocess-emb", "d", {"", "n"}) == "n";
  }
  if (map.writes) {
    (*map.writes)["transformer-preprocess"] = first ? "n" : "";
    (*map.writes)["transformer-postprocess"] = first ? "da" : "dan";
    (*map.writes)["transformer-postprocess-top"] = first ? "n" : "";
    (*map.writes)["transformer-postprocess-emb"] = model.embedding_norm ? "nd" : "d";
  }
}

void describe_tables(TranslationMap& map) {
  map.field("source-vocabulary", "source_vocabulary");  // of dim-vocabs, and one more
  map.field("target-vocabulary", "target_vocabulary");
  map.has({"tie_embeddings", "tie_target_head"});
  bool &sides = map.model.tie_embeddings, &head = map.model.tie_target_head;
  if (map.reads) {
    const bool all = map.reads->flag("tied-embeddings-all", false);
    sides = map.reads->flag("tied-embeddings-src", false) || all;
    head = map.reads->flag("tied-embeddings", false) || all;
  }
  if (map.writes) {
    (*map.writes)["tied-embeddings-all"] = sides && head;
    (*map.writes)["tied-embeddings-src"] = sides && !head;
    (*map.writes)["tied-embeddings"] = head && !sides;
  }
}

void describe_networks(TranslationMap& map) {
  const TransformerLayerConfig& layer = map.model.layer;
  Unary& activation = map.model.layer.activation;
  Index& decoder = map.model.decoder_feed_forward;
  map.size("transformer-dim-ffn", "feed_forward",
           layer.feed_forward > 0 ? layer.feed_forward : 4 * layer.width);
  map.has({"decoder_feed_forward"});
  if (map.reads) decoder = map.reads->count("transformer-decoder-dim-ffn", 0);
  if (map.writes) (*map.writes)["transformer-decoder-dim-ffn"] = decoder;
  map.activation("transformer-ffn-activation", "swish", false);
  const bool is_known = activation == Unary::silu || activation == Unary::relu;  // its gelu is another
  if (map.reads && !is_known)
    map.reads->fail("transformer-ffn-activation", "must be swish or relu; others are not implemented");
  if (map.fits && !is_known) activation = Unary::silu;
}

void describe_npz(TranslationMap& map) {
  map.demand("type", "transformer");
  if (map.writes) (*map.writes)["type"] = "transformer", (*map.writes)["version"] = "v1.12.0";
  describe_tables(map);
  map.field("dim-emb", "width");
  map.field("enc-depth", "encoder_layers");
  map.field("dec-depth", "decoder_layers");
  map.field("transformer-heads", "heads");
  map.has({"attention", "key_width", "value_width", "max_length"});
  if (map.fits) fit_bart_heads(map.model);
  describe_networks(map);
  describe_norms(map);
  map.fixed("epsilon", 1e-5);
  map.fixed("positions", std::string("sinusoidal_halves"));
  const std::pair<const char*, Json> demanded[] = {{"transformer-decoder-autoreg", "self-attention"},
                                                   {"transformer-ffn-depth", 2},
                                                   {"transformer-decoder-ffn-depth", 0},
                                                   {"transformer-no-projection", false},
                                                   {"transformer-train-position-embeddings", false},
                                                   {"transformer-train-positions", false},
                                                   {"transformer-tied-layers", Json::array()},
                                                   {"transformer-pool", false},
                                                   {"transformer-depth-scaling", false},
                                                   {"layer-normalization", false},
                                                   {"embedding-normalization", false},
                                                   {"output-omit-bias", false},
                                                   {"right-left", false},
                                                   {"input-types", Json::array()},
                                                   {"lemma-dim-emb", 0},
                                                   {"ulr", false},
                                                   {"ulr-dim-emb", 0}};
  for (const auto& [name, value] : demanded) {
    map.demand(name, value);
    if (map.writes) (*map.writes)[name] = value;
  }
}

const ModelFormatOf<EncoderDecoderConfig>& npz_format() {
  static const std::vector<TranslationFamily> family{
      {"transformer", "its transformer", "", describe_npz, bart_names()}};
  static const ModelFormatOf<EncoderDecoderConfig> format{"Marian", family};
  return format;
}

/// Options of models of other types, and of training.
bool is_unused(const std::string& option) {
  static constexpr const char* kBeginnings[] = {"bert-",
                                                "char-",
                                                "dec-cell",
                                                "enc-cell",
                                                "enc-type",
                                                "dim-rnn",
                                                "skip",
                                                "best-deep",
                                                "transformer-aan",
                                                "transformer-dim-aan",
                                                "transformer-dropout",
                                                "transformer-rnn",
                                                "transformer-guided",
                                                "dropout",
                                                "ulr-keys",
                                                "ulr-query",
                                                "ulr-trainable",
                                                "ulr-soft",
                                                "ulr-dropout",
                                                "embedding-fix",
                                                "lemma-dependency",
                                                "factor",
                                                "max-length",
                                                "version",
                                                "num-devices",
                                                "original-type"};
  return std::any_of(std::begin(kBeginnings), std::end(kBeginnings),
                     [&](const char* beginning) { return option.find(beginning) == 0; });
}

/// The configuration in the options of a model. Throws: CheckpointError
EncoderDecoderConfig config_of_options(const std::string& options) {
  try {
    Json given = parse_yaml(kOptions, options.substr(0, options.find('\0'))), json = Json::object();
    for (const auto& [name, value] : given.items())
      if (!is_unused(name) && name != "dim-vocabs") json[name] = value;
    const Json sizes = given.value("dim-vocabs", Json::array());
    if (sizes.size() != 2 || !sizes[0].is_number_unsigned() || !sizes[1].is_number_unsigned())
      throw CheckpointError("dim-vocabs must have two sizes");
    json["source-vocabulary"] = sizes[0].get<std::uint64_t>() + 1;
    json["target-vocabulary"] = sizes[1].get<std::uint64_t>() + 1;
    JsonFields fields(std::move(json), "");
    EncoderDecoderConfig config = TranslationMap::read(describe_npz, fields);
    fields.finish();
    config.check();
    return config;
  } catch (const Error& error) {
    throw CheckpointError(error.what());
  }
}

/// Marian's names by those of BART.
std::map<std::string, std::string> npz_names(const EncoderDecoderConfig& config) {
  std::map<std::string, std::string> names;
  const std::string end = config.layer.norm_first ? "_pre" : "";
  const auto add_norm = [&](const std::string& theirs, const std::string& npz, const std::string& suffix) {
    names[theirs + ".weight"] = npz + "_ln_scale" + suffix;
    names[theirs + ".bias"] = npz + "_ln_bias" + suffix;
  };
  const auto add_linear = [&](const std::string& theirs, const std::string& npz, char last) {
    names[theirs + ".weight"] = npz + "_W" + last;
    names[theirs + ".bias"] = npz + "_b" + last;
  };
  const auto add_attention = [&](const std::string& theirs, const std::string& npz) {
    for (const char part : {'q', 'k', 'v'}) add_linear(theirs + "." + part + "_proj", npz, part);
    add_linear(theirs + ".out_proj", npz, 'o');
    add_norm(theirs + "_layer_norm", npz + "_Wo", end);
  };
  for (const std::string side : {"encoder", "decoder"}) {
    const Index layers = side == "encoder" ? config.encoder_layers : config.decoder_layers;
    for (Index i = 0; i < layers; ++i) {
      const std::string theirs = format("model.{}.layers.{}.", side, i), npz = format("{}_l{}_", side, i + 1);
      add_attention(theirs + "self_attn", npz + "self");
      if (side == "decoder") add_attention(theirs + "encoder_attn", npz + "context");
      add_linear(theirs + "fc1", npz + "ffn", '1'), add_linear(theirs + "fc2", npz + "ffn", '2');
      add_norm(theirs + "final_layer_norm", npz + "ffn_ffn", end);
    }
    if (!config.tie_embeddings) names["model." + side + ".embed_tokens.weight"] = side + "_Wemb";
    if (config.embedding_norm) add_norm("model." + side + ".layernorm_embedding", side + "_emb", "_pre");
    if (config.layer.norm_first) add_norm("model." + side + ".layer_norm", side + "_top", "");
  }
  if (config.tie_embeddings) names["model.shared.weight"] = "Wemb";
  if (!config.tie_target_head) names["lm_head.weight"] = "decoder_ff_logit_out_W";
  names["final_logits_bias"] = "decoder_ff_logit_out_b";
  return names;
}

bool is_table(const std::string& npz) { return npz.find("Wemb") != std::string::npos; }
/// True for what has a row, or a column, for each token.
bool is_of_tokens(const std::string& npz) {
  return is_table(npz) || npz.find("logit_out") != std::string::npos;
}

/// A tensor of transformers' shapes, for one of Marian's, or the opposite.
Tensor transposed_unless_table(const std::string& npz, const Tensor& x) {
  return x.rank() < 2 || x.size(0) == 1 || is_table(npz) ? x : transpose(x);
}

/// An array of Marian as a tensor of the shape `to`, with zeros for the last token.
Tensor read_array(const NpzFile& file, const std::string& npz, const Shape& to) {
  Tensor x = transposed_unless_table(npz, file.tensor(npz).to(DType::f32));
  const int axis = npz == "decoder_ff_logit_out_b" ? 1 : 0;
  if (is_of_tokens(npz) && x.rank() == 2) {
    Shape one = x.shape();
    one.set(axis, 1);
    x = concat({x, Tensor::zeros(one)}, axis);
  }
  if (to.rank() == 1 && x.rank() == 2 && x.size(0) == 1) x = reshape(x, {x.elements()});
  if (x.shape() == to) return x;
  throw CheckpointError(format("{}: array '{}' is {}, and the model has {} there", file.path(), npz,
                               file.tensor(npz).shape().text(), to.text()));
}

Tensor written_array(const std::string& npz, const Tensor& theirs) {
  Tensor x = theirs;
  if (is_of_tokens(npz)) {
    const int axis = npz == "decoder_ff_logit_out_b" ? 1 : 0;
    x = slice(x, axis, 0, x.size(axis) - 1);
  }
  return x.rank() == 1 ? reshape(x, {1, x.elements()}) : transposed_unless_table(npz, x);
}

/// Options of other types of models, for which other programs ask all the same.
constexpr const char* kUnusedOptions =
    "dec-cell-base-depth: 2\ndec-cell-high-depth: 1\ntransformer-aan-depth: 2\ntransformer-aan-nogate: "
    "false\n"
    "transformer-guided-alignment-layer: last\n";

/// The options as YAML, which ends with a zero.
std::string options_text(const EncoderDecoderConfig& config) {
  Json json = Json::object();
  TranslationMap::write(describe_npz, config, json);
  std::string text =
      format("dim-vocabs:\n  - {}\n  - {}\n", config.source_vocabulary - 1, config.target_vocabulary - 1);
  for (const auto& [name, value] : json.items())
    if (name.find("-vocabulary") == std::string::npos) text += name + ": " + value.dump() + "\n";
  return text + kUnusedOptions + '\0';
}

}  // namespace

EncoderDecoder load_marian(const std::string& path) {
  const NpzFile file = NpzFile::open(path);
  const auto fail = [&](const std::string& what) { throw CheckpointError(path + ": " + what); };
  EncoderDecoderConfig config;
  const std::string options = file.bytes(kOptions);
  try {
    config = config_of_options(options);
  } catch (const CheckpointError& error) {
    fail(error.what());
  }
  if (config.encoder_layers + config.decoder_layers > static_cast<Index>(file.names().size()))
    fail("has too few arrays for its layers");
  const auto names = npz_names(config);
  const NoGradGuard pause;
  std::map<std::string, Tensor> tensors;
  std::size_t used = 1;  // and the options
  std::vector<ForeignParameter> sources;
  try {
    sources = foreign_parameters(bart_names(), layouts_of(config));
  } catch (const ShapeError& error) {
    fail(std::string("the weights do not fit the model: ") + error.what());
  }
  for (const ForeignParameter& source : sources)
    for (const ForeignPart& part : source.parts)
      tensors[part.name] = read_array(file, names.at(part.name), part.shape), ++used;
  for (const std::string& name : file.names()) {
    const bool is_known = name == kOptions || std::any_of(names.begin(), names.end(), [&](const auto& pair) {
                            return pair.second == name;
                          });
    if (!is_known) fail("array '" + name + "' is not in the model");
  }
  Generator random(0);
  EncoderDecoder model(config, random);
  fill_parameters(model, sources, [&](const ForeignPart& part) { return tensors.at(part.name); });
  model.eval();
  return model;
}

void save_marian(const std::string& folder, EncoderDecoder& model,
                 const std::vector<std::string>& vocabularies) {
  const NoGradGuard pause;
  const EncoderDecoderConfig& config = model.config();
  expression_in(npz_format(), config).check();
  const auto names = npz_names(config);
  std::vector<std::pair<std::string, Tensor>> arrays;
  for (const auto& [name, tensor] : foreign_tensors(bart_names(), model)) {
    const std::string& npz = names.at(name);
    const Tensor here = tensor.to(Device::cpu()).to(DType::f32);
    const float* const last = here.data<float>() + here.elements() - here.size(-1);
    if (is_table(npz) && npz != "encoder_Wemb" &&
        std::any_of(last, last + here.size(-1), [](float x) { return x != 0; }))
      throw CheckpointError(format(
          "[export] Marian's decoder begins with zeros; got another embedding of the last token, {}; try "
          "transformers' format",
          config.target_vocabulary - 1));
    arrays.emplace_back(npz, written_array(npz, here));
  }
  std::string decoder = "relative-paths: true\nmodels:\n  - model.npz\nvocabs:\n";
  for (const std::string& vocabulary : vocabularies) decoder += "  - " + Json(vocabulary).dump() + "\n";
  save_npz(folder + "/model.npz", arrays, {{kOptions, options_text(config)}});
  write_atomically(folder + "/decoder.yml", decoder + "beam-size: 6\nnormalize: 1\nword-penalty: 0\n");
}

}  // namespace tapeformer
