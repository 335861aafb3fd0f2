#include <tapeformer/nn/formats/family.h>
#include <tapeformer/tests/nn/formats/hugging_face_case.h>

using namespace tapeformer;

namespace {

struct EncoderReading {
  const char* type;
  Json more;
  const char* differences;  // from our defaults
};

Json encoder_file(const char* type, const Json& more) {
  Json json = {{"model_type", type},      {"vocab_size", 29},       {"hidden_size", 24},
               {"intermediate_size", 40}, {"num_hidden_layers", 3}, {"num_attention_heads", 4}};
  json.update(more);
  return json;
}

}  // namespace

TEST_CASE("each family of encoders is read as what it is, and written as what was read") {
  const Json none = Json::object(), mixed = {"sliding_attention", "full_attention", "full_attention"};
  const Json both = {{"full_attention", {{"rope_type", "linear"}, {"factor", 8}, {"rope_theta", 300}}},
                     {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 7}}}};
  const std::vector<EncoderReading> readings = {
      {"bert", none,
       "context=512 attention_dropout=0.1 epsilon=1e-12 sublayer_norms=sum activation=gelu "
       "head_bias=true head_transform=true token_types=2 embedding_norm=true embedding_dropout=0.1 "
       "residual_dropout=0.1 bidirectional=true"},
      {"bert",
       {{"max_position_embeddings", 77},
        {"hidden_act", "relu"},
        {"layer_norm_eps", 0.5},
        {"hidden_dropout_prob", 0.25},
        {"attention_probs_dropout_prob", 0.5},
        {"type_vocab_size", 3},
        {"pooler_type", "first_token_transform"}},
       "context=77 attention_dropout=0.5 epsilon=0.5 sublayer_norms=sum activation=relu head_bias=true "
       "head_transform=true token_types=3 embedding_norm=true embedding_dropout=0.25 "
       "residual_dropout=0.25 bidirectional=true"},
      {"modernbert", none,
       "context=8192 rotary_base=160000 rotary_layout=half_split attention_bias=false positions=rotary "
       "window=128 windows=LSS window_rotary_base=10000 norm_bias=false first_norm=false activation=gelu "
       "gated=true feed_forward_bias=false head_bias=true head_transform=true embedding_norm=true "
       "bidirectional=true"},
      {"modernbert",
       {{"attention_bias", true},
        {"norm_bias", true},
        {"global_attn_every_n_layers", 2},
        {"local_attention", 8},
        {"global_rope_theta", 300},
        {"local_rope_theta", 7},
        {"embedding_dropout", 0.25},
        {"mlp_dropout", 0.5}},
       "context=8192 rotary_base=300 rotary_layout=half_split positions=rotary window=8 windows=LSL "
       "window_rotary_base=7 first_norm=false activation=gelu gated=true feed_forward_bias=false "
       "head_bias=true head_transform=true embedding_norm=true embedding_dropout=0.25 "
       "feed_forward_dropout=0.5 bidirectional=true"},
      {"modernbert",
       {{"global_attn_every_n_layers", 1}},
       "context=8192 rotary_base=160000 rotary_layout=half_split attention_bias=false positions=rotary "
       "norm_bias=false first_norm=false activation=gelu gated=true feed_forward_bias=false head_bias=true "
       "head_transform=true embedding_norm=true bidirectional=true"},
      {"modernbert",
       {{"layer_types", mixed}, {"rope_parameters", both}},
       "context=8192 rotary_base=300 rotary_layout=half_split rotary_factor=8 attention_bias=false "
       "positions=rotary window=128 windows=SLL window_rotary_base=7 norm_bias=false first_norm=false "
       "activation=gelu gated=true feed_forward_bias=false head_bias=true head_transform=true "
       "embedding_norm=true bidirectional=true"},
  };
  for (const EncoderReading& reading : readings) {
    const std::string text = encoder_file(reading.type, reading.more).dump();
    INFO(text);
    const DecoderOnlyConfig config = hugging_face_config(text);
    CHECK(differences(config, DecoderOnlyConfig()) == reading.differences);
    const std::string written = hugging_face_json(config);
    CHECK(parse_json(written).at("model_type") == reading.type);
    CHECK(hugging_face_config(written).to_json() == config.to_json());
  }
}

TEST_CASE("options of encoders' files that are not implemented are refused by name") {
  const auto is_not_implemented = [](const std::string& what) { return what + kNotImplemented; };
  for (const auto& [type, more, message] : std::vector<std::tuple<const char*, Json, std::string>>{
           {"bert",
            {{"position_embedding_type", "relative_key"}},
            is_not_implemented("position_embedding_type = \"relative_key\"")},
           {"bert", {{"is_decoder", true}}, is_not_implemented("is_decoder = true")},
           {"bert", {{"tie_word_embeddings", false}}, is_not_implemented("tie_word_embeddings = false")},
           {"bert", {{"rotary_value", true}}, std::string("rotary_value") + kUnknown},
           {"modernbert",
            {{"classifier_activation", "silu"}},
            is_not_implemented("classifier_activation = \"silu\"")},
           {"modernbert", {{"mlp_bias", true}}, is_not_implemented("mlp_bias = true")},
           {"modernbert", {{"decoder_bias", false}}, is_not_implemented("decoder_bias = false")}}) {
    CHECK(refusal(encoder_file(type, more)) == message);
  }
}
