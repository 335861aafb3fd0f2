#include <tapeformer/autograd/config/yaml.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/autograd/storage_limit.h>
#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/nn/formats/ends_with.h>
#include <tapeformer/nn/formats/families/families.h>
#include <tapeformer/nn/formats/marian_npz.h>
#include <tapeformer/nn/formats/npz.h>
#include <tapeformer/nn/transformer/load_model.h>

#include <algorithm>
#include <optional>
#include <sstream>

namespace tapeformer {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kOptions = "special:model.yml";
constexpr Index kMaxLength = 512;  // Marian has no limit

/// Options that must have these values.
constexpr const char* kDemanded = R"({
  "type": "transformer", "transformer-decoder-autoreg": "self-attention", "transformer-ffn-depth": 2,
  "transformer-decoder-ffn-depth": 0, "transformer-no-projection": false, "transformer-pool": false,
  "transformer-train-position-embeddings": false, "transformer-train-positions": false,
  "transformer-tied-layers": [], "transformer-depth-scaling": false, "layer-normalization": false,
  "embedding-normalization": false, "output-omit-bias": false, "right-left": false, "input-types": [],
  "lemma-dim-emb": 0, "ulr": false, "ulr-dim-emb": 0, "transformer-attention-mask": "default",
  "transformer-disable-position-embeddings": false, "transformer-no-bias": false,
  "transformer-no-affine": false})";

/// Options of other types of models, which other programs require nevertheless.
constexpr const char* kUnused = R"({
  "version": "v1.12.0", "dec-cell-base-depth": 2, "dec-cell-high-depth": 1, "transformer-aan-depth": 2,
  "transformer-aan-nogate": false, "transformer-guided-alignment-layer": "last"})";

/// True for options of models of other types, and of training.
bool is_unused(const std::string& option) {
  std::istringstream begins(
      "bert- char- dec-cell enc-cell enc-type dim-rnn skip best-deep dropout embedding-fix factor version "
      "transformer-aan transformer-dim-aan transformer-dropout transformer-rnn transformer-guided ulr-keys "
      "ulr-query ulr-trainable ulr-soft ulr-dropout max-length lemma-dependency num-devices original-type "
      "transformer-alibi separator-symbol");
  for (std::string begin; begins >> begin;)
    if (option.compare(0, begin.size(), begin) == 0) return true;
  return false;
}

/// The vocabularies, and which tables are tied.
void describe_npz_tables(TranslationMap& map) {
  map.has({"source_vocabulary", "target_vocabulary", "tie_embeddings", "tie_target_head"});
  EncoderDecoderConfig& model = map.model;
  bool &sides = model.tie_embeddings, &head = model.tie_target_head;
  if (map.reads) {
    const bool all = map.reads->flag("tied-embeddings-all", false);
    sides = map.reads->flag("tied-embeddings-src", false) || all;
    head = map.reads->flag("tied-embeddings", false) || all;
    model.source_vocabulary = map.reads->size("source-vocabulary") + 1;
    model.target_vocabulary = map.reads->size("target-vocabulary") + 1;
  }
  if (map.writes)
    map.writes->update({{"tied-embeddings-all", sides && head},
                        {"tied-embeddings-src", sides && !head},
                        {"tied-embeddings", head && !sides},
                        {"dim-vocabs", {model.source_vocabulary - 1, model.target_vocabulary - 1}}});
}

/// Norms before sublayers and after the last, or after each; and norms of embeddings.
void describe_npz_norms(TranslationMap& map) {
  map.has({"norm_first", "embedding_norm"});
  bool &first = map.model.layer.norm_first, &of_embeddings = map.model.embedding_norm;
  const struct {
    const char *name, *otherwise;
    const bool& is;
    const char *wanted, *wanted_else;
  } options[] = {{"transformer-preprocess", "", first, "n", ""},
                 {"transformer-postprocess", "dan", first, "da", "dan"},
                 {"transformer-postprocess-top", "", first, "n", ""},
                 {"transformer-postprocess-emb", "d", of_embeddings, "nd", "d"}};
  const auto text = [&](std::size_t i) { return map.reads->text(options[i].name, options[i].otherwise); };
  const auto without_dropout = [](std::string ops) {
    ops.erase(std::remove(ops.begin(), ops.end(), 'd'), ops.end());
    return ops;
  };
  if (map.reads) first = without_dropout(text(0)) == "n", of_embeddings = without_dropout(text(3)) == "n";
  for (std::size_t i = 0; i < std::size(options); ++i) {
    const std::string wanted = options[i].is ? options[i].wanted : options[i].wanted_else;
    if (map.writes) (*map.writes)[options[i].name] = wanted;
    if (map.reads && without_dropout(text(i)) != without_dropout(wanted))
      map.reads->fail(options[i].name, "= " + text(i) + " changes the arithmetic and is not implemented");
  }
}

void describe_npz_networks(TranslationMap& map) {
  Unary& activation = map.model.layer.activation;
  Index& decoder = map.model.decoder_feed_forward;
  map.size("transformer-dim-ffn", "feed_forward", map.model.layer.hidden_width());
  map.has({"decoder_feed_forward"});
  if (map.reads) decoder = map.reads->count("transformer-decoder-dim-ffn", 0);
  if (map.writes) (*map.writes)["transformer-decoder-dim-ffn"] = decoder;
  map.activation("transformer-ffn-activation", "swish", false);
  if (activation == Unary::silu || activation == Unary::relu) return;  // Marian's gelu differs
  if (map.reads) map.reads->fail("transformer-ffn-activation", "must be swish or relu");
  if (map.fits) activation = Unary::silu;
}

void describe_npz(TranslationMap& map) {
  const Json demanded = parse_json(kDemanded);
  for (const auto& [name, value] : demanded.items()) map.demand(name.c_str(), value);
  if (map.writes) map.writes->update(demanded), map.writes->update(parse_json(kUnused));
  describe_npz_tables(map);
  map.field("dim-emb", "width");
  map.field("enc-depth", "encoder_layers");
  map.field("dec-depth", "decoder_layers");
  map.field("transformer-heads", "heads");
  map.has({"attention", "key_width", "value_width", "max_length"});
  if (map.reads) map.model.max_length = kMaxLength;
  if (map.fits) fit_bart_heads(map.model);
  describe_npz_networks(map);
  describe_npz_norms(map);
  map.fixed("epsilon", 1e-5);
  map.fixed("positions", std::string("sinusoidal_halves"));
}

/// The configuration in the options of a model, which end with a zero.
EncoderDecoderConfig config_in(const NpzArrays& arrays) {
  const auto found = arrays.find(kOptions);
  if (found == arrays.end()) throw CheckpointError(format("has no array '{}'", kOptions));
  Json json = parse_yaml(kOptions, found->second.data.c_str());
  const Json sizes = json.value("dim-vocabs", Json::array());
  if (sizes.size() != 2) throw CheckpointError("dim-vocabs must have two sizes");
  json["source-vocabulary"] = sizes[0], json["target-vocabulary"] = sizes[1];
  json.erase("dim-vocabs");
  for (auto option = json.begin(); option != json.end();)
    option = is_unused(option.key()) ? json.erase(option) : std::next(option);
  JsonFields fields(std::move(json), "");
  EncoderDecoderConfig config = TranslationMap::read(describe_npz, fields);
  fields.finish();
  config.check();
  if (config.encoder_layers + config.decoder_layers > static_cast<Index>(arrays.size()))
    throw CheckpointError("has too few arrays for its layers");
  return config;
}

/// Names with ? in place of the part that distinguishes a weight from its bias.
TensorNames npz_names(const EncoderDecoderConfig& config) {
  const std::string end = config.layer.norm_first ? "_pre" : "";
  TensorNames names;
  names.form = kTransposed | kRows, names.first_layer = 1, names.shared_embedding = "Wemb";
  for (const std::string side : {"encoder", "decoder"}) {
    const auto add = [&](const std::string& ours, const std::vector<std::string>& theirs) {
      names.list.push_back({side + ours, theirs});
      for (std::string& part : names.list.back().theirs) part.insert(0, side);
    };
    const auto add_attention = [&](const std::string& ours, const std::string& npz) {
      const std::string query = npz + "_?q", key = npz + "_?k", value = npz + "_?v";
      add(ours + ".query_key_value", {query, key, value});
      add(ours + ".query", {query}), add(ours + ".key", {key}), add(ours + ".value", {value});
      add(ours + ".output", {npz + "_?o"}), add(ours + "_norm", {npz + "_Wo_ln_?" + end});
    };
    add(".embedding", {"_Wemb"}), add(".embedding_norm", {"_emb_ln_?_pre"});
    add_attention(".*.self_attention", "_l*_self");
    if (side == "decoder") add_attention(".*.cross_attention", "_l*_context");
    add(".*.feed_forward.up", {"_l*_ffn_?1"}), add(".*.feed_forward.down", {"_l*_ffn_?2"});
    add(".*.feed_forward_norm", {"_l*_ffn_ffn_ln_?" + end}), add(".norm", {"_top_ln_?"});
  }
  names.list.push_back({"head.weight", {"decoder_ff_logit_out_W"}});
  names.list.push_back({"head.bias", {"decoder_ff_logit_out_b"}});
  return names;
}

std::string npz_name(std::string name) {
  const bool is_bias = ends_with(name, ".bias"), is_norm = name.find("_ln_?") != std::string::npos;
  name.resize(std::min(name.size(), name.find('.')));
  if (const std::size_t at = name.find('?'); at != std::string::npos)
    name.replace(at, 1, is_norm ? is_bias ? "bias" : "scale" : is_bias ? "b" : "W");
  return name;
}

bool is_table(const std::string& npz) { return ends_with(npz, "Wemb"); }
/// The axis of an array's rows or columns of tokens; Marian has none for the last token.
std::optional<int> axis_of_tokens(const std::string& npz) {
  const bool is_of_logits = npz.find("logit_out") != std::string::npos;
  return is_table(npz) ? std::optional(0) : is_of_logits ? std::optional(1) : std::nullopt;
}

/// Takes an array, with zeros for the last token.
Tensor take_array(NpzArrays& arrays, const ForeignPart& part) {
  const std::string name = npz_name(part.name), transposed = name + "t";  // of heads, as Marian writes them
  const bool is_transposed = arrays.count(transposed) > 0;
  const auto found = arrays.find(is_transposed ? transposed : name);
  if (found == arrays.end()) throw CheckpointError("has no array '" + name + "'");
  const auto [type, shape, data] = std::move(found->second);
  arrays.erase(found);
  const std::optional<int> axis = axis_of_tokens(name);
  Shape wanted = part.shape;
  if (axis) wanted.set(*axis, wanted[*axis] - 1);
  if (is_transposed) wanted = {wanted[1], wanted[0]};
  if (shape != wanted || type != "<f4")
    throw CheckpointError(format("array '{}' is {}{}, but the model has <f4{} there",
                                 is_transposed ? transposed : name, type, shape.text(), wanted.text()));
  Tensor x = Tensor::empty(shape, DType::f32, Device::cpu());
  data.copy(static_cast<char*>(x.raw()), data.size());
  if (is_transposed) x = transpose(x);
  return axis ? pad(x, *axis, 0, x.size(*axis) + 1) : x;
}

}  // namespace

const ModelFormatOf<EncoderDecoderConfig>& marian_npz_format() {
  static const std::vector<TranslationFamily> family{
      {"transformer", "its transformer", "", describe_npz, npz_names({})}};
  static const ModelFormatOf<EncoderDecoderConfig> format{"marian-npz", family};
  return format;
}

EncoderDecoderConfig marian_npz_config(const std::string& path) {
  const NpzArrays arrays = load_npz(path);
  return naming(path, [&] { return config_in(arrays); });
}

EncoderDecoder load_marian_npz(const std::string& path) {
  NpzArrays arrays = load_npz(path);
  return naming(path, [&] {
    const NoGradGuard pause;
    const EncoderDecoderConfig config = config_in(arrays);
    double values = 0;
    for (const auto& [name, array] : arrays) values += static_cast<double>(array.shape.elements());
    EncoderDecoder model = [&] {
      const StorageLimit limit(bytes_in_proportion(values));
      Generator random = Generator::for_loading();
      return EncoderDecoder(config, random);
    }();
    fill_parameters(model, foreign_parameters(npz_names(config), layouts_of(model)),
                    [&](const ForeignPart& part) { return take_array(arrays, part); });
    arrays.erase(kOptions);
    for (const auto& [name, array] : arrays)
      throw CheckpointError("array '" + name + "' is not in the model");
    model.eval();
    return model;
  });
}

void save_marian_npz(const std::string& path, EncoderDecoder& model) {
  const NoGradGuard pause;
  const EncoderDecoderConfig& config = model.config();
  expression_in(marian_npz_format(), config).check();
  NpzArrays arrays;
  for (const auto& [theirs, tensor] : foreign_tensors(npz_names(config), layouts_of(model), model)) {
    const std::string name = npz_name(theirs);
    Tensor x = tensor.to(Device::cpu()).to(DType::f32);
    const float* const last = x.data<float>() + x.elements() - x.size(-1);
    const bool begins = is_table(name) && name != "encoder_Wemb";
    if (begins && std::any_of(last, last + x.size(-1), [](float value) { return value != 0; }))
      throw CheckpointError(
          format("[export] Marian's decoder begins with zeros; got a nonzero embedding of the last token, "
                 "{}; try --format marian",
                 config.target_vocabulary - 1));
    if (const std::optional<int> axis = axis_of_tokens(name)) x = slice(x, *axis, 0, x.size(*axis) - 1);
    arrays[name] = {
        "<f4", x.shape(), {static_cast<const char*>(x.raw()), static_cast<std::size_t>(x.bytes())}};
  }
  Json json = Json::object();
  TranslationMap::write(describe_npz, config, json);
  const std::string options = json.dump(1) + '\0';  // JSON is YAML
  arrays[kOptions] = {"|i1", {static_cast<Index>(options.size())}, options};
  save_npz(path, arrays);
}

}  // namespace tapeformer
