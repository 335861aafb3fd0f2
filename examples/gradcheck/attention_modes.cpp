#include <tapeformer/examples/gradcheck/attention_modes.h>

#include <algorithm>
#include <limits>

namespace tapeformer {
namespace {

/// A mask of this shape, on the CPU like everything that is filled element by element here.
template <class MayAttend>
Tensor boolean_mask(const Shape& shape, const MayAttend& may_attend) {
  const Tensor mask = Tensor::empty(shape, DType::boolean, Device::cpu());
  for (Index i = 0; i < mask.elements(); ++i) mask.data<bool>()[i] = may_attend(i);
  return mask;
}

/// A mask in which each row of the batch has two real tokens fewer than the next.
Tensor real_tokens(Index batch, Index length) {
  return boolean_mask({batch, length}, [&](Index i) {
    return i % length < std::max<Index>(1, length - 2 * (batch - 1 - i / length));
  });
}

/// Masks about a third of the pairs, and everything for the first query of the first sequence's first head.
Tensor random_places(CheckSetting& setting, Index heads) {
  return boolean_mask({setting.batch, heads, setting.queries, setting.keys},
                      [&](Index i) { return setting.random.uniform() > 0.35 && i >= setting.keys; });
}

Tensor per_row(Index batch, Index first, Index last) {
  std::vector<std::int32_t> lengths;
  for (Index b = 0; b < batch; ++b)
    lengths.push_back(static_cast<std::int32_t>(std::max<Index>(b % 2 == 0 ? first : last, 0)));
  return Tensor::from(lengths, {batch});
}

/// The starts of B sequences of unequal lengths, `length` on average.
Tensor sequence_starts(Index batch, Index length) {
  std::vector<std::int32_t> starts;
  for (Index i = 0; i <= batch; ++i) {
    const Index shift = length == 1 || i == 0 || i == batch ? 0 : i % 2 == 1 ? -1 : 1;
    starts.push_back(static_cast<std::int32_t>(i * length + shift));
  }
  return Tensor::from(starts, {batch + 1});
}

}  // namespace

Tensor CheckSetting::normal(const Shape& shape) {
  const Tensor x = Tensor::empty(shape, type, sizes.device);
  random.fill_normal(x, 0, 1);
  return x;
}

std::vector<AttentionMode> attention_modes() {
  std::vector<AttentionMode> modes = {{"self", false, true}};
  for (const bool cross : {false, true}) {
    if (cross) modes.push_back({"cross", true, true});
    using Apply = std::function<void(CheckSetting&, Index)>;
    const auto add = [&](const std::string& name, const Apply& apply) -> AttentionMode& {
      return modes.emplace_back(AttentionMode{(cross ? "cross " : "self ") + name, cross, false, apply});
    };
    add("causal", [](CheckSetting& s, Index) { s.context.causal = true; });
    if (cross) {
      add("causal top-left", [](CheckSetting& s, Index) {
        s.context.causal = true;
        s.context.alignment = CausalAlignment::top_left;
      });
    }
    add("key padding", [](CheckSetting& s, Index) { s.context.key_mask = real_tokens(s.batch, s.keys); });
    add("query padding", [](CheckSetting& s, Index) {
      s.context.key_mask = real_tokens(s.batch, s.keys);
      s.context.query_mask = real_tokens(s.batch, s.queries);
    });
    add("nothing to see", [](CheckSetting& s, Index) {  // the first row of the batch
      s.context.key_mask = boolean_mask({s.batch, s.keys}, [&](Index i) { return i >= s.keys; });
    });
    add("key lengths",
        [](CheckSetting& s, Index) { s.context.key_lengths = per_row(s.batch, s.keys - 2, s.keys - 1); });
    add("boolean mask", [](CheckSetting& s, Index heads) { s.context.mask = random_places(s, heads); });
    add("additive mask", [](CheckSetting& s, Index) {
      const Tensor mask = s.normal({s.queries, s.keys}).to(Device::cpu()).to(DType::f64);
      for (Index i = 1; i < mask.elements(); i += 3)
        mask.data<double>()[i] = -std::numeric_limits<double>::infinity();
      s.context.mask = mask.to(s.type);
    });
    add("learned bias", [](CheckSetting& s, Index heads) {
      s.context.mask = s.normal({heads, s.queries, s.keys});
      s.inputs.emplace_back("mask", s.context.mask);
    });
    add("prefix", [](CheckSetting& s, Index) {
      s.context.causal = true;
      s.context.prefix_lengths = per_row(s.batch, s.keys / 2, s.keys - 1);
    });
    add("window", [](CheckSetting& s, Index) {
      s.context.causal = true;
      s.context.window_before = 1;
    });
    add("two-sided window", [](CheckSetting& s, Index) {
      s.context.window_before = 1;
      s.context.window_after = 2;
    });
    add("dropout", {}).dropout = true;
    add("packed", [](CheckSetting& s, Index) {
      s.context.query_starts = sequence_starts(s.sizes.batch, s.sizes.queries);
      if (s.cross) s.context.key_starts = sequence_starts(s.sizes.batch, s.sizes.keys);
    }).packed = true;
    if (!cross) {
      add("position ids", [](CheckSetting& s, Index) {
        s.context.positions = Tensor::empty({s.batch, s.queries}, DType::i32, Device::cpu());
        for (Index i = 0; i < s.batch * s.queries; ++i)
          s.context.positions.data<std::int32_t>()[i] = static_cast<std::int32_t>(1 + i * i % 11);
      }).positions = true;
    }
    add("all together", [](CheckSetting& s, Index heads) {
      s.context.causal = true;
      s.context.window_before = std::max<Index>(2, s.keys - 3);
      s.context.key_mask = real_tokens(s.batch, s.keys);
      s.context.mask = random_places(s, heads);
    }).dropout = true;
  }
  return modes;
}

CheckSetting setting_of(const AttentionMode& mode, const CheckSizes& sizes, Index heads, DType type) {
  const Index keys = mode.cross ? sizes.keys : sizes.queries;
  const Index rows = mode.packed ? sizes.batch : 1;  // packed rows are concatenated
  CheckSetting setting{sizes,
                       type,
                       mode.cross,
                       sizes.batch / rows,
                       rows * sizes.queries,
                       rows * keys,
                       mode.dropout ? sizes.dropout : 0,
                       Generator(sizes.seed)};
  if (mode.apply) mode.apply(setting, heads);
  AttentionContext& context = setting.context;
  for (Tensor* x : {&context.mask, &context.key_mask, &context.query_mask, &context.key_lengths,
                    &context.prefix_lengths, &context.query_starts, &context.key_starts, &context.positions})
    if (x->defined()) *x = x->to(sizes.device);
  return setting;
}

}  // namespace tapeformer
