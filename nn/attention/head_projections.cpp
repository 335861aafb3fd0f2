#include <tapeformer/autograd/ops/matmul.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/nn/attention/head_projections.h>
#include <tapeformer/nn/attention/heads.h>
#include <tapeformer/nn/initialization.h>

#include <algorithm>

namespace tapeformer {

HeadProjections::HeadProjections(const AttentionConfig& config, Generator& random)
    : sizes_{config.heads, config.key_heads(), config.key_width, config.value_width},
      is_packed_(config.packed),
      has_keys_(!config.shared_keys),
      part_widths_{sizes_.heads * sizes_.key_width, sizes_.groups * sizes_.key_width,
                   sizes_.groups * sizes_.value_width} {
  const auto add = [&](Index width, Index outputs) {
    matrices_.emplace_back(LinearConfig{width, outputs, config.bias, {}}, random);
  };
  add(config.width, is_packed_ ? sizes_.width() : part_widths_[kQuery]);
  if (is_packed_ || !has_keys_) return;
  if (config.groups > 0) {
    key_value_ = {config.memory_width, part_widths_[kKey] + part_widths_[kValue], config.bias, {}};
    return;
  }
  add(config.memory_width, part_widths_[kKey]);
  add(config.value_memory_width, part_widths_[kValue]);
}

void HeadProjections::initialise(Generator& random) {
  // Made last on purpose: drawn earlier, it would shift the layer's other random streams, and change seeded
  // runs.
  if (key_value_.outputs > 0) matrices_.emplace_back(key_value_, random);
  for (std::size_t i = 0; i < matrices_.size(); ++i) {
    const auto first = part_widths_.begin() + static_cast<std::ptrdiff_t>(i);
    const bool has_rest = i + 1 == matrices_.size() && has_keys_;
    xavier_uniform_parts(matrices_[i].weight(), {first, has_rest ? part_widths_.end() : first + 1}, random);
    clear_bias(matrices_[i]);
  }
}

CallHeads HeadProjections::operator()(const Tensor& query, const Tensor& key, const Tensor& value,
                                      const AttentionContext& context, bool is_self) const {
  CallHeads heads{query, context, is_self, sizes_};
  if (is_self && is_packed_) {
    heads.packed_btn = matrices_[0](query);
    return heads;
  }
  heads.query_bthd = split_heads(project(kQuery, query), sizes_.heads);
  const bool is_cached = context.cache != nullptr && !is_self && context.cache->length() > 0;
  if (!has_keys_ || is_cached) return heads;
  const bool has_one_product = matrices_.size() == 2 && is_same_tensor(key, value);
  const TensorList parts = has_one_product
                               ? split(matrices_[1](key), -1, {part_widths_[kKey], part_widths_[kValue]})
                               : TensorList{project(kKey, key), project(kValue, value)};
  heads.new_kv = {split_heads(parts[0], sizes_.groups), split_heads(parts[1], sizes_.groups)};
  return heads;
}

Tensor HeadProjections::project(Part part, const Tensor& x) const {
  const std::size_t shared = std::min<std::size_t>(part, matrices_.size() - 1);
  const Linear& matrix = matrices_[shared];
  if (matrix.weight().value().size(0) == part_widths_[part]) return matrix(x);
  Index from = 0;
  for (std::size_t before = shared; before < part; ++before) from += part_widths_[before];
  const auto rows = [&](const Tensor& all) { return slice(all, 0, from, part_widths_[part]); };
  return linear(x, rows(matrix.whole_weight()), matrix.bias().defined() ? rows(matrix.bias()) : Tensor());
}

void HeadProjections::visit(ParameterVisitor& visitor) {
  static const std::vector<std::vector<const char*>> names = {
      {"query_key_value"}, {"query", "key_value"}, {"query", "key", "value"}};
  for (std::size_t i = 0; i < matrices_.size(); ++i) {
    const std::string name = has_keys_ ? names[matrices_.size() - 1][i] : "query";
    visitor.child(name, matrices_[i]);
    const bool has_rest = has_keys_ && i + 1 == matrices_.size() && i < kValue;  // parts without a matrix
    if (has_rest)
      visitor.row_parts(name + ".weight",
                        {part_widths_.begin() + static_cast<std::ptrdiff_t>(i), part_widths_.end()});
  }
}

}  // namespace tapeformer
