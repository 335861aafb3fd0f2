#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/matmul.h>
#include <tapeformer/nn/formats/peft.h>
#include <tapeformer/nn/linear.h>
#include <tapeformer/tests/nn/formats/hugging_face_folder.h>

#include <nlohmann/json.hpp>

using namespace tapeformer;

namespace {

std::string adapters_of(const std::string& name) {
  return TAPEFORMER_SOURCE_DIR "/tests/golden/peft/" + name;
}

/// A model of transformers with adapters of ours; if it `interleaves`, for interleaved rotary positions.
DecoderOnly adapted(const std::string& name, const AdapterConfig& adapter, bool interleaves = false) {
  DecoderOnly base = load_hugging_face(folder_of(name));
  DecoderOnlyConfig config = base.config();
  config.adapter = adapter;
  if (interleaves) config.attention.rotations.layout = RotaryLayout::interleaved;
  Generator random(test_seed(1));
  DecoderOnly model(config, random);
  copy_weights(base, model);
  model.eval();
  return model;
}

void randomise_adapters(DecoderOnly& model) {
  Generator random(test_seed(2));
  for (auto& [name, parameter] : model.named_parameters())
    if (is_of_adapter(name)) random.fill_normal(parameter.value(), 0, 0.5);
}

/// The message that refuses GPT-2's adapters with this field in their configuration.
std::string refused_setting(const char* setting, const nlohmann::json& value) {
  const TemporaryFolder folder;
  for (const char* name : {"adapter_config.json", "adapter_model.safetensors"})
    write_bytes(folder.file(name), read_bytes(adapters_of("gpt2") + "/" + name));
  auto config = nlohmann::json::parse(read_bytes(folder.file("adapter_config.json")));
  config[setting] = value;
  write_bytes(folder.file("adapter_config.json"), config.dump());
  const std::string path = folder.file(""), said = message_of<CheckpointError>([&] {
                                              DecoderOnly model = load_hugging_face(folder_of("gpt2"));
                                              apply_peft(path, model);
                                            });
  const std::size_t at = said.find(".json: ");
  return at == said.npos ? said : said.substr(at + 7);
}

}  // namespace

TEST_CASE("logits with adapters are those of PEFT") {
  const Golden golden("peft");
  for (const std::string name : {"gpt2", "llama"}) {
    INFO(name);
    DecoderOnly model = load_hugging_face(folder_of(name));
    model.to(DType::f64);
    apply_peft(adapters_of(name), model);
    CHECK_BELOW(absolute_error(model(golden.tensor(name, "ids")), golden.tensor(name, "logits")), 1e-12);
  }
}

TEST_CASE("ten losses of training adapters are those of PEFT") {
  const Golden golden("peft");
  const Tensor batches = golden.tensor("gpt2", "batches");
  const SafetensorsFile file = SafetensorsFile::open(adapters_of("gpt2") + "/adapter_model.safetensors");
  for (const DType type : {DType::f64, DType::f32}) {
    DecoderOnly model = adapted("gpt2", {3, 5, {"*"}});
    for (auto& [name, parameter] : model.named_parameters()) {
      if (!is_of_adapter(name)) continue;
      std::string theirs = "base_model.model.transformer.h." + name.substr(7);
      for (const auto& [ours, other] :
           {std::pair("attention.query_key_value", "attn.c_attn"),
            std::pair("attention.output", "attn.c_proj"), std::pair("feed_forward.up", "mlp.c_fc"),
            std::pair("feed_forward.down", "mlp.c_proj"), std::pair(kAdapterA, "lora_A.weight"),
            std::pair(kAdapterB, "lora_B.weight")})
        if (const std::size_t at = theirs.find(ours); at != theirs.npos)
          theirs.replace(at, std::string(ours).size(), other);
      parameter.value().copy_from(file.tensor(theirs));
    }
    model.to(type);
    check_fine_tuning(golden, "gpt2", model,
                      [&](Index step) { return next_token_loss(model, batches, step); });
  }
}

TEST_CASE("adapters that are written and read again change a model as they did") {
  for (const std::string name : {"gpt2", "llama", "qwen3", "gemma3", "bloom", "diffllama"}) {
    for (const bool interleaves : {false, true}) {
      INFO(name, interleaves);
      DecoderOnly model = adapted(name, {2, 3, {"*.attention.*", "*.up"}}, interleaves);
      randomise_adapters(model);
      const Export written("peft_" + name);
      save_peft(written.folder, model, folder_of(name));
      CHECK(peft_base(written.folder) == folder_of(name));
      DecoderOnly base = adapted(name, {}, interleaves);
      apply_peft(written.folder, base);
      const auto merged = without_adapters(std::move(model)).named_parameters();
      const auto read = base.named_parameters();
      REQUIRE(read.size() == merged.size());
      for (std::size_t i = 0; i < read.size(); ++i)  // roundings of a product of two terms, and of the sum
        CHECK_BELOW(absolute_error(read[i].second.value(), merged[i].second.value()), 1e-5);
    }
  }
}

TEST_CASE("the adapter of a matrix that is several of ours changes each of them, and cannot be written") {
  const std::string layers = "model.layers.", base = "base_model.model.";
  const std::vector<std::string> modules = {layers + "0.linear_attn.in_proj_qkvz",
                                            layers + "2.linear_attn.in_proj_ba",
                                            layers + "1.self_attn.q_proj", layers + "1.self_attn.k_proj"};
  const SafetensorsFolder weights = SafetensorsFolder::open(folder_of("qwen3_next"));
  Generator random(test_seed(3));
  NamedTensors adapters, expected;
  for (const std::string& module : modules) {
    const Tensor weight = weights.tensor(module + ".weight"),
                 a = random_normal({2, weight.size(1)}, random, DType::f32),
                 b = random_normal({weight.size(0), 2}, random, DType::f32);
    adapters.emplace_back(base + module + ".lora_A.weight", a);
    adapters.emplace_back(base + module + ".lora_B.weight", b);
    expected.emplace_back(module + ".weight", weight + matmul(b, a) * 1.5);
  }
  const TemporaryFolder folder;
  write_bytes(folder.file("adapter_config.json"), R"({"peft_type": "LORA", "r": 2, "lora_alpha": 3})");
  save_safetensors(folder.file("adapter_model.safetensors"), adapters);
  DecoderOnly model = load_hugging_face(folder_of("qwen3_next"));
  apply_peft(folder.file(""), model);
  const Export merged("peft_qwen3_next");
  save_hugging_face(merged.folder, model);
  const SafetensorsFolder written = SafetensorsFolder::open(merged.folder);
  for (const auto& [name, value] : expected) CHECK_BELOW(absolute_error(written.tensor(name), value), 1e-5);

  DecoderOnly adapted_gate = adapted("qwen3_5", {2, 3, {"*.gate"}});
  CHECK(
      message_of<CheckpointError>([&] { save_peft(folder.file(""), adapted_gate, folder_of("qwen3_5")); }) ==
      "model.layers.1.self_attn.q_proj has the rows of several matrices of ours, whose adapters differ; got "
      "layers.1.attention.gate.weight; try an export with the adapters in the weights");
}

TEST_CASE("settings of adapters that change the arithmetic are refused by name and value") {
  CHECK(refused_setting("use_dora", true) == "use_dora = true changes the arithmetic and is not implemented");
  CHECK(refused_setting("peft_type", "IA3").find("peft_type = \"IA3\" changes") == 0);
  CHECK(refused_setting("init_lora_weights", "pissa").find("init_lora_weights = \"pissa\" changes") == 0);
  CHECK(refused_setting("rank_pattern", {{"c_attn", 4}}).find("rank_pattern = ") == 0);
  CHECK(refused_setting("modules_to_save", nlohmann::json::array({"lm_head"})).find("modules_to_save = ") ==
        0);
  CHECK(refused_setting("lora_beta", 3).find("lora_beta") == 0);
  CHECK(refused_setting("r", 4).find(", its rank 4") != std::string::npos);
  CHECK(refused_setting("init_lora_weights", "gaussian") == "nothing was thrown");
}

TEST_CASE("adapters of another model, or of one that is not here, are refused by name") {
  DecoderOnly llama = load_hugging_face(folder_of("llama"));
  CHECK(message_of<CheckpointError>([&] { apply_peft(adapters_of("gpt2"), llama); })
            .find("has base_model.model.transformer.h.0.attn.c_attn.lora_A.weight, which the model has no "
                  "place for") != std::string::npos);
  DecoderOnly equal = load_hugging_face(folder_of("llama_equal_heads"));
  CHECK_THROWS_WITH_AS(apply_peft(adapters_of("llama"), equal),
                       doctest::Contains("the adapter of model.layers.0.self_attn."), CheckpointError);
  CHECK(peft_base(folder_of("gpt2")).empty());
  const TemporaryFolder folder;
  write_bytes(folder.file("adapter_config.json"), R"({"base_model_name_or_path": "meta/llama"})");
  CHECK(message_of<CheckpointError>([&] {
          peft_base(folder.file(""));
        }).find("base_model_name_or_path = meta/llama is not a folder of a model here") != std::string::npos);
  write_bytes(folder.file("adapter_config.json"), R"({"peft_type": "LORA", "r": 2, "lora_alpha": 3})");
  save_safetensors(folder.file("adapter_model.safetensors"),
                   {{"base_model.model.lm_head.lora_A.weight", values({1})}});
  DecoderOnly tied = load_hugging_face(folder_of("gpt2"));
  CHECK_THROWS_WITH_AS(apply_peft(folder.file(""), tied),
                       doctest::Contains("has an adapter of lm_head.weight, which shares"), CheckpointError);
}
