#include <tapeformer/nn/formats/families/families.h>

#include <optional>
#include <utility>

namespace tapeformer {

std::string hybrid_letters(ConfigMap& map, const std::function<char(Index)>& otherwise) {
  return layer_letters(map, {{"linear_attention", 'D'}, {"full_attention", 'F'}}, otherwise);
}

void describe_hybrid(ConfigMap& map, const char* state, const std::function<void()>& describe_full,
                     const std::function<std::string()>& read_letters) {
  map.has({"attention_pattern", "full_attention"});
  DecoderOnlyConfig& model = map.model;
  AttentionConfig& attention = model.attention;
  OwnValues own = std::exchange(attention.own, {});
  if (attention.kind != state) own = {};
  if (attention_kind(attention.kind).can & kHasState) attention.kind = model.full_attention;
  std::string letters = std::exchange(model.attention_pattern, "");
  describe_full();
  model.full_attention = std::exchange(attention.kind, state);
  attention.own = std::move(own);
  if (map.fits && letters.empty()) letters = "DF";
  if (map.reads) letters = read_letters();
  model.attention_pattern = letters;
  if (!map.writes) return;
  ConfigMap::Json& types = (*map.writes)["layer_types"] = ConfigMap::Json::array();
  for (Index i = 0; i < model.layers; ++i)
    types.push_back(model.has_full_attention(i) ? "full_attention" : "linear_attention");
}

void describe_state_sizes(ConfigMap& map, const StateSizes& otherwise) {
  OwnValues& own = map.model.attention.own;
  AttentionConfig state;
  if (map.writes) {
    DecoderOnlyConfig all = map.model;
    all.attention_pattern = "D";
    state = all.attention_config().resolved();
  }
  const auto describe_size = [&](const char* theirs, const char* ours, Index resolved, Index usual) {
    map.has({ours});
    if (map.reads)
      own[ours] =
          static_cast<double>(map.reads->size(theirs, usual > 0 ? std::optional(usual) : std::nullopt));
    if (map.writes) (*map.writes)[theirs] = resolved;
  };
  const auto own_size = [&](const char* ours) { return static_cast<Index>(state.own[ours]); };
  describe_size("linear_num_value_heads", "state_heads", state.heads, otherwise.heads);
  describe_size("linear_num_key_heads", "state_key_heads", own_size("state_key_heads"), otherwise.key_heads);
  describe_size("linear_key_head_dim", "state_key_width", state.key_width, otherwise.key_width);
  describe_size("linear_value_head_dim", "state_value_width", state.value_width, otherwise.value_width);
  describe_size("linear_conv_kernel_dim", "convolution_taps", own_size("convolution_taps"), 4);
  if (const auto taps = own.find("convolution_taps"); map.fits && taps != own.end() && taps->second == 0)
    own.erase(taps);
  map.demand("hidden_act", "silu");  // of the convolutions too
  map.fixed("activation", std::string("silu"));
  map.fixed("gated", true);
}

TensorNames hybrid_names(TensorNames names, const std::vector<TensorName>& others) {
  const std::string attention = "layers.*.attention.";
  for (TensorName& name : names.list)
    for (std::string* ours : {&name.ours, &name.needs})
      if (ours->compare(0, attention.size(), attention) == 0) ours->replace(ours->find('*'), 1, "F");
  return with_names(names, "layers.*.feed_forward_norm", others);
}

}  // namespace tapeformer
