#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/nn/attention/heads.h>

namespace tapeformer {
namespace {

std::string text(const NamedSize& named) {
  return std::string(named.name) + "=" + std::to_string(named.size);
}

}  // namespace

void check_sizes(const char* op, std::initializer_list<NamedSize> sizes, const std::string& got) {
  for (const NamedSize& named : sizes) {
    if (named.size >= 0) continue;
    throw Error(std::string("[") + op + "] no size may be negative; got " + got + text(named));
  }
}

PackedHeads resolved_heads(const char* op, Index width, Index output_width, const PackedHeads& heads,
                           const std::string& got) {
  const auto require = [&](bool holds, const std::string& rule, const NamedSize& a, const NamedSize& b,
                           const char* remedy = "") {
    if (holds) return;
    throw Error(std::string("[") + op + "] " + rule + "; got " + got + text(a) + ", " + text(b) + remedy);
  };
  const Index H = heads.heads, G = heads.groups;
  require(width > 0 && H > 0, "width and heads must be positive", {"width", width}, {"heads", H});
  require(G > 0 && H % G == 0, "heads must be a multiple of groups", {"heads", H}, {"groups", G});
  check_sizes(
      op,
      {{"output_width", output_width}, {"key_width", heads.key_width}, {"value_width", heads.value_width}},
      got);
  const NamedSize shared =
      output_width > 0 ? NamedSize{"output_width", output_width} : NamedSize{"width", width};
  require((heads.key_width > 0 && heads.value_width > 0) || shared.size % H == 0,
          std::string(shared.name) + " must be divisible by heads", shared, {"heads", H},
          "; try a width that is a multiple of the heads");
  return {H, G, or_else(heads.key_width, shared.size / H), or_else(heads.value_width, shared.size / H)};
}

void check_inputs(const char* op, const Tensor& query, const Tensor& memory, const KvCache* cache) {
  const auto require = [&](bool holds, const char* rule, const char* remedy) {
    if (holds) return;
    const bool tells_memory = memory.defined() && !is_same_tensor(query, memory);
    throw ShapeError(std::string("[") + op + "] " + rule + "; got query=" + query.describe() +
                     (tells_memory ? ", memory=" + memory.describe() : "") + "; try " + remedy);
  };
  require(query.rank() == 3 && (!memory.defined() || memory.rank() == 3), "inputs must be [B, T, C]",
          "a batch of one sequence, [1, T, C]");
  require(memory.defined() || (cache != nullptr && cache->length() > 0),
          "a memory may be left out only once the cache holds it", "the memory in the first call");
}

void clear_bias(Linear& layer) {
  if (layer.bias().defined()) layer.bias().set_value(Tensor::zeros(layer.bias().value().shape()));
}

Tensor split_heads(const Tensor& x, Index heads) {
  return reshape(x, {x.size(0), x.size(1), heads, x.size(2) / heads});
}

Tensor merge_heads(const Tensor& heads) {
  return reshape(heads, {heads.size(0), heads.size(1), heads.size(2) * heads.size(3)});
}

}  // namespace tapeformer
