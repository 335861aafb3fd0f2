#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/nn/formats/ends_with.h>
#include <tapeformer/nn/formats/tensor_names.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace tapeformer {
namespace {

constexpr const char* kLetters = "*DF";  // in place of the layer's number in our names

/// The name with a number in place of its first character of `marks`, if it has one.
std::string numbered(std::string name, const char* marks, Index number) {
  const std::size_t at = name.find_first_of(marks);
  return at == std::string::npos ? name : name.replace(at, 1, std::to_string(number));
}
std::string in_layer(const std::string& name, Index layer) { return numbered(name, "*", layer); }

/// The other program's names: for experts, those of each, one after the other.
std::vector<std::string> names_of_blocks(const std::vector<std::string>& theirs, std::size_t blocks) {
  if (theirs[0].find('#') == std::string::npos) return theirs;
  std::vector<std::string> names;
  for (std::size_t expert = 0; expert < blocks / theirs.size(); ++expert)
    for (const std::string& name : theirs) names.push_back(numbered(name, "#", static_cast<Index>(expert)));
  return names;
}

/// The weight, or the bias, of our module `ours` in the other program: one tensor per block of rows, or a
/// single one. Without an end `ours` is a parameter.
ForeignParameter foreign_parameter(const TensorNames& names, const TensorName& name, const std::string& ours,
                                   const Layout& layout, const char* end, Index layer) {
  const bool is_bias = end == std::string(".bias");
  ForeignParameter parameter{ours + end, {}};
  std::size_t block = 0;
  const std::vector<std::string> all = names_of_blocks(name.theirs, layout.blocks.size());
  for (const std::string& theirs : all) {
    const bool is_last = &theirs == &all.back();
    const char* const their_end = name.stacked == 0 ? end : is_bias ? "_bias" : "";
    ForeignPart part{in_layer(theirs, layer + names.first_layer) + their_end, {}, {}};
    part.transposed = !is_bias && layout.is_linear && names.has(kTransposed);
    part.less = !is_bias && layout.is_gain && names.has(kGainsLessOne) ? 1 : 0;
    Index rows = 0;
    do {
      part.blocks.push_back(layout.blocks.at(block));
      rows += part.blocks.back().rows;
    } while (++block < layout.blocks.size() && is_last);
    const RowBlock& first = part.blocks[0];
    if (names.has(kByHead) && first.heads > 0) part.outer = first.heads, part.inner = 3;
    if (first.pairs > 0) part.outer = 2, part.inner = first.pairs;
    const Index columns = layout.columns;
    const bool is_buffer = ends_with(name.ours, ".bias") && !ends_with(theirs, ".bias");
    part.is_row = (is_bias || columns == 0) && (is_buffer || names.has(kRows));
    if (ends_with(name.ours, ".positions")) rows += part.unused = names.unused_positions;
    part.shape = part.transposed            ? Shape{columns, rows}
                 : !is_bias && columns != 0 ? Shape{rows, columns}
                 : part.is_row              ? Shape{1, rows}
                 : layout.taps > 0          ? Shape{rows, 1, layout.taps}
                                            : Shape{rows};
    if (names.has(kRatesByHead) && ends_with(name.ours, ".decay_rate"))
      part.is_row = true, part.shape = Shape{1, 1, rows, 1};
    if (name.stacked > 0) {
      part.alternating = static_cast<Index>(name.stacked);
      const Index E = part.experts = static_cast<Index>(layout.blocks.size() / name.stacked);
      part.shape = is_bias ? Shape{E, rows / E} : Shape{E, columns, rows / E};
    }
    part.taps = layout.taps;
    part.heads = layout.heads;
    parameter.parts.push_back(std::move(part));
  }
  return parameter;
}

/// Gives the parts of one tensor their places in it, and the tensor's shape.
void share_tensors(std::vector<ForeignParameter>& parameters) {
  std::map<std::string, std::vector<ForeignPart*>> tensors;
  for (ForeignParameter& parameter : parameters)
    for (ForeignPart& part : parameter.parts) tensors[part.name].push_back(&part);
  for (auto& [name, parts] : tensors) {
    Index rows = 0;
    for (ForeignPart* part : parts) {
      part->before = rows;
      rows += part->shape[0];
    }
    for (ForeignPart* part : parts) {
      if (parts.size() == 1)
        part->heads = 0;
      else
        part->shape = Shape{rows, part->shape[1]}, part->before /= part->heads;
    }
  }
}

/// Rows of taps in the opposite order.
Tensor reversed(const Tensor& rows) {
  TensorList taps;
  for (Index tap = rows.size(1) - 1; tap >= 0; --tap) taps.push_back(slice(rows, 1, tap, 1));
  return concat(taps, 1);
}

/// The taps [n, K] of a convolution in the other program's order, less ours.
Tensor own_tap(const Tensor& rows) {
  return pad(Tensor::full({rows.size(0), 1}, 1, rows.dtype(), rows.device()), 1, rows.size(1) - 1,
             rows.size(1));
}

/// Rows (2i, 2i + 1) of each head as rows (i, i + D/2), or the other way round.
Tensor reordered(const Tensor& rows, Index heads, bool to_pairs) {
  const Index D = rows.size(0) / heads, C = rows.rank() > 1 ? rows.size(1) : 1;
  const Tensor apart = reshape(rows, to_pairs ? Shape{heads, 2, D / 2, C} : Shape{heads, D / 2, 2, C});
  return reshape(permute(apart, {0, 2, 1, 3}), rows.shape());
}

/// Rows [outer, inner, ...] as rows [inner, outer, ...].
Tensor regrouped(const Tensor& rows, Index outer, Index inner) {
  if (outer == 1 || inner == 1) return rows;
  const Tensor apart = reshape(rows, {outer, inner, rows.elements() / (outer * inner)});
  return reshape(permute(apart, {1, 0, 2}), rows.shape());
}

/// True if the rows of heads have another order in the format than in the model.
bool reorders_heads(const TensorNames& names, const Layouts& layouts) {
  return layouts.rotary && names.has(kInterleaved) == (*layouts.rotary == RotaryLayout::half_split);
}

/// Rows in which those of heads have the other order.
Tensor with_reordered_heads(const ForeignPart& part, const Tensor& rows, bool to_pairs) {
  TensorList blocks;
  Index from = 0;
  for (const RowBlock& block : part.blocks) {
    const Tensor own = slice(rows, 0, from, block.rows);
    blocks.push_back(block.heads > 0 ? reordered(own, block.heads, to_pairs) : own);
    from += block.rows;
  }
  return blocks.size() == 1 ? blocks[0] : concat(blocks, 0);
}

/// A tensor's rows in the other program's order, or a part of these, as rows in ours, except for the order
/// within heads.
Tensor rows_in_our_groups(const ForeignPart& part, const Tensor& theirs) {
  if (part.heads == 0) return regrouped(theirs, part.outer, part.inner);
  const Index rows = part.rows();
  const Tensor by_head = reshape(theirs, {part.heads, theirs.size(0) / part.heads, theirs.size(1)});
  return reshape(slice(by_head, 1, part.before, rows / part.heads), {rows, theirs.size(1)});
}

/// Rows [E n F, C] of experts as [E, C, F n], or the other way round.
Tensor restacked(const Tensor& x, Index E, Index second, Index last, const Shape& shape) {
  return reshape(permute(reshape(x, {E, second, -1, last}), {0, 3, 2, 1}), shape);
}

}  // namespace

std::string TensorNames::weight(const std::string& ours) const {
  const std::string& theirs = std::find_if(list.begin(), list.end(), [&](const TensorName& name) {
                                return name.ours == ours;
                              })->theirs[0];
  return ends_with(ours, ".weight") ? theirs : theirs + ".weight";
}

std::string TensorNames::prefix() const {
  const std::string embedding = list[0].theirs[0];
  return embedding.substr(0, embedding.find('.') + 1);
}

bool TensorNames::is_constant(const std::string& name) const {
  return std::any_of(constants.begin(), constants.end(), [&](const std::string& text) {
    return text.back() == '.' ? name.compare(0, text.size(), text) == 0 : ends_with(name, text);
  });
}

std::vector<ForeignParameter> foreign_parameters(const TensorNames& names, const Layouts& model) {
  std::vector<ForeignParameter> parameters;
  std::set<std::string> named;
  const auto has = [&](const std::string& path) { return model.parameters.count(path) > 0; };
  const auto add = [&](const TensorName& name, Index layer) {
    const std::size_t number = name.ours.find_first_of(kLetters);
    const char letter = number == std::string::npos ? '*' : name.ours[number];
    if (letter != '*' && (model.letters.empty() || model.letters[static_cast<std::size_t>(layer)] != letter))
      return;
    const std::string ours = numbered(name.ours, kLetters, layer), path = has(ours) ? ours : ours + ".weight";
    if (!has(path)) return;
    const Layout& layout = model.parameters.at(path);
    if (name.blocks > 0 && name.blocks != layout.blocks.size()) return;
    if (!name.needs.empty() && !has(numbered(name.needs, kLetters, layer) + ".weight")) return;
    if (!named.insert(ours).second) return;
    const auto add_tensor = [&](const char* end) {
      parameters.push_back(foreign_parameter(names, name, ours, layout, end, layer));
      for (const std::string& same : name.same)
        parameters.back().same.push_back(in_layer(same, layer + names.first_layer) + end);
      if (!names.has(kOldNorms) || layout.columns > 0 || end == std::string()) return;
      const char* const old = end == std::string(".bias") ? ".beta" : ".gamma";
      parameters.back().same.push_back(in_layer(name.theirs[0], layer) + old);
    };
    if (path == ours) return add_tensor("");
    const bool may_have_bias = layout.is_linear || layout.columns == 0;
    add_tensor(".weight");
    if (has(ours + ".bias") || (may_have_bias && names.has(kAllBiases))) add_tensor(".bias");
  };
  const auto stack_of = [](const TensorName& name) {
    return name.ours.substr(0, name.ours.find_first_of(kLetters));
  };
  for (auto name = names.list.begin(); name != names.list.end();) {
    const std::string stack = stack_of(*name);
    const auto count = model.layers.find(stack);
    if (count == model.layers.end()) {
      add(*name++, 0);
      continue;
    }
    const auto end = std::find_if(name, names.list.end(),
                                  [&](const TensorName& other) { return stack_of(other) != stack; });
    for (Index layer = 0; layer < count->second; ++layer)
      for (auto of_layer = name; of_layer != end; ++of_layer) add(*of_layer, layer);
    name = end;
  }
  share_tensors(parameters);
  const auto tied = [&](const std::string& ours) {
    return std::find_if(parameters.begin(), parameters.end(), [&](const ForeignParameter& parameter) {
      return parameter.name == ours + ".weight";
    });
  };
  for (const auto& [table, ours] : model.ties) tied(ours)->same.push_back(names.weight(table));
  if (model.shares_embeddings && !names.shared_embedding.empty()) {
    ForeignParameter& embedding = *tied("encoder.embedding");
    embedding.same.push_back(std::exchange(embedding.parts[0].name, names.shared_embedding));
  }
  return parameters;
}

Tensor to_ours(const ForeignPart& part, const Tensor& theirs) {
  if (part.less != 0) return theirs + part.less;
  if (part.experts > 0) {
    const bool is_bias = theirs.rank() == 2;
    const Index C = is_bias ? 1 : theirs.size(1), rows = theirs.elements() / C;
    return restacked(theirs, part.experts, C, part.alternating, is_bias ? Shape{rows} : Shape{rows, C});
  }
  if (part.taps > 0) {
    const Tensor rows = reshape(theirs, {theirs.size(0), part.taps});
    return reversed(rows - own_tap(rows));
  }
  if (part.is_row) return reshape(theirs, {theirs.elements()});
  if (part.unused > 0) return slice(theirs, 0, part.unused, theirs.size(0) - part.unused);
  return part.transposed ? transpose(theirs) : rows_in_our_groups(part, theirs);
}

void fill_parameters(Module& model, const std::vector<ForeignParameter>& sources,
                     const std::function<Tensor(const ForeignPart&)>& tensor_of) {
  const NoGradGuard pause;
  std::map<std::string, Parameter> parameters;
  for (const auto& [name, parameter] : model.named_parameters()) parameters.emplace(name, parameter);
  for (const ForeignParameter& source : sources) {
    TensorList parts;
    for (const ForeignPart& part : source.parts)
      parts.push_back(to_ours(part, tensor_of(part).to(DType::f32)));
    const Tensor rows = parts.size() == 1 ? parts[0] : concat(parts, 0),
                 value = parameters.at(source.name).value();
    value.copy_from(source.parts[0].taps > 0 ? reshape(transpose(rows), value.shape()) : rows);
    parameters.erase(source.name);
  }
  for (const auto& [name, parameter] : parameters) throw CheckpointError("has no tensor for " + name);
}

Tensor rows_to_ours(const TensorNames& names, const Layouts& layouts, const ForeignPart& part,
                    const Tensor& theirs) {
  const Tensor rows = rows_in_our_groups(part, theirs);
  return reorders_heads(names, layouts) ? with_reordered_heads(part, rows, !names.has(kInterleaved)) : rows;
}

TensorList rows_of_parts(const TensorNames& names, const Layouts& layouts, const ForeignParameter& parameter,
                         const Tensor& ours) {
  const bool reorders = reorders_heads(names, layouts);
  const Index taps = parameter.parts[0].taps;
  const Tensor all = taps > 0 ? transpose(reshape(ours, {taps, ours.elements() / taps})) : ours;
  TensorList parts;
  Index from = 0;
  for (const ForeignPart& part : parameter.parts) {
    Tensor rows = slice(all, 0, from, part.rows());
    if (reorders) rows = with_reordered_heads(part, rows, names.has(kInterleaved));
    from += part.rows();
    parts.push_back(regrouped(rows, part.inner, part.outer));
  }
  return parts;
}

std::vector<std::pair<std::string, Tensor>> foreign_tensors(const TensorNames& names, const Layouts& layouts,
                                                            Module& model) {
  const NoGradGuard pause;
  std::map<std::string, Parameter> parameters;
  for (const auto& [name, parameter] : model.named_parameters()) parameters.emplace(name, parameter);
  const DType type = parameters.begin()->second.value().dtype();
  std::vector<std::pair<std::string, Tensor>> tensors;
  std::map<std::string, TensorList> shared;  // the parts so far of tensors that have several
  for (const ForeignParameter& target : foreign_parameters(names, layouts)) {
    const auto ours = parameters.find(target.name);
    if (ours == parameters.end() && !ends_with(target.name, ".bias"))
      throw CheckpointError("the model has no " + target.name);
    if (ours == parameters.end()) {
      for (const ForeignPart& part : target.parts)
        tensors.emplace_back(part.name, Tensor::zeros(part.shape, type));
      continue;
    }
    const TensorList rows = rows_of_parts(names, layouts, target, ours->second.value());
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const ForeignPart& part = target.parts[i];
      Tensor theirs = rows[i];
      if (part.less != 0) theirs = theirs - part.less;
      if (part.experts > 0)
        theirs = restacked(theirs, part.experts, part.alternating, part.shape.rank() == 3 ? part.shape[1] : 1,
                           part.shape);
      if (part.taps > 0) {
        theirs = reversed(theirs);
        theirs = reshape(theirs + own_tap(theirs), part.shape);
      }
      if (part.heads > 0) {
        const Index C = theirs.size(1);
        TensorList& parts = shared[part.name];
        parts.push_back(reshape(theirs, {part.heads, theirs.size(0) / part.heads, C}));
        if (part.before + parts.back().size(1) < part.shape[0] / part.heads) continue;
        theirs = reshape(concat(parts, 1), part.shape);
      }
      if (part.transposed) theirs = transpose(theirs);
      if (part.unused > 0) theirs = concat({Tensor::zeros({part.unused, theirs.size(1)}, type), theirs}, 0);
      tensors.emplace_back(part.name, part.is_row ? reshape(theirs, part.shape) : theirs);
    }
    parameters.erase(ours);
  }
  for (const auto& [name, parameter] : parameters) throw CheckpointError("nothing stands for " + name);
  return tensors;
}

}  // namespace tapeformer
