#include <tapeformer/autograd/format.h>
#include <tapeformer/nn/formats/families/families.h>

#include <cmath>

namespace tapeformer {
namespace {

/// Refuses rotations under both names, of which transformers reads one.
void refuse_both(JsonFields& file) {
  if (file.has("rope_scaling") && file.has("rope_parameters"))
    file.fail("rope_scaling", "and rope_parameters are both present");
}

/// The rotations over the original context between which frequencies are blended.
void read_frequencies(JsonFields& file, const char* low, const char* high, RotaryConfig& rotations) {
  rotations.low_frequency = file.number(low, rotations.yarn ? std::optional(1.0) : std::nullopt);
  rotations.high_frequency = file.number(high, rotations.yarn ? std::optional(32.0) : std::nullopt);
  if (rotations.low_frequency >= rotations.high_frequency)
    file.fail(low, std::string("must be below ") + high);
}

void read_yarn(JsonFields& file, RotaryConfig& rotations) {
  rotations.yarn = true;
  read_frequencies(file, "beta_slow", "beta_fast", rotations);
  const auto grown = [&](double slope) {
    return rotations.factor <= 1 ? 1 : 0.1 * slope * std::log(rotations.factor) + 1;
  };
  rotations.attention_factor = grown(1);
  const bool has_scale = file.has("mscale"), has_all = file.has("mscale_all_dim");
  if (has_scale && has_all)
    rotations.attention_factor = grown(file.number("mscale")) / grown(file.number("mscale_all_dim"));
  rotations.attention_factor = file.number("attention_factor", rotations.attention_factor);
  rotations.whole_pairs = file.flag("truncate", true);
}

}  // namespace

void read_scaling(JsonFields file, DecoderOnlyConfig& model) {
  RotaryConfig& rotations = model.attention.rotations;
  const char* const type_name = file.has("rope_type") ? "rope_type" : "type";
  const std::string type = file.text(type_name, "default");
  rotations.base = file.number("rope_theta", rotations.base);
  file.demand("partial_rotary_factor", 1.0);
  const bool is_scaled = type == "linear" || type == "llama3" || type == "yarn";
  if (is_scaled) rotations.factor = file.number("factor");
  if (type == "llama3" || type == "yarn")
    rotations.original_context = file.size("original_max_position_embeddings", model.context);
  if (type == "llama3") read_frequencies(file, "low_freq_factor", "high_freq_factor", rotations);
  if (type == "yarn") read_yarn(file, rotations);
  if (type == "default") file.ignore({"factor"});
  if (!is_scaled && type != "default")
    file.fail(type_name, "= " + type + " changes the arithmetic and is not implemented");
  file.ignore({"type"});  // the older name, which some files have next to the new one
  file.finish();
}

void read_both_scalings(JsonFields both, DecoderOnlyConfig& model) {
  if (both.has("sliding_attention")) {
    JsonFields of_windows = both.object("sliding_attention");
    model.window_rotary_base = of_windows.number("rope_theta", model.window_rotary_base);
    of_windows.demand("rope_type", "default");
    of_windows.demand("partial_rotary_factor", 1.0);
    of_windows.finish();
  }
  if (both.has("full_attention")) read_scaling(both.object("full_attention"), model);
  both.finish();
}

void describe_scaling(ConfigMap& map, ReadScaling* read_parameters) {
  map.has({"rotary_*"});
  RotaryConfig& rotations = map.model.attention.rotations;
  if (map.fits && !rotations.yarn) rotations.attention_factor = 1, rotations.whole_pairs = true;
  if (map.reads) {
    rotations.layout = RotaryLayout::half_split;
    refuse_both(*map.reads);
    if (map.reads->has("rope_scaling")) read_scaling(map.reads->object("rope_scaling"), map.model);
    if (map.reads->has("rope_parameters")) read_parameters(map.reads->object("rope_parameters"), map.model);
  }
  if (read_parameters == read_both_scalings) {  // for which transformers passes over truncate
    if (map.reads && !rotations.whole_pairs)
      map.reads->fail("truncate", "= false changes the arithmetic and is not implemented");
    if (map.fits) rotations.whole_pairs = true;
  }
  const bool is_llama3 = !rotations.yarn && rotations.original_context > 0,
             is_plain = !rotations.yarn && !is_llama3 && rotations.factor == 1;
  if (!map.writes || is_plain) return;
  ConfigMap::Json& scaling = (*map.writes)["rope_scaling"];
  scaling["rope_type"] = rotations.yarn ? "yarn" : is_llama3 ? "llama3" : "linear";
  scaling["factor"] = rotations.factor;
  if (!rotations.yarn && !is_llama3) return;
  scaling[rotations.yarn ? "beta_slow" : "low_freq_factor"] = rotations.low_frequency;
  scaling[rotations.yarn ? "beta_fast" : "high_freq_factor"] = rotations.high_frequency;
  if (rotations.yarn) scaling["attention_factor"] = rotations.attention_factor;
  if (!rotations.whole_pairs) scaling["truncate"] = false;
  scaling["original_max_position_embeddings"] = rotations.original_context;
}

void rotate_whole_heads(ConfigMap& map) {
  map.demand("partial_rotary_factor", 1.0);
  map.fixed("rotary_reversed", false);
  Index& width = map.model.attention.rotations.width;
  if (map.fits && width != head_width_of(map.model)) width = 0;
}

void describe_both_rotations(ConfigMap& map) {
  map.has({"window_rotary_base"});
  const RotaryConfig& rotations = map.model.attention.rotations;
  double& base = map.model.window_rotary_base;
  rotate_whole_heads(map);
  describe_scaling(map, read_both_scalings);
  const bool has_window = map.model.window > 0,
             is_scaled = rotations.factor != 1 || rotations.original_context > 0;
  if (!has_window || (map.reads && !is_scaled && base == rotations.base)) base = 0;
  if (map.fits && has_window && is_scaled && base == 0) base = rotations.base;
  if (!map.writes) return;
  ConfigMap::Json& file = *map.writes;
  ConfigMap::Json windows = {{"rope_type", "default"}}, full = file.value("rope_scaling", windows);
  windows["rope_theta"] = base > 0 ? base : rotations.base;
  full["rope_theta"] = rotations.base;
  file.erase("rope_scaling");
  file["rope_parameters"] = {{"full_attention", full}, {"sliding_attention", windows}};
}

void describe_rotations(ConfigMap& map, double base) {
  map.field("rope_theta", "rotary_base", base);
  rotate_whole_heads(map);
  describe_scaling(map);
}

void describe_partial_rotations(ConfigMap& map, double otherwise) {
  map.field("rope_theta", "rotary_base", 1e4);
  map.fixed("rotary_layout", std::string("half_split"));
  map.has({"rotary_components"});
  const char* const name = "partial_rotary_factor";
  RotaryConfig& rotations = map.model.attention.rotations;
  const Index head_width = head_width_of(map.model);
  const auto D = static_cast<double>(head_width);
  if (map.reads) {
    refuse_both(*map.reads);
    double share = map.reads->number(name, otherwise);
    for (const char* const place : {"rope_scaling", "rope_parameters"}) {
      if (!map.reads->has(place)) continue;
      JsonFields file = map.reads->object(place);
      for (const char* const type : {"type", "rope_type"}) file.demand(type, "default");
      rotations.base = file.number("rope_theta", rotations.base);
      share = file.number(name, share);
      file.ignore({"mrope_section", "mrope_interleaved"});  // of positions in images
      file.finish();
    }
    const Index width = share > 1 ? 0 : static_cast<Index>(D * share);
    if (width == 0 || width % 2 != 0)
      map.reads->fail(name, format("must rotate an even number of a head's {} components; got {}", D, share));
    rotations.width = width == head_width ? 0 : width;
  }
  if (map.fits && (rotations.width % 2 != 0 || rotations.width > head_width)) rotations.width = 0;
  map.fixed("rotary_reversed", false);
  if (!map.writes) return;
  const auto width = static_cast<double>(rotations.width > 0 ? rotations.width : head_width);
  const double share = width / D;  // whose product with D is rounded down
  (*map.writes)[name] = std::floor(D * share) < width ? std::nextafter(share, 1) : share;
}

}  // namespace tapeformer
