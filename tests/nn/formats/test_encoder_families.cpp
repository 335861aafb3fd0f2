#include <tapeformer/tests/nn/formats/family_case.h>

using namespace tapeformer;

TEST_CASE("each family of encoders is read as what it is, and written as what was read") {
  check_readings({
      {"bert", "",
       "context=512 attention_dropout=0.1 epsilon=1e-12 sublayer_norms=sum activation=gelu head_bias=true "
       "head_transform=true token_types=2 embedding_norm=true embedding_dropout=0.1 residual_dropout=0.1 "
       "bidirectional=true"},
      {"bert",
       R"("max_position_embeddings": 77, "hidden_act": "relu", "layer_norm_eps": 0.5,
          "hidden_dropout_prob": 0.25, "attention_probs_dropout_prob": 0.5, "type_vocab_size": 3,
          "pooler_type": "first_token_transform", "output_past": true)",
       "context=77 attention_dropout=0.5 epsilon=0.5 sublayer_norms=sum activation=relu head_bias=true "
       "head_transform=true token_types=3 embedding_norm=true embedding_dropout=0.25 residual_dropout=0.25 "
       "bidirectional=true"},
      {"modernbert", "",
       "context=8192 rotary_base=160000 rotary_layout=half_split attention_bias=false positions=rotary "
       "window=128 windows=LSS window_rotary_base=10000 norm_bias=false first_norm=false activation=gelu "
       "gated=true feed_forward_bias=false head_bias=true head_transform=true embedding_norm=true "
       "bidirectional=true"},
      {"modernbert",
       R"("attention_bias": true, "norm_bias": true, "global_attn_every_n_layers": 2, "local_attention": 8,
          "global_rope_theta": 300, "local_rope_theta": 7, "embedding_dropout": 0.25, "mlp_dropout": 0.5)",
       "context=8192 rotary_base=300 rotary_layout=half_split positions=rotary window=8 windows=LSL "
       "window_rotary_base=7 first_norm=false activation=gelu gated=true feed_forward_bias=false "
       "head_bias=true head_transform=true embedding_norm=true embedding_dropout=0.25 "
       "feed_forward_dropout=0.5 bidirectional=true"},
      {"modernbert", R"("global_attn_every_n_layers": 1)",
       "context=8192 rotary_base=160000 rotary_layout=half_split attention_bias=false positions=rotary "
       "norm_bias=false first_norm=false activation=gelu gated=true feed_forward_bias=false head_bias=true "
       "head_transform=true embedding_norm=true bidirectional=true"},
      {"modernbert",
       R"("layer_types": ["sliding_attention", "full_attention", "full_attention"],
          "rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8, "rope_theta": 300},
          "sliding_attention": {"rope_type": "default", "rope_theta": 7}})",
       "context=8192 rotary_base=300 rotary_layout=half_split rotary_factor=8 attention_bias=false "
       "positions=rotary window=128 windows=SLL window_rotary_base=7 norm_bias=false first_norm=false "
       "activation=gelu gated=true feed_forward_bias=false head_bias=true head_transform=true "
       "embedding_norm=true bidirectional=true"},
  });
}

TEST_CASE("options of encoders' files that are not implemented are refused by name") {
  check_refusals(
      {{"bert", R"("position_embedding_type": "relative_key")", "position_embedding_type = \"relative_key\""},
       {"bert", R"("is_decoder": true)", "is_decoder = true"},
       {"bert", R"("tie_word_embeddings": false)", "tie_word_embeddings = false"},
       {"modernbert", R"("classifier_activation": "silu")", "classifier_activation = \"silu\""},
       {"modernbert", R"("mlp_bias": true)", "mlp_bias = true"},
       {"modernbert", R"("rope_scaling": {"factor": 8})", "rope_scaling = {\"factor\":8}"},
       {"modernbert", R"("decoder_bias": false)", "decoder_bias = false"}},
      kNotImplemented);
  check_refusals({{"bert", R"("rotary_value": true)", "rotary_value"}}, kUnknown);
}
