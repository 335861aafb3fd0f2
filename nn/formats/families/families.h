#pragma once

#include <tapeformer/nn/formats/family.h>

#include <functional>
#include <map>

// The families, each in a file of its own or with its kin, and their common parts; for sources only.
namespace tapeformer {

Family gpt2_family();
Family llama_family();
Family mistral_family();
Family mixtral_family();
Family phi3_family();
Family qwen2_family();
Family qwen3_family();
Family qwen3_moe_family();
Family qwen3_next_family();
Family qwen3_5_family();
Family smollm3_family();
Family olmo2_family();
Family olmo3_family();
Family olmoe_family();
Family olmo_hybrid_family();
Family granite_family();
Family gemma2_family();
Family gemma3_family();
Family nanochat_family();
Family bloom_family();
Family diffllama_family();
Family minicpm3_family();
Family deepseek_v2_family();
Family deepseek_v3_family();
Family deepseek_v32_family();
Family glm_moe_dsa_family();
Family gpt_oss_family();
Family kimi_linear_family();
Family bert_family();
Family modernbert_family();
TranslationFamily marian_family();
TranslationFamily bart_family();
TranslationFamily mbart_family();
TranslationFamily m2m100_family();
TranslationFamily t5_family();
TranslationFamily mt5_family();

/// Describes vocabulary, context (with this default, and perhaps another name), width and number of layers.
void describe_states(ConfigMap& map, Index context, const char* their_context = "max_position_embeddings");
/// Describes the width of feed-forward networks, RMS norms (default epsilon) and rotary positions.
void describe_llama_layers(ConfigMap& map, double epsilon);
/// Fields that nearly all relatives of Llama have: states, heads, layers, dropout of attention and the tie of
/// the head, with the defaults of max_position_embeddings, rms_norm_eps, num_key_value_heads (0 for as many
/// as queries have), head_dim (0 for width / heads) and tie_word_embeddings.
void describe_llama_base(ConfigMap& map, Index context, double epsilon = 1e-6, Index key_heads = 0,
                         Index head_width = 0, bool tie_head = false);
/// Gives all layers attention of this kind, without the fields that only the other kinds of the model use.
void fit_kind(DecoderOnlyConfig& model, const std::string& kind);
/// Makes the width a multiple of the heads.
void fit_width(DecoderOnlyConfig& model);
/// The width of a head's queries and keys.
Index head_width_of(const DecoderOnlyConfig& model);
/// Makes attention multi-head, with heads that divide the width; the file has no field for either.
void fix_heads(ConfigMap& map);
/// Makes the heads divide the width.
void fix_head_width(ConfigMap& map);
/// Describes biases of all attention projections, or of none.
void describe_biases(ConfigMap& map, bool otherwise = false);
/// Sets biases of queries, keys and values, and of the output, for which the file has no field.
void fix_biases(ConfigMap& map, bool inputs, bool output);
/// Describes norms of queries and keys, with the other norms' epsilon, which must be described before.
void describe_qk_norms(ConfigMap& map, QkNorm norm);

/// Describes the width of the sliding window, for all layers, with its default; null for none.
void describe_window(ConfigMap& map, Index otherwise = 0);
/// Refuses files that set a window.
void refuse_window(ConfigMap& map);
/// A letter for each layer, by the types in layer_types, or by otherwise(layer) where the file has none.
std::string layer_letters(ConfigMap& map, const std::map<std::string, char>& types,
                          const std::function<char(Index layer)>& otherwise);
/// Describes the layers with the window, by layer_types, or by has_window(layer) where the file has none.
void describe_layer_types(ConfigMap& map, const std::function<bool(Index layer)>& has_window);
/// The first layer with the window, or without; the number of layers if there is none.
Index first_layer(const DecoderOnlyConfig& model, bool has_window);

using ReadScaling = void(JsonFields file, DecoderOnlyConfig& model);
ReadScaling read_scaling;
/// rope_parameters of layers with a window, which are not scaled, and of those without.
ReadScaling read_both_scalings;
/// Describes the scaling of rotary positions: rope_scaling, or rope_parameters of newer files.
void describe_scaling(ConfigMap& map, ReadScaling* read_parameters = read_scaling);

/// The scaling of layers without a window, and the base of those with one, in rope_parameters of both types
/// of layers, which transformers reads from version 5 on. The bases must be described before.
void describe_both_rotations(ConfigMap& map);

/// Fits rotations of all components of heads, and refuses files with others.
void rotate_whole_heads(ConfigMap& map);
/// Describes the base of whole heads' rotary positions, with its default, and their scaling.
void describe_rotations(ConfigMap& map, double base = 1e4);

/// Rotations without scaling of a share of each head's components, with its default; newer files have them in
/// rope_parameters.
void describe_partial_rotations(ConfigMap& map, double otherwise);

/// Experts of a softmax over all, and no others; their number is under one of two names, which is written
/// under the first. The weight of the loss that balances them counts if output_router_logits is set; their
/// loss is K times ours. `shared` is the width of a shared network with a gate, or there is none.
void describe_experts(ConfigMap& map, const char* count, const char* other_count, double balance_loss,
                      const char* shared = nullptr);

/// Describes the heads of latent attention, and the widths of their parts and of the latents.
void describe_latent_heads(ConfigMap& map);
/// Describes latent attention with rotary positions and their scaling, and networks of gated silu.
void describe_latent_attention(ConfigMap& map);
/// Describes the scale of scores, which grows with the scaling of positions by YaRN; after the scaling.
void describe_score_scale(ConfigMap& map);
/// The names of the numbers of experts, of a token's, and of those that the network for all tokens is as wide
/// as.
struct ExpertNames {
  const char *count, *active, *shared;
};
/// Describes the sizes of experts, the scale of their weights, and the first layers, which have none.
void describe_expert_sizes(ConfigMap& map, const ExpertNames& names, double router_scale, Index dense);

/// Describes the c of a softcap; null for none.
void describe_softcap(ConfigMap& map, const char* theirs, const char* ours, double& c, double otherwise);

/// Fits the heads of both sides, whose numbers must divide the width of the states.
void fit_bart_heads(EncoderDecoderConfig& model);

/// The names of Llama's tensors, with these names of a layer's two norms.
TensorNames llama_names(const char* attention_norm = "input_layernorm",
                        const char* feed_forward_norm = "post_attention_layernorm");
/// Llama's names with latent attention.
TensorNames latent_names();
/// These names with the module `mlp` in all layers: a network or, where there is a router, experts with these
/// tensors and a network for all tokens.
TensorNames with_shared_experts(TensorNames names, const char* mlp, const char* gate, const char* up,
                                const char* down);
/// Defaults of the heads and widths of layers with a state; 0 for a size that files must have.
struct StateSizes {
  Index heads = 0, key_heads = 0, key_width = 0, value_width = 0;
};
/// Describes the heads, widths and convolutions of layers with a state.
void describe_state_sizes(ConfigMap& map, const StateSizes& otherwise);
/// Layers of the kind `state` between those of another attention, whose letters `read_letters` gives. Its
/// fields are those of a model without the former, which `describe_full` describes.
void describe_hybrid(ConfigMap& map, const char* state, const std::function<void()>& describe_full,
                     const std::function<std::string()>& read_letters);
/// The letters of these layers, by layer_types, or by otherwise(layer) where the file has none.
std::string hybrid_letters(ConfigMap& map, const std::function<char(Index layer)>& otherwise);

/// These names with a router and experts in place of the feed-forward network, in the module `mlp`; the
/// others name an expert's tensors. `shared` is the module of a shared network, whose gate is next to it.
TensorNames with_experts(TensorNames names, const char* mlp, const char* gate, const char* up,
                         const char* down, const char* shared = nullptr);
/// These names, of which those of attention are for layers F, and after them others of attention.
TensorNames hybrid_names(TensorNames names, const std::vector<TensorName>& others);
/// The names, with others for some of our parameters.
TensorNames renamed(TensorNames names, const std::vector<TensorName>& others);
/// These names, with others before the first one for our parameter `before`.
TensorNames with_names(TensorNames names, const std::string& before, const std::vector<TensorName>& others);

}  // namespace tapeformer
