#pragma once

#include <tapeformer/nn/transformer/decoder_only_config.h>

#include <array>
#include <string>
#include <utility>

namespace tapeformer {

/// The types of transformers' models that are a DecoderOnly: gpt2, and llama with those that differ from it.
struct HuggingFaceFamily {
  const char* type;          ///< model_type
  const char* title;         ///< its name for people
  const char* architecture;  ///< the class of a model with a head
  Index key_heads;           ///< the default of num_key_value_heads; 0 for as many as queries have
  Index context;             ///< the default of max_position_embeddings
  double epsilon;            ///< the default of rms_norm_eps
  bool attention_bias;       ///< has this field; else attention has the biases of `query_bias`
  bool query_bias;           ///< queries, keys and values have biases, the output none
  bool mlp_bias;             ///< has this field; else feed-forward networks have no biases
  QkNorm qk_norm;            ///< with the epsilon of the norms
  SublayerNorms norms;       ///< see DecoderOnlyConfig::sublayer_norms
  bool window;               ///< may have a window in all layers
  bool windows;              ///< may have windows in some
  /// 2 or 3 for Gemma's: gains stored less 1, embeddings times sqrt(C), softcaps and a scale of scores. 3 has
  /// another rotary base in windows, and no softcap but that of the logits.
  int gemma = 0;
};

/// All of them.
const std::array<HuggingFaceFamily, 8>& hugging_face_families();
/// The family of a model_type. Throws: CheckpointError that lists the types there are
const HuggingFaceFamily& hugging_face_family(const std::string& type);
/// "GPT-2, Llama, ... and Gemma 3": the titles of all, with `joint` before the last one.
std::string hugging_face_titles(const std::string& joint);

/// Activations under transformers' names. If one of ours has several, the first is written.
inline constexpr std::array<std::pair<const char*, Unary>, 9> kHuggingFaceActivations{
    {{"gelu_new", Unary::gelu_tanh},
     {"gelu_pytorch_tanh", Unary::gelu_tanh},
     {"gelu_python_tanh", Unary::gelu_tanh},
     {"gelu", Unary::gelu},
     {"gelu_python", Unary::gelu},
     {"relu", Unary::relu},
     {"relu2", Unary::relu_squared},
     {"silu", Unary::silu},
     {"swish", Unary::silu}}};

}  // namespace tapeformer
