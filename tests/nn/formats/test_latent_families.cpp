#include <tapeformer/tests/nn/formats/family_case.h>

using namespace tapeformer;

TEST_CASE("families with latent attention are read as what they are, and written as what was read") {
  check_readings({
      {"minicpm3", R"("q_lora_rank": 5, "scale_depth": 0.75, "dim_model_base": 12)",
       "context=32768 attention=mla groups=0 latent_width=7 query_latent_width=5 rotary_width=4 "
       "head_width=3 tie_head=true embedding_scale=12 residual_scale=0.433013 head_scale=0.5"},
      {"minicpm3", R"("scale_depth": null, "dim_model_base": null)",
       "context=32768 attention=mla groups=0 latent_width=7 rotary_width=4 head_width=3 tie_head=true "
       "embedding_scale=12"},
      {"deepseek_v2", R"("topk_method": "greedy", "first_k_dense_replace": 0)",
       "attention=mla groups=0 latent_width=7 rotary_width=4 rotary_layout=interleaved head_width=3 "
       "experts=8 normalized_router=false shared_expert=18 balance_loss=0 expert_width=9"},
      {"deepseek_v2",
       R"("topk_method": "group_limited_greedy", "rope_scaling": {"type": "yarn", "factor": 8, "mscale": 0.5,
          "mscale_all_dim": 0.5})",
       "attention=mla groups=0 latent_width=7 rotary_width=4 score_scale=0.460646 rotary_layout=interleaved "
       "rotary_factor=8 rotary_original_context=2048 rotary_high_frequency=32 rotary_yarn=true head_width=3 "
       "experts=8 normalized_router=false shared_expert=18 balance_loss=0 expert_width=9 expert_groups=4 "
       "active_groups=2 experts_from=2"},
      {"deepseek_v3", R"("norm_topk_prob": false, "rope_interleave": true)",
       "context=4096 attention=mla groups=0 latent_width=7 rotary_width=4 rotary_layout=interleaved "
       "head_width=3 experts=8 router=sigmoid normalized_router=false shared_expert=18 balance_loss=0 "
       "balance=bias expert_width=9 router_scale=2.5 expert_groups=4 active_groups=2 experts_from=2"},
      {"deepseek_v32", R"("q_lora_rank": 5, "index_topk": 6, "index_n_heads": 3, "index_head_dim": 8)",
       "context=163840 attention=mla groups=0 latent_width=7 query_latent_width=5 rotary_width=4 "
       "index_top_k=6 index_heads=3 index_width=8 index_loss=0 rotary_layout=interleaved head_width=3 "
       "experts=8 router=sigmoid shared_expert=18 balance_loss=0 balance=bias expert_width=9 "
       "router_scale=2.5 expert_groups=4 active_groups=2 experts_from=2"},
      {"glm_moe_dsa", R"("q_lora_rank": 5, "indexer_types": ["full", "full", "full"],
          "layer_types": ["deepseek_sparse_attention", "indexed_attention", "indexed_attention"])",
       "context=202752 attention=mla groups=0 latent_width=7 query_latent_width=5 rotary_width=4 "
       "index_top_k=2048 index_heads=32 index_width=128 index_loss=0 index_rotary_layout=interleaved "
       "rotary_layout=interleaved head_width=3 experts=8 router=sigmoid shared_expert=18 balance_loss=0 "
       "balance=bias expert_width=9 router_scale=2.5 expert_groups=4 active_groups=2 experts_from=2"},
  });
}

TEST_CASE("a DeepSeek whose rotary rows are not interleaved can be written") {
  const DecoderOnlyConfig halves =
      hugging_face_config(file_of("deepseek_v3", R"("rope_interleave": false)").dump());
  CHECK(halves.attention.rotations.layout == RotaryLayout::half_split);
  DecoderOnlyConfig pairs = halves;
  pairs.attention.rotations.layout = RotaryLayout::interleaved;
  CHECK(hugging_face_config(hugging_face_json(halves)).to_json() == pairs.to_json());
}

TEST_CASE("a DeepSeek V2 has a width that is a multiple of its heads, as transformers demands") {
  DecoderOnlyConfig config = hugging_face_config(file_of("deepseek_v2").dump());
  config.width = 26;
  CHECK(message_of<CheckpointError>([&] {
          hugging_face_json(config);
        }).find("DeepSeek V2 differs least; got width=26; try width=28") != std::string::npos);
}

TEST_CASE("options of latent attention and its experts that are not implemented are refused by name") {
  for (const char* const fields : {R"("first_k_dense_replace": 3)", R"("first_k_dense_replace": null)"})
    check_refusals({{"deepseek_v3", fields,
                     "first_k_dense_replace must be below num_hidden_layers: models without experts are not "
                     "implemented"}});
  check_refusals({{"minicpm3", R"("v_head_dim": 5)", "v_head_dim = 5"},
                  {"minicpm3", R"("num_key_value_heads": 2)", "num_key_value_heads = 2"},
                  {"deepseek_v2", R"("topk_method": "noaux_tc")", "topk_method = noaux_tc"},
                  {"glm_moe_dsa", R"("q_lora_rank": 5, "indexer_types": ["full", "shared", "full"])",
                   "indexer_types = shared in layer 1"},
                  {"deepseek_v3", R"("scoring_func": "softmax")", "scoring_func = \"softmax\""}},
                 kNotImplemented);
}

TEST_CASE("a list of the layers with experts counts before their number") {
  const auto file = file_of("deepseek_v32", R"("q_lora_rank": 5, "first_k_dense_replace": 1,
    "mlp_layer_types": ["dense", "dense", "sparse"])");
  CHECK(hugging_face_config(file.dump()).experts_from == 2);
}
