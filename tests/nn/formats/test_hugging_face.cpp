#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/nn/formats/expression.h>
#include <tapeformer/nn/formats/hugging_face.h>
#include <tapeformer/nn/generation/language_steps.h>
#include <tapeformer/tests/nn/formats/hugging_face_folder.h>
#include <tapeformer/tests/nn/generation/language_case.h>
#include <tapeformer/tests/reference/sanitized.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>

using namespace tapeformer;

namespace {

DecoderOnly loaded(const std::string& name, DType type) {
  DecoderOnly model = load_hugging_face(folder_of(name));
  model.to(type);
  return model;
}

/// A copy of a golden folder is the same model.
void check_copy(const std::string& name, const Copy<>& copy) {
  const Tensor ids = Golden("hugging_face").tensor(name, "ids");
  CHECK(same_bits(load_hugging_face(copy.path())(ids), load_hugging_face(folder_of(name))(ids)));
}

}  // namespace

TEST_CASE("logits are those of transformers") {
  const Golden golden("hugging_face");
  for (const std::string& name : golden.cases()) {
    INFO(name);
    const Tensor ids = golden.tensor(name, "ids");
    CHECK_BELOW(absolute_error(loaded(name, DType::f64)(ids), golden.tensor(name, "logits")), 1e-12);
    CHECK_BELOW(times_error_of_pytorch(golden, name, "logits", loaded(name, DType::f32)(ids)),
                kMostTimesPyTorch);
  }
}

TEST_CASE("with a cache, fifty tokens are those of transformers") {
  const Golden golden("hugging_face");
  for (const std::string& name : golden.cases()) {
    if (golden.names(name, "continued").empty()) continue;  // GPT-2's positions end before; encoders
    INFO(name);
    const DecoderOnly model = loaded(name, DType::f64);
    const Tensor ids = golden.tensor(name, "ids"), continued = golden.tensor(name, "continued");
    const Index count = third_if_slow(continued.size(1));
    for (Index b = 0; b < third_if_slow(ids.size(0)); ++b) {
      const std::int32_t* const begin = ids.data<std::int32_t>() + b * ids.size(1);
      LanguageSteps steps(model);
      Tensor logits = steps.prompt(TokenIds(begin, begin + ids.size(1)));
      TokenIds found;
      for (Index i = 0; i < count; ++i) {
        found.push_back(likeliest(logits));
        logits = steps.step({found.back()});
      }
      const std::int32_t* const expected = continued.data<std::int32_t>() + b * continued.size(1);
      CHECK(found == TokenIds(expected, expected + count));
    }
  }
}

TEST_CASE("ten losses of fine-tuning are those of transformers") {
  const Golden golden("hugging_face");
  for (const std::string& name : golden.cases()) {
    const Tensor batches = golden.tensor(name, "batches");
    for (const DType type : {DType::f64, DType::f32}) {
      DecoderOnly model = loaded(name, type);
      check_fine_tuning(golden, name, model, [&](Index step) {
        if (!model.config().bidirectional) return next_token_loss(model, batches, step);
        const Tensor targets = golden.tensor(name, "targets");
        return model.loss(batch_of(batches, step, 0, batches.size(2)),
                          batch_of(targets, step, 0, targets.size(2)));
      });
    }
  }
}

TEST_CASE("an export has the original's tensors bit for bit, and its model") {
  for (const std::string& name : Golden("hugging_face").cases()) {
    INFO(name);
    const Export exported(name);
    DecoderOnly model = load_hugging_face(folder_of(name));
    save_hugging_face(exported.folder, model);
    check_same_tensors(exported.folder, folder_of(name));
    CHECK(load_hugging_face(exported.folder).config().to_json() == model.config().to_json());
    CHECK(SafetensorsFile::open(exported.folder + "/model.safetensors").metadata().at("format") == "pt");
  }
}

TEST_CASE("a model of our own in each family comes back from an export with the same logits") {
  DecoderOnlyConfig start;  // with interleaved rotary positions, which an export has not
  start.vocabulary = 13, start.context = 8, start.layers = 2, start.width = 12;
  start.attention.kind = "gqa";
  start.attention.heads = 6, start.attention.groups = 2, start.attention.key_width = 4;
  start.attention.rotations.factor = 2, start.attention.rotations.width = 2;
  start.attention.qk_norm_epsilon = start.epsilon;
  start.attention.softcap = 3, start.logit_softcap = 2, start.attention.score_scale = 1 / std::sqrt(7.0);
  start.window = 3, start.windows = "SL", start.window_rotary_base = 10;
  start.positions = PositionKind::rotary, start.position_pattern = "RN";
  start.residual_scale = 0.5, start.head_scale = 0.25;
  start.attention.rotations.reversed = true;
  start.feed_forward_bias = start.norm_bias = false;  // a GPT-2's export has zeros for them
  Generator random(test_seed(5));
  const Tensor ids = Tensor::from<std::int32_t>({1, 12, 3, 0, 5, 6, 7, 2, 9, 10, 11, 4}, {2, 6});
  for (std::size_t i = 0; i < families().size(); ++i) {
    if (!is_tried(i)) continue;
    const Family& family = families()[i];
    INFO(std::string(family.type));
    const DecoderOnlyConfig config = ConfigMap::fit(family.describe, start);
    REQUIRE(expression_in(transformers_format(), config).family == &family);
    DecoderOnly model(config, random);
    for (Parameter& parameter : model.parameters()) random.fill_normal(parameter.value(), 0, 0.3);
    model.eval();
    const Export exported(std::string("own_") + family.type);
    save_hugging_face(exported.folder, model, {3, {12}});
    CHECK(is_hugging_face(exported.folder));
    const std::string json = read_bytes(exported.folder + "/config.json");
    CHECK(json.find("\"bos_token_id\": 3,") != std::string::npos);
    CHECK(json.find("\"eos_token_id\": 12,") != std::string::npos);
    const Tensor logits = model(ids);
    CHECK_BELOW(rms_error(load_hugging_face(exported.folder)(ids), logits), 1e-6);
    save_safetensors(exported.folder + "/logits.safetensors", {{"ids", ids}, {"logits", logits}});
    model.to(DType::f64);
    std::filesystem::create_directory(exported.file("double"));
    save_hugging_face(exported.file("double"), model);
    const SafetensorsFolder wide = SafetensorsFolder::open(exported.file("double"));
    for (const std::string& tensor : wide.names()) CHECK(wide.file(tensor).dtype(tensor) == "F64");
    CHECK_BELOW(rms_error(load_hugging_face(exported.file("double"))(ids), logits), 1e-6);
  }
}

TEST_CASE(
    "a model that was saved without its head has no prefix, and buffers of old versions are passed over") {
  const Copy<> copy("gpt2");
  copy.rewrite([](NamedTensors& tensors) {
    for (auto& [name, value] : tensors) name = name.substr(std::string("transformer.").size());
    tensors.emplace_back("h.0.attn.bias", Tensor::zeros({1, 1, 11, 11}));
    tensors.emplace_back("h.1.attn.masked_bias", Tensor::scalar(-1e4));
  });
  check_copy("gpt2", copy);
}

TEST_CASE("tensors that transformers names or divides in another way are found") {
  const Copy<> part("qwen3_5");  // of a model that sees images
  part.rewrite([](NamedTensors& tensors) {
    for (auto& [name, value] : tensors) name.insert(std::string("model.").size(), "language_model.");
    tensors.emplace_back("model.visual.blocks.0.norm1.weight", Tensor::zeros({3}));
    tensors.emplace_back("mtp.norm.weight", Tensor::zeros({3}));
  });
  check_copy("qwen3_5", part);
  const Copy<> published("kimi_linear");  // other names of networks without experts
  published.rewrite([](NamedTensors& tensors) {
    const std::string sparse = "layers.0.block_sparse_moe";
    for (auto& [name, value] : tensors)
      if (const std::size_t at = name.find(sparse); at != std::string::npos)
        name.replace(at, sparse.size(), "layers.0.mlp");
  });
  check_copy("kimi_linear", published);
  const Copy<> thirds("olmo_hybrid");
  thirds.rewrite([](NamedTensors& tensors) {
    const auto find = [&](const std::string& name) -> Tensor& {
      return std::find_if(tensors.begin(), tensors.end(), [&](const auto& it) { return it.first == name; })
          ->second;
    };
    for (const char* const layer : {"0", "2"}) {
      const std::string start = std::string("model.layers.") + layer + ".linear_attn.";
      TensorList parts;
      for (const char* const one : {"q", "k", "v"}) parts.push_back(find(start + one + "_conv1d.weight"));
      const Tensor whole = concat(parts, 0);
      for (Index i = 0; i < 3; ++i) find(start + "qkv"[i] + "_conv1d.weight") = slice(whole, 0, 24 * i, 24);
    }
    for (auto& [name, value] : tensors)
      if (name == "model.layers.1.post_attention_layernorm.weight")
        name = "model.layers.1.feedforward_layer_norm.weight";
  });
  check_copy("olmo_hybrid", thirds);
}

TEST_CASE(
    "old names of norms, a second name of the head's bias and heads for other tasks are those of BERT") {
  const Copy<> copy("bert");
  copy.rewrite([](NamedTensors& tensors) {
    for (auto& [name, value] : tensors) {
      for (const auto& [now, before] :
           {std::pair("LayerNorm.weight", "LayerNorm.gamma"), std::pair("LayerNorm.bias", "LayerNorm.beta"),
            std::pair("cls.predictions.bias", "cls.predictions.decoder.bias")})
        if (const std::size_t at = name.find(now); at != std::string::npos)
          name.replace(at, name.size(), before);
    }
    for (const char* const other : {"bert.pooler.dense.weight", "bert.pooler.dense.bias",
                                    "bert.embeddings.position_ids", "cls.seq_relationship.weight"})
      tensors.emplace_back(other, Tensor::zeros({2}));
  });
  check_copy("bert", copy);
}

TEST_CASE("weights of 4 bits are refused by name, with a remedy") {
  const Copy<> copy("gpt_oss");
  copy.rewrite([](NamedTensors& tensors) {
    for (auto& [name, value] : tensors)
      if (name == "model.layers.1.mlp.experts.down_proj") name += "_blocks";
  });
  CHECK(copy.refusal() ==
        std::string("/model.safetensors: model.layers.1.mlp.experts.down_proj_blocks is in mxfp4: ") +
            kMxfp4Refusal);
}

TEST_CASE("a tied head may be there if it is the embedding") {
  const Copy<> copy("gpt2");
  copy.rewrite([](NamedTensors& tensors) {
    for (const auto& [name, value] : NamedTensors(tensors)) {
      if (name == "transformer.wte.weight") tensors.emplace_back("lm_head.weight", value);
    }
  });
  CHECK(copy.refusal() == "nothing was thrown");
  copy.rewrite([](NamedTensors& tensors) {
    for (auto& [name, value] : tensors) {
      if (name == "lm_head.weight") value.data<float>()[5] += 1;
    }
  });
  CHECK(copy.refusal() ==
        "/model.safetensors: lm_head.weight differs from transformer.wte.weight, to which the configuration "
        "ties it; try tie_word_embeddings=false");
  copy.replace("config.json", "\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false");
  CHECK(copy.refusal() == "nothing was thrown");
}

TEST_CASE("tensors that are missing, superfluous, of another shape or type are named") {
  const Copy<> copy("gpt2");
  copy.rewrite([](NamedTensors& tensors) {
    for (auto& [name, value] : tensors) {
      if (name == "transformer.h.1.ln_2.bias") name = "transformer.h.1.ln_3.bias";
      if (name == "transformer.wpe.weight") value = Tensor::zeros({12, 12});
      if (name == "transformer.ln_f.bias") value = Tensor::zeros({12}, DType::i32);
    }
  });
  CHECK(copy.refusal() ==
        "/model.safetensors: the weights do not fit the model:\n"
        "  transformer.wpe.weight is [12,12] in the file and [11,12] in the model\n"
        "  transformer.h.1.ln_2.bias is missing\n"
        "  transformer.ln_f.bias is of type I32, not of a floating one\n"
        "  transformer.h.1.ln_3.bias is not in the model");
  const Copy<> shards("llama");
  shards.replace("config.json", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3");
  CHECK(shards.refusal().find("/model.safetensors.index.json: the weights do not fit the model:\n"
                              "  model.layers.2.input_layernorm.weight is missing\n") == 0);
  shards.replace("config.json", "\"num_hidden_layers\": 3", "\"num_hidden_layers\": 2147483647");
  const std::string remedy = "; try the config.json that was saved with these weights";
  CHECK(shards.refusal() ==
        "/model.safetensors.index.json: the weights do not fit the model: 21 tensors are too few for "
        "2147483647 layers" +
            remedy);
  const Copy<> sizes("llama");
  sizes.replace("config.json", "\"intermediate_size\": 22", "\"intermediate_size\": 2147483647");
  CHECK(sizes.refusal() ==
        "/model.safetensors.index.json: the weights do not fit the model: [memory] f32[4294967294,18] is too "
        "large here, where the largest in the file is lm_head.weight [29,18]" +
            remedy);
  sizes.replace("config.json", "\"intermediate_size\": 2147483647", "\"intermediate_size\": 23");
  CHECK(sizes.refusal().find("gate_proj.weight is [22,18] in the file and [23,18] in the model") !=
        std::string::npos);
  sizes.replace("config.json", "\"hidden_size\": 18", "\"hidden_size\": 36");
  CHECK(sizes.refusal().find("\n  and 11 more") != std::string::npos);
  const Copy<> taps("olmo_hybrid");
  taps.rewrite([](NamedTensors& tensors) {
    for (auto& [name, value] : tensors) {
      if (name == "model.layers.0.linear_attn.q_conv1d.weight") value = Tensor::zeros({20, 1, 2});
      if (name == "model.layers.2.linear_attn.q_conv1d.weight") value = Tensor::zeros(Shape());
    }
  });
  CHECK(taps.refusal() ==
        "/model.safetensors: the weights do not fit the model:\n"
        "  model.layers.0.linear_attn.q_conv1d.weight is [20,1,2] in the file and [20,1,3] in the model\n"
        "  model.layers.2.linear_attn.q_conv1d.weight is [] in the file and [20,1,3] in the model");
}

TEST_CASE("biases without their field in the configuration are not silently dropped") {
  const Copy<> copy("llama_bfloat");
  copy.replace("config.json", "\"attention_bias\": true", "\"attention_bias\": false");
  CHECK(copy.refusal().find("model.layers.0.self_attn.k_proj.bias is not in the model") != std::string::npos);
}

TEST_CASE("damaged files in a folder are refused by name") {
  const Copy<> copy("gpt2");
  copy.replace("config.json", "\"scale_attn_weights\": true", "\"scale_attn_weights\": false");
  CHECK(copy.refusal() ==
        "/config.json: scale_attn_weights = false changes the arithmetic and is not implemented");
  write_bytes(copy.file("config.json"), "{}");
  CHECK(copy.refusal() == "/config.json: model_type is missing");
  write_bytes(copy.file("config.json"), DecoderOnlyConfig().to_json());
  CHECK(copy.refusal() == "/config.json: belongs to a run, not to transformers; try DecoderOnly::load()");
  std::filesystem::remove(copy.file("config.json"));
  CHECK(copy.refusal() == "/config.json: cannot be opened: No such file or directory");
  const Copy<> other("gpt2");
  std::filesystem::resize_file(other.file("model.safetensors"), 5000);
  CHECK(other.refusal().find("/model.safetensors: is damaged: ") == 0);
}

TEST_CASE("folders of transformers are told apart from ours") {
  const TemporaryFolder folder;
  const std::string path = folder.path();
  const auto refusal = [&] { return message_of<CheckpointError>([&] { is_hugging_face(path); }); };
  CHECK(is_hugging_face(folder_of("llama")));
  CHECK(refusal() == path + "/config.json: cannot be opened: No such file or directory");
  DecoderOnlyConfig config;
  config.vocabulary = 3;
  write_bytes(folder.file("config.json"), config.to_json());
  CHECK_FALSE(is_hugging_face(path));
  write_bytes(folder.file("config.json"), "{}");
  CHECK(refusal() == path + "/config.json: has neither model_type (transformers) nor model (this program)");
}

TEST_CASE("models that transformers cannot express, and files that cannot be written, are refused") {
  const TemporaryFolder folder;
  DecoderOnlyConfig config;
  config.vocabulary = 3, config.layers = 1, config.width = 8, config.head_bias = true;
  auto biased = fresh_module<DecoderOnly>(config);
  const std::string path = folder.file("none");
  CHECK(message_of<CheckpointError>([&] { save_hugging_face(path, biased); }) ==
        path +
            ": [export] transformers has no such model; GPT-2 differs least; got head_bias=true; try "
            "head_bias=false");
  config.head_bias = false;
  auto model = fresh_module<DecoderOnly>(config);
  CHECK(message_of<CheckpointError>([&] {
          save_hugging_face(path, model);
        }).find(path + "/model.safetensors") == 0);
}
