#include <tapeformer/autograd/dispatch.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/nn/attention/cost.h>
#include <tapeformer/nn/attention/heads.h>
#include <tapeformer/nn/attention/pieces/rotary.h>

namespace tapeformer {

void Rotary::check(const AttentionConfig& config, Index width) {
  const Index components = or_else(config.rotations.width, width);
  const auto refuse = [&](const std::string& rule, const char* remedy) {
    throw Error(format("[attention] {}; got attention={}, components={}; try {}", rule, config.kind,
                       components, remedy));
  };
  if (components % 2 != 0)
    refuse("rotary positions rotate pairs of a head's components", "an even width of the heads");
  if (components > width)
    refuse(format("rotary_components must be at most the {} that there are to rotate", width),
           "rotary_components=0");
  RotaryConfig of_one_pair = config.rotations;
  of_one_pair.width = 0;
  rotary_angles(of_one_pair, 2, 0, 0, DType::f64, Device::cpu());  // throws
}

void Rotary::change_heads(CallHeads& heads) const {
  require_self_attention("multi_head", "rotary positions are", heads.is_self);
  const RotaryAngles turns = angles(heads.input_btc, heads.context);
  if (heads.packed_btn.defined()) {
    heads.packed_btn = packed_rotary(std::move(heads.packed_btn), heads.sizes.heads + heads.sizes.groups,
                                     heads.sizes.key_width, turns);
    return;
  }
  heads.query_bthd = rotary(std::move(heads.query_bthd), turns);
  Tensor& key_bsgd = heads.new_kv.key_bsgd;
  if (key_bsgd.defined()) key_bsgd = rotary(std::move(key_bsgd), turns);
}

RotaryAngles Rotary::angles(const Tensor& query, const AttentionContext& context) const {
  if (context.angles.table.defined()) return context.angles;
  const bool in_step = !context.positions.defined() && context.cache != nullptr;
  const Tensor& positions = in_step ? context.cache->step().positions : context.positions;
  if (positions.defined()) {
    require_same_device("rotary", "positions", positions, query);
    return rotary_angles(rotations_, width_, positions, query.dtype());
  }
  const Index first = context.cache != nullptr ? context.cache->length() : 0;
  return rotary_angles(rotations_, width_, first, query.size(1), query.dtype(), query.device());
}

void RotaryHeads::complete(AttentionConfig& config) {
  if (config.rotary) Rotary::check(config, config.key_width);
}

MadePiece RotaryHeads::make(const AttentionConfig& config, Generator& /*random*/) {
  return config.rotary ? std::make_unique<Rotary>(config.rotations, config.key_width) : nullptr;
}

void RotaryHeads::add_cost(const AttentionConfig& config, CostSum& sum) {
  if (config.rotary) sum.keeps_angles(config, config.key_width);
}

/// The second layout, on a part of each head, with Llama 3's frequencies.
PieceCases RotaryHeads::cases() {
  return {{"grouped_query_half_split", "gqa",
           [](AttentionConfig& c) {
             c.rotary = true;
             c.rotations.layout = RotaryLayout::half_split;
             c.rotations.width = c.key_width - c.key_width / 4 * 2;
             c.rotations.base = 100, c.rotations.factor = 4, c.rotations.original_context = 16;
           },
           true}};
}

}  // namespace tapeformer
