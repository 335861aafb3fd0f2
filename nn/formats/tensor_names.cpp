#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/nn/formats/ends_with.h>
#include <tapeformer/nn/formats/tensor_names.h>

#include <algorithm>
#include <map>
#include <utility>

namespace tapeformer {
namespace {

constexpr const char* kLayers = "layers.*.";

std::string in_layer(std::string name, Index layer) {
  const std::size_t star = name.find('*');
  return star == std::string::npos ? name : name.replace(star, 1, std::to_string(layer));
}

/// A parameter of ours: its rows and columns, of which a gain has none.
struct Layout {
  std::vector<RowBlock> blocks;
  Index columns = 0;
  bool is_linear = false, bias = false;
};

/// The parameters of a model by their names in TensorName.
std::map<std::string, Layout> layouts(const DecoderOnlyConfig& config) {
  const AttentionConfig attention = config.attention_config().resolved();
  const Index C = config.width, F = config.hidden_width(), H = attention.heads, D = attention.key_width,
              G = attention.key_heads();
  const Layout norm{{{C}}};
  const std::string layer = kLayers;
  std::map<std::string, Layout> all{
      {"embedding", {{{config.vocabulary}}, C}},
      {layer + "attention_norm", norm},
      {layer + "attention.query_key_value", {{{H * D, H}, {G * D, G}, {G * D}}, C, true, attention.bias}},
      {layer + "attention.output", {{{C}}, H * D, true, *attention.output_bias}},
      {layer + "feed_forward_norm", norm},
      {layer + "feed_forward.up",
       {config.gated ? std::vector<RowBlock>{{F}, {F}} : std::vector<RowBlock>{{F}}, C, true,
        config.feed_forward_bias}},
      {layer + "feed_forward.down", {{{C}}, F, true, config.feed_forward_bias}},
      {"norm", norm}};
  if (config.positions == PositionKind::learned) all["positions"] = {{{config.context}}, C};
  if (!config.tie_head) all["head"] = {{{config.vocabulary}}, C};
  if (attention.qk_norm != QkNorm::none) {
    const bool is_joint = attention.qk_norm == QkNorm::joint;
    const Index of_queries = is_joint ? H : 1, of_keys = is_joint ? G : 1;
    all[layer + "attention.query_norm"] = {{{of_queries * D, of_queries}}};
    all[layer + "attention.key_norm"] = {{{of_keys * D, of_keys}}};
  }
  if (config.sublayer_norms == SublayerNorms::both)
    all[layer + "attention_output_norm"] = all[layer + "feed_forward_output_norm"] = norm;
  return all;
}

/// The weight, or the bias, of the parameter `name` as the other program has it: in a tensor for each block
/// of rows, or in one.
ForeignParameter foreign_parameter(const TensorNames& names, const TensorName& name, const Layout& layout,
                                   const char* end, Index layer) {
  const bool is_bias = end == std::string(".bias");
  ForeignParameter parameter{in_layer(name.ours, layer) + end, {}};
  std::size_t block = 0;
  for (const std::string& theirs : name.theirs) {
    const bool is_last = &theirs == &name.theirs.back();
    ForeignPart part{in_layer(theirs, layer) + end, {}, {}};
    part.transposed = !is_bias && layout.is_linear && names.has(kTransposed);
    part.less = !is_bias && layout.columns == 0 && names.has(kGainsLessOne) ? 1 : 0;
    Index rows = 0;
    do {
      part.blocks.push_back(layout.blocks.at(block));
      rows += part.blocks.back().rows;
    } while (++block < layout.blocks.size() && is_last);
    const Index columns = layout.columns;
    part.shape = is_bias || columns == 0 ? Shape{rows}
                 : part.transposed       ? Shape{columns, rows}
                                         : Shape{rows, columns};
    parameter.parts.push_back(std::move(part));
  }
  return parameter;
}

/// Rows (2i, 2i + 1) of each head as rows (i, i + D/2), or the other way round.
Tensor reordered(const Tensor& rows, Index heads, bool to_pairs) {
  const Index D = rows.size(0) / heads, C = rows.rank() > 1 ? rows.size(1) : 1;
  const Tensor apart = reshape(rows, to_pairs ? Shape{heads, 2, D / 2, C} : Shape{heads, D / 2, 2, C});
  return reshape(permute(apart, {0, 2, 1, 3}), rows.shape());
}

}  // namespace

std::string TensorNames::weight(const std::string& ours) const {
  return std::find_if(list.begin(), list.end(), [&](const TensorName& name) { return name.ours == ours; })
             ->theirs[0] +
         ".weight";
}

std::string TensorNames::prefix() const {
  const std::string embedding = list[0].theirs[0];
  return embedding.substr(0, embedding.find('.') + 1);
}

bool TensorNames::is_constant(const std::string& name) const {
  return std::any_of(constants.begin(), constants.end(),
                     [&](const std::string& end) { return ends_with(name, end); });
}

std::vector<ForeignParameter> foreign_parameters(const TensorNames& names, const DecoderOnlyConfig& config) {
  const std::map<std::string, Layout> ours = layouts(config);
  std::vector<ForeignParameter> parameters;
  const auto add = [&](const TensorName& name, Index layer) {
    const auto found = ours.find(name.ours);
    if (found == ours.end()) return;
    const Layout& layout = found->second;
    const bool may_have_bias = layout.is_linear || layout.columns == 0;
    parameters.push_back(foreign_parameter(names, name, layout, ".weight", layer));
    if (layout.bias || (may_have_bias && names.has(kAllBiases)))
      parameters.push_back(foreign_parameter(names, name, layout, ".bias", layer));
  };
  const auto is_of_layer = [](const TensorName& name) { return name.ours.find(kLayers) == 0; };
  for (auto name = names.list.begin(); name != names.list.end();) {
    const auto end = std::find_if_not(name, names.list.end(), is_of_layer);
    for (Index layer = 0; layer < config.layers; ++layer)
      for (auto of_layer = name; of_layer != end; ++of_layer) add(*of_layer, layer);
    if (end == name) add(*name, 0);
    name = std::max(end, name + 1);
  }
  return parameters;
}

Tensor to_ours(const ForeignPart& part, const Tensor& theirs) {
  if (part.less != 0) return theirs + part.less;
  return part.transposed ? transpose(theirs) : theirs;
}

std::vector<std::pair<std::string, Tensor>> foreign_tensors(const TensorNames& names, DecoderOnly& model) {
  const NoGradGuard pause;
  std::map<std::string, Parameter> parameters;
  for (const auto& [name, parameter] : model.named_parameters()) parameters.emplace(name, parameter);
  const DType type = parameters.at("embedding.weight").value().dtype();
  const bool is_half_split = model.config().attention.rotations.layout == RotaryLayout::half_split,
             to_pairs = names.has(kInterleaved), is_rotary = model.config().positions == PositionKind::rotary,
             reorders = is_rotary && to_pairs == is_half_split;
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (const ForeignParameter& target : foreign_parameters(names, model.config())) {
    const auto ours = parameters.find(target.name);
    if (ours == parameters.end() && !ends_with(target.name, ".bias"))
      throw CheckpointError("the model has no " + target.name);
    Index from = 0;
    for (const ForeignPart& part : target.parts) {
      if (ours == parameters.end()) {
        tensors.emplace_back(part.name, Tensor::zeros(part.shape, type));
        continue;
      }
      TensorList blocks;
      for (const RowBlock& block : part.blocks) {
        const Tensor rows = slice(ours->second.value(), 0, from, block.rows);
        blocks.push_back(reorders && block.heads > 0 ? reordered(rows, block.heads, to_pairs) : rows);
        from += block.rows;
      }
      Tensor theirs = blocks.size() == 1 ? blocks[0] : concat(blocks, 0);
      if (part.less != 0) theirs = theirs - part.less;
      tensors.emplace_back(part.name, part.transposed ? transpose(theirs) : theirs);
    }
    if (ours != parameters.end()) parameters.erase(ours);
  }
  for (const auto& [name, parameter] : parameters) throw CheckpointError("nothing stands for " + name);
  return tensors;
}

}  // namespace tapeformer
