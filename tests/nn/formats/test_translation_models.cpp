#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/nn/formats/expression.h>
#include <tapeformer/tests/nn/formats/hugging_face_case.h>
#include <tapeformer/tests/nn/formats/hugging_face_folder.h>
#include <tapeformer/tests/nn/transformer/decoder_only_case.h>
#include <tapeformer/tests/reference/sanitized.h>

#include <cmath>
#include <tuple>

using namespace tapeformer;

namespace {

EncoderDecoder translation_model(const std::string& name, DType type) {
  EncoderDecoder model = load_hugging_face<EncoderDecoder>(folder_of(name));
  model.to(type);
  return model;
}

/// Batches of sources, [steps, B, S], and of targets, [steps, B, T + 1].
struct TranslationBatches {
  TranslationBatches(const Golden& golden, const std::string& name)
      : sources(golden.tensor(name, "sources")),
        masks(golden.tensor(name, "masks")),
        targets(golden.tensor(name, "targets")) {}

  Tensor source(Index step) const { return batch_of(sources, step, 0, sources.size(2)); }
  Tensor mask(Index step) const { return batch_of<bool>(masks, step, 0, masks.size(2)); }
  Tensor target(Index step) const { return batch_of(targets, step, 0, targets.size(2) - 1); }
  Tensor expected(Index step) const { return batch_of(targets, step, 1, targets.size(2) - 1); }

  Tensor sources, masks, targets;
};

Json marian_json(const Json& more = Json::object()) {
  Json json = {{"model_type", "marian"}, {"vocab_size", 29}};
  json.update(more);
  return json;
}

EncoderDecoderConfig read_translation(const Json& json) {
  return hugging_face_config<EncoderDecoderConfig>(json.dump());
}

EncoderDecoderConfig own_translation() {
  EncoderDecoderConfig config;
  config.source_vocabulary = 17, config.target_vocabulary = 13, config.max_length = 8;
  config.encoder_layers = 1, config.decoder_layers = 2;
  config.layer.width = 12, config.layer.attention.heads = 3;
  return config;
}

std::string translation_refusal(const EncoderDecoderConfig& config) {
  return message_of<CheckpointError>([&] { hugging_face_json(config); });
}

}  // namespace

TEST_CASE("logits are those of transformers") {
  const Golden golden("translation");
  for (const std::string& name : golden.cases()) {
    INFO(name);
    const TranslationBatches batches(golden, name);
    const auto logits = [&](DType type) {
      return translation_model(name, type)(batches.source(0), batches.mask(0), batches.target(0));
    };
    CHECK_BELOW(absolute_error(logits(DType::f64), golden.tensor(name, "logits")), 1e-12);
    CHECK_BELOW(times_error_of_pytorch(golden, name, "logits", logits(DType::f32)), kMostTimesPyTorch);
  }
}

TEST_CASE("token by token the logits are those of whole targets") {
  const Golden golden("translation");
  for (const std::string& name : golden.cases()) {
    INFO(name);
    const TranslationBatches batches(golden, name);
    const EncoderDecoder model = translation_model(name, DType::f64);
    const Tensor target = batches.target(0), expected = golden.tensor(name, "logits");
    DecoderState state = model.start(model.encode(batches.source(0), batches.mask(0)), batches.mask(0));
    for (Index t = 0; t < target.size(1); ++t) {
      const Tensor logits = model.logits(model.decode(columns(target, t, 1), state));
      CHECK_BELOW(absolute_error(logits, slice(expected, 1, t, 1)), 1e-12);
    }
  }
}

TEST_CASE("ten losses of fine-tuning are those of transformers") {
  const Golden golden("translation");
  for (const std::string& name : golden.cases()) {
    const TranslationBatches batches(golden, name);
    for (const DType type : {DType::f64, DType::f32}) {
      EncoderDecoder model = translation_model(name, type);
      check_fine_tuning(golden, name, model, [&](Index i) {
        return model.loss(batches.source(i), batches.mask(i), batches.target(i), batches.expected(i));
      });
    }
  }
}

TEST_CASE("an export has the original's tensors bit for bit, and its model") {
  for (const std::string& name : Golden("translation").cases()) {
    INFO(name);
    const Export exported(name);
    EncoderDecoder model = load_hugging_face<EncoderDecoder>(folder_of(name));
    const std::int32_t pad = name == "m2m100" ? 1 : 16;
    save_hugging_face(exported.folder, model, {16, {0}, pad});
    check_same_tensors(exported.folder, folder_of(name));
    CHECK(load_hugging_face<EncoderDecoder>(exported.folder).config().to_json() == model.config().to_json());
    const Json json = parse_json(read_bytes(exported.folder + "/config.json"));
    CHECK(json.at("decoder_start_token_id") == 16);
    CHECK(json.at("pad_token_id") == pad);
    CHECK(json.at("forced_eos_token_id") == 0);
  }
  const EncoderDecoderConfig separate =
      load_hugging_face<EncoderDecoder>(folder_of("marian_separate")).config();
  CHECK_THROWS_WITH_AS(hugging_face_json(separate, DType::f32, {17, {0}, 17}),
                       "pad_token_id must be within the vocabulary of 17; got 17", CheckpointError);
}

TEST_CASE("a model of our own in each family comes back from an export with the same logits") {
  Generator random(test_seed(5));
  const Tensor source = Tensor::from<std::int32_t>({8, 12, 3, 0, 5, 6, 7, 2, 9, 10, 11, 4}, {2, 6}),
               target = Tensor::from<std::int32_t>({8, 12, 3, 5, 0, 4}, {2, 3});
  for (const TranslationFamily& family : families<EncoderDecoderConfig>()) {
    for (const bool packed : {true, false}) {
      INFO(std::string(family.type));
      EncoderDecoderConfig start = own_translation();
      start.layer.attention.packed = packed, start.decoder_heads = 2, start.decoder_feed_forward = 7;
      EncoderDecoder model(TranslationMap::fit(family.describe, start), random);
      REQUIRE(expression_in(transformers_format<EncoderDecoderConfig>(), model.config()).family == &family);
      for (Parameter& parameter : model.parameters()) random.fill_normal(parameter.value(), 0, 0.3);
      model.eval();
      const Export exported(std::string("own_") + family.type);
      save_hugging_face(exported.folder, model);
      CHECK(is_hugging_face(exported.folder));
      const Tensor logits = model(source, {}, target);
      const EncoderDecoder read = load_hugging_face<EncoderDecoder>(exported.folder);
      CHECK_BELOW(rms_error(read(source, {}, target), logits), 1e-6);
      save_safetensors(exported.folder + "/logits.safetensors",
                       {{"source", source}, {"target", target}, {"logits", logits}});
    }
  }
}

TEST_CASE("a table that is tied may be in the file under any of its names, or under several") {
  const Golden golden("translation");
  const Copy<EncoderDecoder> copy("marian");
  copy.rewrite([](NamedTensors& tensors) {
    for (const auto& [name, value] : NamedTensors(tensors))
      if (name == "model.shared.weight") tensors.emplace_back("lm_head.weight", value);
  });
  CHECK(copy.refusal() == "nothing was thrown");
  copy.rewrite([](NamedTensors& tensors) {
    for (auto& [name, value] : tensors)
      if (name == "lm_head.weight") value.data<float>()[5] += 1;
  });
  CHECK(copy.refusal() ==
        "/model.safetensors: lm_head.weight differs from model.shared.weight, to which the configuration "
        "ties it; try share_encoder_decoder_embeddings=false");
  const Copy<EncoderDecoder> other("marian");
  const TranslationBatches batches(golden, "marian");
  other.rewrite([](NamedTensors& tensors) {
    for (auto& [name, value] : tensors)
      if (name == "model.shared.weight") name = "model.decoder.embed_tokens.weight";
    tensors.emplace_back("model.encoder.embed_positions.weight", Tensor::zeros({13, 9}));
  });
  const auto logits = [&](const EncoderDecoder& model) {
    return model(batches.source(0), batches.mask(0), batches.target(0));
  };
  CHECK(same_bits(logits(load_hugging_face<EncoderDecoder>(other.path())),
                  logits(translation_model("marian", DType::f32))));
}

TEST_CASE("the bare model is read, with zeros for biases of logits, and without what is unused") {
  const Copy<EncoderDecoder> copy("bart");
  copy.rewrite([](NamedTensors& tensors) {
    for (auto& [name, value] : NamedTensors(tensors))
      if (name == "model.shared.weight") tensors.emplace_back("model.encoder.embed_tokens.weight", value);
    for (auto& [name, value] : tensors)
      name = name == "final_logits_bias" ? "encoder.version" : name.substr(std::string("model.").size());
  });
  EncoderDecoder model = load_hugging_face<EncoderDecoder>(copy.path());
  Tensor bias;
  for (const auto& [name, parameter] : model.named_parameters())
    if (name == "head.bias") bias = parameter.value();
  CHECK(absolute_error(bias, Tensor::zeros(bias.shape())) == 0);
}

TEST_CASE("a head of T5 that differs from the embeddings is not tied, whatever is written") {
  const Copy<EncoderDecoder> copy("t5_gated");
  copy.replace("config.json", "\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true");
  CHECK(load_hugging_face<EncoderDecoder>(copy.path()).config().to_json() ==
        load_hugging_face<EncoderDecoder>(folder_of("t5_gated")).config().to_json());
}

TEST_CASE("a table of positions out of proportion to the weights is refused before it is made") {
  const Copy<EncoderDecoder> copy("marian");
  copy.replace("config.json", "\"max_position_embeddings\": 13", "\"max_position_embeddings\": 2147483647");
  CHECK(copy.refusal().find("/model.safetensors: the weights do not fit the model: [memory] ") == 0);
}

TEST_CASE("MarianMT is read as what it is, and written as what was read") {
  const EncoderDecoderConfig usual = read_translation(marian_json());
  CHECK(differences(usual, EncoderDecoderConfig(), "") ==
        "source_vocabulary=29 target_vocabulary=29 encoder_layers=12 decoder_layers=12 width=1024 heads=16 "
        "feed_forward=4096 activation=gelu dropout=0.1 attention_dropout=0 feed_forward_dropout=0 "
        "norm_first=false positions=sinusoidal_halves max_length=1024 tie_embeddings=true embedding_scale=1");
  const std::vector<std::pair<Json, std::string>> readings = {
      {{{"decoder_attention_heads", 8}, {"decoder_ffn_dim", 7}}, "decoder_heads=8 decoder_feed_forward=7"},
      {{{"activation_function", "swish"}, {"scale_embedding", true}}, "activation=silu embedding_scale=0"},
      {{{"attention_dropout", 0.1}, {"activation_dropout", 0.25}}, "feed_forward_dropout=0.25"},
      {{{"share_encoder_decoder_embeddings", false}, {"decoder_vocab_size", 31}},
       "target_vocabulary=31 tie_embeddings=false"},
      {{{"share_encoder_decoder_embeddings", false}, {"tie_word_embeddings", false}},
       "tie_target_head=false tie_embeddings=false"},
      {{{"normalize_before", false}, {"num_hidden_layers", 12}, {"static_position_embeddings", true}}, ""},
      {{{"extra_pos_embeddings", 30},
        {"force_bos_token_to_be_generated", false},
        {"do_blenderbot_90_layernorm", false}},
       ""},
  };
  for (const auto& [more, expected] : readings) {
    INFO(more.dump());
    const EncoderDecoderConfig config = read_translation(marian_json(more));
    CHECK(differences(config, usual) == expected);
    CHECK(read_translation(parse_json(hugging_face_json(config))).to_json() == config.to_json());
  }
}

TEST_CASE("options of MarianMT's files that are not implemented are refused by name") {
  const auto refused = [](const Json& more) {
    return message_of<CheckpointError>([&] { read_translation(marian_json(more)); });
  };
  const std::vector<std::pair<Json, std::string>> refusals = {
      {{{"encoder_layerdrop", 0.1}}, std::string("encoder_layerdrop = 0.1") + kNotImplemented},
      {{{"normalize_before", true}}, std::string("normalize_before = true") + kNotImplemented},
      {{{"num_hidden_layers", 6}}, std::string("num_hidden_layers = 6") + kNotImplemented},
      {{{"is_encoder_decoder", false}}, std::string("is_encoder_decoder = false") + kNotImplemented},
      {{{"tie_word_embeddings", false}},
       "tie_word_embeddings = false unties shared embeddings too, which is not implemented"},
      {{{"decoder_vocab_size", 31}},
       "[encoder_decoder] tied embeddings need one vocabulary; got source=29, target=31; try a shared "
       "vocabulary"},
      {{{"layer_norm_eps", 1e-6}}, std::string("layer_norm_eps") + kUnknown},
      {{{"model_type", "gpt2"}},
       "model_type must be one of marian, bart, mbart, m2m_100, t5, mt5; got gpt2, a language model"},
  };
  for (const auto& [more, expected] : refusals) CHECK(refused(more) == expected);
  CHECK(refusal(marian_json()).find("modernbert; got marian, a translation model") != std::string::npos);
}

TEST_CASE("other families have their own defaults, and refuse their own fields by name") {
  const auto read = [](const char* type, const Json& more) {
    return read_translation(with(marian_json(more), "model_type", type));
  };
  const EncoderDecoderConfig m2m100 = read("m2m_100", {{"encoder_layerdrop", 0.05}}),
                             t5 = read("t5", Json::object()), mt5 = read("mt5", Json::object());
  CHECK(m2m100.embedding_scale == 0);
  CHECK(m2m100.layer.activation == Unary::relu);
  CHECK_FALSE(m2m100.layer.attention_dropout.has_value());  // as much as dropout
  CHECK(t5.head_scale == 1 / std::sqrt(512.0));
  CHECK_FALSE(t5.layer.gated);
  for (const char* field : {"tie_word_embeddings", "scale_decoder_outputs"})
    CHECK(read("t5", {{field, false}}).head_scale == 1);
  CHECK(mt5.head_scale == 1);
  CHECK(mt5.encoder_layers == 8);
  CHECK(mt5.layer.attention.heads == 6);
  CHECK(mt5.layer.feed_forward == 1024);
  CHECK(mt5.layer.activation == Unary::gelu_tanh);
  CHECK(mt5.layer.gated);
  CHECK_THROWS_WITH_AS(hugging_face_json(m2m100, DType::f32, {2, {2}, 5}),
                       "pad_token_id must be 1 in M2M100 models; got 5", CheckpointError);
  const std::vector<std::tuple<const char*, Json, std::string>> refusals = {
      {"bart", {{"normalize_before", true}}, "normalize_before = true"},
      {"bart", {{"tie_word_embeddings", false}}, "tie_word_embeddings = false"},
      {"bart", {{"do_blenderbot_90_layernorm", true}}, "do_blenderbot_90_layernorm = true"},
      {"mbart", {{"encoder_layerdrop", 0.1}}, "encoder_layerdrop = 0.1"},
      {"mbart", {{"normalize_embedding", false}}, "normalize_embedding = false"},
      {"m2m_100", {{"pad_token_id", 5}}, "pad_token_id = 5"},
      {"t5", {{"feed_forward_proj", "gated-tanh"}}, "feed_forward_proj = gated-tanh"},
      {"t5", {{"head_dim", 32}}, "head_dim = 32"},
      {"mt5", {{"dense_act_fn", "gelu"}}, "dense_act_fn = \"gelu\""},
      {"mt5", {{"is_gated_act", false}}, "is_gated_act = false"},
  };
  for (const auto& [type, more, expected] : refusals) {
    const auto refused = [&, type = type, &more = more] { read(type, more); };
    CHECK(message_of<CheckpointError>(refused) == expected + kNotImplemented);
  }
}

TEST_CASE("each field that MarianMT cannot express is refused, and the nearest model is written") {
  const ModelFormatOf<EncoderDecoderConfig>& format = transformers_format<EncoderDecoderConfig>();
  CHECK(translation_refusal(own_translation()) ==
        "[export] transformers has no such model; MarianMT differs least; got norm_first=true, "
        "positions=sinusoidal; try norm_first=false, positions=sinusoidal_halves");
  // Fields that the family has, those of training, and those that other fields switch on.
  const std::string free =
      " source_vocabulary target_vocabulary encoder_layers decoder_layers width heads feed_forward "
      "decoder_heads decoder_feed_forward activation dropout max_length packed zero_init bias_buckets "
      "bias_distance qk_norm_epsilon tie_embeddings tie_target_head ";
  EncoderDecoderConfig separate = expression_in(format, own_translation()).nearest, shared = separate;
  shared.tie_embeddings = true, shared.target_vocabulary = shared.source_vocabulary;
  for (const EncoderDecoderConfig& start : {separate, shared}) {
    CHECK(translation_refusal(start) == "nothing was thrown");
    for (std::size_t i = 0; i < fields_of(start).size(); ++i) {
      EncoderDecoderConfig config = start;
      FieldList list = fields_of(config);
      ConfigField& field = list[i];
      if (!is_tried(i) || !change(field)) continue;
      try {
        config.check();
      } catch (const Error&) {  // not a model
        continue;
      }
      INFO(field.name, "=", field.text());
      const bool is_expressed = free.find(" " + field.name + " ") != std::string::npos &&
                                (field.name != "tie_target_head" || !start.tie_embeddings);
      const std::string refused = is_expressed ? "nothing was thrown" : field.name + "=" + field.text();
      CHECK(translation_refusal(config).find(refused) != std::string::npos);
      const EncoderDecoderConfig nearest = expression_in(format, config).nearest;
      CHECK_NOTHROW(nearest.check());
      const EncoderDecoderConfig read = read_translation(parse_json(hugging_face_json(nearest)));
      CHECK(expression_in(format, read).changes.empty());
    }
  }
}
