#include <tapeformer/autograd/ops/additive_attention.h>
#include <tapeformer/autograd/ops/attention.h>
#include <tapeformer/examples/python/src/bindings.h>
#include <tapeformer/examples/python/src/config.h>
#include <tapeformer/nn/attention/additive.h>
#include <tapeformer/nn/attention/attention_kind.h>
#include <tapeformer/nn/attention/basic/self_attention.h>
#include <tapeformer/nn/attention/basic/single_head.h>
#include <tapeformer/nn/attention/latent.h>
#include <tapeformer/nn/attention/multi_head.h>

#include <nanobind/stl/string.h>

namespace nb = nanobind;
using namespace nb::literals;

namespace tapeformer::python {
namespace {

/// Calls f(name, member) for each mask.
template <class F>
void for_each_mask(AttentionMasks& masks, const F& f) {
  f("mask", masks.mask);
  f("key_mask", masks.key_mask);
  f("query_mask", masks.query_mask);
  f("causal", masks.causal);
  f("prefix_lengths", masks.prefix_lengths);
  f("window_before", masks.window_before);
  f("window_after", masks.window_after);
  f("key_lengths", masks.key_lengths);
  f("query_starts", masks.query_starts);
  f("key_starts", masks.key_starts);
}

const std::string kArray = "Tensor | numpy.typing.ArrayLike", kOptionalArray = kArray + " | None = None",
                  kResult = ") -> Tensor | tuple[Tensor, Tensor]";

const char* const kMaskHelp =
    "In every boolean mask True means: may attend. All masks apply together:\n"
    "    mask: bool, or a number added to the scores; broadcasts to [B, H, T, S]\n"
    "    key_mask, query_mask: bool [B, S] and [B, T], True for real tokens\n"
    "    causal: no query sees later keys; alignment 'bottom_right' gives the last query the position of the "
    "last\n"
    "        key, 'top_left' the first that of the first, as PyTorch's is_causal\n"
    "    prefix_lengths: i32 [B], with causal the first keys that all queries see\n"
    "    window_before, window_after: keys seen before and after a query's position; -1 for all\n"
    "    key_lengths: i32 [B], the keys in use\n"
    "    query_starts, key_starts: i32 [N + 1], packed sequences, with B = 1";

/// ", mask: ... = None, causal: bool = False".
std::string masks_text() {
  AttentionMasks defaults;
  std::string text;
  for_each_mask(defaults, [&](const char* name, const auto& member) {
    if constexpr (std::is_same_v<std::decay_t<decltype(member)>, Tensor>) {
      text += std::string(", ") + name + ": " + kOptionalArray;
    } else {
      text += ", " + parameter_text(name, member);
    }
  });
  return text + ", alignment: str = 'bottom_right'";
}

CausalAlignment alignment_named(const std::string& name) {
  if (name == "bottom_right") return CausalAlignment::bottom_right;
  if (name == "top_left") return CausalAlignment::top_left;
  throw nb::value_error(("alignment is bottom_right or top_left; got " + name).c_str());
}

/// Throws: TypeError for an argument that is not a mask
void take_masks(const nb::kwargs& given, AttentionMasks& masks) {
  nb::dict rest;
  rest.update(given);
  const auto take = [&](const char* name, auto& member) {
    if (!rest.contains(name)) return;
    const nb::object value = rest[name];
    nb::del(rest[name]);
    using Member = std::decay_t<decltype(member)>;
    if constexpr (std::is_same_v<Member, Tensor>) {
      if (!value.is_none()) member = tensor_of(value);
    } else {
      member = std::get<Member>(field_value(name, member, value));
    }
  };
  for_each_mask(masks, take);
  std::string alignment = "bottom_right";
  take("alignment", alignment);
  masks.alignment = alignment_named(alignment);
  for (const auto& [name, value] : rest)
    throw nb::type_error(("there is no argument " + nb::cast<std::string>(name)).c_str());
}

nb::object with_weights(const Tensor& y, const Tensor& weights, bool wanted) {
  return wanted ? nb::object(nb::make_tuple(y, weights)) : nb::cast(y);
}

bool is_same_memory(const Tensor& a, const Tensor& b) {
  return a.defined() && b.defined() && a.shape() == b.shape() && a.dtype() == b.dtype() && a.raw() == b.raw();
}

nb::object call(const Attention& layer, const Input& query, const Input& given_memory, const Input& value,
                const Input& positions, bool return_weights, const nb::kwargs& masks) {
  AttentionContext context;
  take_masks(masks, context);
  context.positions = positions;
  Tensor weights;
  if (return_weights) context.weights = &weights;
  // An array given twice is self-attention too.
  const bool is_self = !given_memory.x.defined() || is_same_memory(query, given_memory);
  const Tensor& memory = is_self ? query : given_memory;
  const auto* multi_head = dynamic_cast<const MultiHeadAttention*>(&layer);
  if (value.x.defined() && multi_head == nullptr)
    throw nb::type_error("only MultiHeadAttention takes values of their own");
  Tensor y;
  {
    const nb::gil_scoped_release release;
    y = value.x.defined() ? (*multi_head)(query, memory, value, context) : layer(query, memory, context);
  }
  return with_weights(y, weights, return_weights);
}

template <class Compute>
nb::object attend(const Compute& compute, double scale, bool return_weights, const nb::kwargs& masks) {
  AttentionOptions options;
  take_masks(masks, options);
  options.scale = scale;
  Tensor weights, y;
  if (return_weights) options.weights = &weights;
  {
    const nb::gil_scoped_release release;
    y = compute(options);
  }
  return with_weights(y, weights, return_weights);
}

/// A layer whose configuration is AttentionConfig.
template <class Layer>
void bind_kind(nb::module_& module, const char* name, const char* kind, const std::string& help) {
  AttentionConfig defaults;
  defaults.kind = kind;
  const std::string signature =
      "def __init__(self, *" + parameters_text(fields_of(defaults)) + kLayerParameters + ") -> None";
  const std::string fields = "A size of 0 means its default." + help_text(fields_of(defaults));
  nb::class_<Layer, Attention>(module, name, help.c_str())
      .def(
          "__init__",
          [defaults](Layer* self, const nb::kwargs& given) {
            const LayerArguments arguments = layer_arguments(given);
            AttentionConfig config = defaults;
            set_fields(arguments.fields, fields_of(config));
            Generator random(arguments.seed);
            const auto made = make_attention(config, random);
            auto* const layer = dynamic_cast<Layer*>(made.get());
            if (layer == nullptr)
              throw nb::value_error(("attention='" + config.kind + "' is a kind of another class").c_str());
            new (self) Layer(std::move(*layer));
            self->to(arguments.dtype);
          },
          nb::sig(signature.c_str()), fields.c_str());
}

}  // namespace

void bind_attention(nb::module_& module) {
  const std::string masks = masks_text();
  const std::string call_signature = "def __call__(self, query: " + kArray + ", memory: " + kOptionalArray +
                                     ", value: " + kOptionalArray + ", *, positions: " + kOptionalArray +
                                     ", return_weights: bool = False" + masks + kResult;
  const std::string call_help =
      std::string(
          "Self-attention, or attention to a memory [B, S, memory_width]. With return_weights also the "
          "weights [B, H, T, S].\n") +
      kMaskHelp;
  nb::class_<Attention, Module>(module, "Attention", "The base of all attention layers.")
      .def("__call__", &call, "query"_a, "memory"_a = nb::none(), "value"_a = nb::none(), nb::kw_only(),
           "positions"_a = nb::none(), "return_weights"_a = false, "masks"_a, nb::sig(call_signature.c_str()),
           call_help.c_str());
  bind_kind<MultiHeadAttention>(
      module, "MultiHeadAttention", "mha",
      "Multi-head attention; with attention='gqa' and groups, or 'mqa', query heads share "
      "heads of keys and values.");
  bind_kind<LatentAttention>(module, "LatentAttention", "mla",
                             "Multi-head latent attention: keys and values come from one latent per token.");
  bind_kind<AdditiveAttention>(
      module, "AdditiveAttention", "additive",
      "Additive attention: score(t, s) = v . tanh(W query_t + U memory_s + b), head by head.");
  nb::class_<SingleHeadAttention, Attention>(module, "SingleHeadAttention",
                                             "One head, without a projection of the output.")
      .def(
          "__init__",
          [](SingleHeadAttention* self, Index width, Index memory_width, Index key_width, Index value_width,
             double scale, double dropout, bool causal, bool bias, std::uint64_t seed,
             const std::string& dtype) {
            make(self,
                 SingleHeadConfig{width, memory_width, key_width, value_width, scale, dropout, causal, bias},
                 seed, dtype);
          },
          "width"_a, "memory_width"_a = 0, "key_width"_a = 0, "value_width"_a = 0, "scale"_a = 0.0,
          "dropout"_a = 0.0, "causal"_a = false, "bias"_a = false, "seed"_a = 0, "dtype"_a = "f32");
  nb::class_<MatrixSelfAttention, Module>(module, "MatrixSelfAttention",
                                          "softmax(scale q k^T) v with bare matrices.")
      .def(
          "__init__",
          [](MatrixSelfAttention* self, Index width, Index key_width, Index value_width, double scale,
             std::uint64_t seed, const std::string& dtype) {
            make(self, MatrixSelfAttentionConfig{width, key_width, value_width, scale}, seed, dtype);
          },
          "width"_a, "key_width"_a = 0, "value_width"_a = 0, "scale"_a = 0.0, "seed"_a = 0, "dtype"_a = "f32")
      .def(
          "__call__", [](const MatrixSelfAttention& self, const Input& x) { return self(x); }, "x"_a,
          Unlocked());
  module.def(
      "self_attention", [](const Input& x, double scale) { return self_attention(x, scale); }, "x"_a,
      "scale"_a = 1.0, Unlocked(), "softmax(scale x x^T) x, without weights.");
  const std::string options = ", return_weights: bool = False" + masks + kResult;
  const std::string of_heads = "query: " + kArray + ", key: " + kArray + ", value: " + kArray;
  module.def(
      "attention",
      [](const Input& query, const Input& key, const Input& value, double scale, bool return_weights,
         const nb::kwargs& given) {
        return attend(
            [&](const AttentionOptions& all) { return scaled_dot_product_attention(query, key, value, all); },
            scale, return_weights, given);
      },
      "query"_a, "key"_a, "value"_a, nb::kw_only(), "scale"_a = 0.0, "return_weights"_a = false, "masks"_a,
      nb::sig(("def attention(" + of_heads + ", *, scale: float = 0" + options).c_str()),
      (std::string("Attention of query [B, T, H, D], key [B, S, G, D] and value [B, S, G, E]: [B, T, H, E]. "
                   "Scale 0 is 1 / sqrt(D).\n") +
       kMaskHelp)
          .c_str());
  module.def(
      "additive_attention",
      [](const Input& query, const Input& key, const Input& value, const Input& weight, bool return_weights,
         const nb::kwargs& given) {
        return attend(
            [&](const AttentionOptions& all) { return additive_attention(query, key, value, weight, all); },
            0, return_weights, given);
      },
      "query"_a, "key"_a, "value"_a, "weight"_a, nb::kw_only(), "return_weights"_a = false, "masks"_a,
      nb::sig(("def additive_attention(" + of_heads + ", weight: " + kArray + ", *" + options).c_str()),
      (std::string("The same with the scores weight_h . tanh(query_t + key_s), weight [H, D].\n") + kMaskHelp)
          .c_str());
}

}  // namespace tapeformer::python
