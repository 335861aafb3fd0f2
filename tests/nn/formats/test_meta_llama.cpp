#include <tapeformer/autograd/error.h>
#include <tapeformer/nn/formats/hugging_face.h>
#include <tapeformer/nn/formats/meta_llama.h>
#include <tapeformer/nn/generation/generate_text.h>
#include <tapeformer/tests/nn/formats/temporary_folder.h>
#include <tapeformer/tests/reference/golden.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

using namespace tapeformer;

namespace {

constexpr const char* kLlama = TAPEFORMER_SOURCE_DIR "/tests/golden/hugging_face/llama";
constexpr const char* kParams =
    R"({"dim": 18, "n_layers": 2, "n_heads": 6, "n_kv_heads": 2, "vocab_size": 29, "multiple_of": 2,
        "head_dim": 4, "norm_eps": 1e-5, "rope_theta": 500.0, "max_seq_len": 32})";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

/// transformers' name of a tensor by Meta.
std::string meta_name(std::string name) {
  for (const auto& [from, to] :
       std::vector<std::pair<const char*, const char*>>{{"model.embed_tokens", "tok_embeddings"},
                                                        {"model.", ""},
                                                        {"lm_head", "output"},
                                                        {"self_attn.q_proj", "attention.wq"},
                                                        {"self_attn.k_proj", "attention.wk"},
                                                        {"self_attn.v_proj", "attention.wv"},
                                                        {"self_attn.o_proj", "attention.wo"},
                                                        {"input_layernorm", "attention_norm"},
                                                        {"post_attention_layernorm", "ffn_norm"},
                                                        {"mlp.gate_proj", "feed_forward.w1"},
                                                        {"mlp.down_proj", "feed_forward.w2"},
                                                        {"mlp.up_proj", "feed_forward.w3"}}) {
    name = replaced(name, from, to);
  }
  return name;
}

/// Rows (i, i + D/2) of every head of four components as (2i, 2i + 1).
Tensor interleaved(const Tensor& x) {
  const Tensor y = Tensor::empty_like(x);
  const Index columns = x.size(1), kOld[] = {0, 2, 1, 3};
  for (Index row = 0; row < x.size(0); ++row) {
    const float* const from = x.data<float>() + (row / 4 * 4 + kOld[row % 4]) * columns;
    std::copy_n(from, columns, y.data<float>() + row * columns);
  }
  return y;
}

/// The golden llama as Meta would have written it.
std::vector<std::pair<std::string, Tensor>> meta_tensors() {
  const SafetensorsFolder files = SafetensorsFolder::open(kLlama);
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (const std::string& name : files.names()) {
    const bool turns = name.find("q_proj") != std::string::npos || name.find("k_proj") != std::string::npos;
    const Tensor x = files.tensor(name);
    tensors.emplace_back(meta_name(name), turns ? interleaved(x) : x);
  }
  return tensors;
}

struct MetaFolder : TemporaryFolder {
  explicit MetaFolder(const std::string& params = kParams) {
    save_safetensors(file("consolidated.safetensors"), meta_tensors());
    write_bytes(file("params.json"), params);
  }
  std::string folder() const { return std::filesystem::path(file("x")).parent_path(); }
  SafetensorsFolder files() const { return SafetensorsFolder::open(folder()); }
};

std::string refusal_of_params(const std::string& from, const std::string& to) {
  static const MetaFolder folder;
  return message_of<CheckpointError>([&] { meta_llama_config(folder.files(), replaced(kParams, from, to)); });
}

std::string refusal_of_tensors(
    const std::function<void(std::vector<std::pair<std::string, Tensor>>&)>& change, Index heads = 6) {
  const TemporaryFolder folder;
  auto tensors = meta_tensors();
  change(tensors);
  save_safetensors(folder.file("m"), tensors);
  const std::string said = message_of<CheckpointError>([&] { load_meta_llama(folder.file("m"), heads, 32); });
  return replaced(said, folder.file("m") + ": ", "");
}

}  // namespace

TEST_SUITE("nn/formats/meta_llama") {
  TEST_CASE("Meta's names beside a config.json give the logits that transformers' names give") {
    const Golden golden("hugging_face");
    const MetaFolder folder;
    std::filesystem::copy(std::string(kLlama) + "/config.json", folder.file("config.json"));
    std::filesystem::rename(folder.file("consolidated.safetensors"), folder.file("model.safetensors"));
    DecoderOnly model = load_hugging_face(folder.folder());
    CHECK(model.config().attention.rotations.layout == RotaryLayout::interleaved);
    const Tensor ids = golden.tensor("llama", "ids");
    CHECK_BELOW(times_error_of_pytorch(golden, "llama", "logits", model(ids)), 3);

    const TemporaryFolder exported;
    const std::string path = std::filesystem::path(exported.file("x")).parent_path();
    save_hugging_face(path, model);
    const SafetensorsFolder after = SafetensorsFolder::open(path), before = SafetensorsFolder::open(kLlama);
    REQUIRE(after.names() == before.names());
    for (const std::string& name : before.names()) {
      CHECK(after.tensor(name).to_vector<float>() == before.tensor(name).to_vector<float>());
    }
  }

  TEST_CASE("params.json, or a single file and what no tensor tells, describe the same model") {
    const MetaFolder folder;
    const DecoderOnly model = load_hugging_face(folder.folder()),
                      single = load_meta_llama(folder.file("consolidated.safetensors"), 6, 32, 1e-5, 500);
    CHECK(model.config().to_json() == single.config().to_json());
    DecoderOnlyConfig expected = load_hugging_face(kLlama).config();
    expected.attention.rotations = {};
    expected.attention.rotations.base = 500;
    CHECK(model.config().to_json() == expected.to_json());
    const Tensor ids = Tensor::from<std::int32_t>({1, 28, 3, 0}, {1, 4});
    CHECK(absolute_error(model(ids), single(ids)) == 0);
  }

  TEST_CASE("a field that params.json leaves out has its default") {
    const MetaFolder folder;
    const DecoderOnlyConfig config = meta_llama_config(
        folder.files(), R"({"dim": 18, "n_layers": 2, "n_heads": 6, "n_kv_heads": 2, "vocab_size": -1})");
    CHECK(config.epsilon == 1e-5);
    CHECK(config.attention.rotations.base == 10000);
    CHECK(config.attention.rotations.original_context == 0);
    CHECK(config.context == 2048);
    CHECK(meta_llama_config(folder.files(), replaced(kParams, "1e-5", "0.25")).epsilon == 0.25);
    CHECK(load_meta_llama(folder.file("consolidated.safetensors"), 6, 32, 0.25).config().epsilon == 0.25);
    const DecoderOnlyConfig scaled = meta_llama_config(
        folder.files(),
        replaced(kParams, "{",
                 R"({"use_scaled_rope": true, "rope_scaling_factor": 32, "rope_high_freq_factor": 5,)"));
    CHECK(scaled.attention.rotations.factor == 32);
    CHECK(scaled.attention.rotations.original_context == 8192);
    CHECK(scaled.attention.rotations.low_frequency == 1);
    CHECK(scaled.attention.rotations.high_frequency == 5);
  }

  TEST_CASE("a params.json that does not fit the tensors, or asks for more, is refused by name") {
    const auto refusal = refusal_of_params;
    CHECK(refusal("\"dim\": 18", "\"dim\": 19").find("params.json: dim is 19, but 18 by the tensors of ") ==
          0);
    CHECK(refusal("\"n_layers\": 2", "\"n_layers\": 3").find("params.json: n_layers is 3, but 2 by ") == 0);
    CHECK(refusal("\"n_kv_heads\": 2", "\"n_kv_heads\": 3").find("params.json: n_kv_heads is 3, but 2 by ") ==
          0);
    CHECK(refusal("\"n_kv_heads\": 2,", "").find("params.json: n_kv_heads is 6, but 2 by ") == 0);
    CHECK(refusal("\"vocab_size\": 29", "\"vocab_size\": 30")
              .find("params.json: vocab_size is 30, but 29 by ") == 0);
    CHECK(refusal("\"head_dim\": 4", "\"head_dim\": 3").find("params.json: head_dim is 3, but 4 by ") == 0);
    CHECK(
        refusal("\"multiple_of\": 2", "\"hidden_dim\": 2").find("params.json: hidden_dim is 2, but 22 by ") ==
        0);
    CHECK(refusal("\"n_heads\": 6, ", "") == "params.json: n_heads is missing");
    CHECK(refusal("{", "{\"use_scaled_rope\": true, ") == "params.json: rope_scaling_factor is missing");
    CHECK(refusal("{", "{\"moe\": {}, ") ==
          "params.json: moe = {} changes the arithmetic and is not implemented");
    CHECK(refusal("{", "{\"sliding_window\": 9, ") ==
          "params.json: sliding_window = 9 changes the arithmetic and is not implemented");
    CHECK(refusal("multiple_of", "multiples_of").find("params.json: multiples_of is unknown here") == 0);
    CHECK(refusal("{", "").find("params.json is not JSON") == 0);
  }

  TEST_CASE("tensors that are missing or make no model are refused by name") {
    using NamedTensors = std::vector<std::pair<std::string, Tensor>>;
    const auto without = [](const std::string& name) {
      return refusal_of_tensors([&](NamedTensors& tensors) {
        for (auto& [own, value] : tensors) own = own == name ? "other" : own;
      });
    };
    CHECK(without("tok_embeddings.weight") == "has no tensor 'tok_embeddings.weight'");
    CHECK(without("layers.0.attention.wq.weight") == "has no tensor 'layers.0.attention.wq.weight'");
    CHECK(without("layers.0.attention_norm.weight").find("layers must be from 1") != std::string::npos);
    CHECK(without("layers.1.attention.wv.weight").find("layers.1.attention.wv.weight is missing") !=
          std::string::npos);
    CHECK(without("layers.1.attention_norm.weight").find("layers.1.ffn_norm.weight is not in the model") !=
          std::string::npos);
    CHECK(refusal_of_tensors([](NamedTensors& tensors) {
            for (auto& [name, value] : tensors) {
              if (name == "layers.0.feed_forward.w1.weight") value = Tensor::zeros({3});
            }
          }) == "tensor 'layers.0.feed_forward.w1.weight' must be a matrix; got [3]");
    const auto nothing = [](NamedTensors&) {};
    CHECK(refusal_of_tensors(nothing, 5) ==
          "queries of 24 and keys of 8 components do not divide into 5 heads");
    CHECK(refusal_of_tensors(nothing, 2) ==
          "queries of 24 and keys of 8 components do not divide into 2 heads");
    CHECK(refusal_of_tensors(nothing, 0) == "heads and context must be positive; got heads=0, context=32");
    CHECK(refusal_of_tensors(nothing, 24).find("even") != std::string::npos);
    CHECK(refusal_of_tensors(nothing) == "nothing was thrown");
  }

  TEST_CASE("constants beside the weights are passed over, and a head that is missing is the embedding") {
    const TemporaryFolder folder;
    auto tensors = meta_tensors();
    tensors.erase(std::find_if(tensors.begin(), tensors.end(),
                               [](const auto& tensor) { return tensor.first == "output.weight"; }));
    tensors.emplace_back("rope.freqs", Tensor::zeros({2}));
    save_safetensors(folder.file("m"), tensors);
    CHECK(load_meta_llama(folder.file("m"), 6, 32).config().tie_head);
  }

  TEST_CASE("a trained Llama goes on as its reference does, with a cache and without") {
    const char* const folder = std::getenv("TAPEFORMER_STORIES_FOLDER");
    if (folder == nullptr) {
      MESSAGE("skipped: TAPEFORMER_STORIES_FOLDER names no folder with stories260K.safetensors");
      return;
    }
    const DecoderOnly model = load_meta_llama(std::string(folder) + "/stories260K.safetensors", 8, 512);
    std::ifstream table(std::string(folder) + "/golden_greedy.tsv");
    std::string line;
    std::getline(table, line);
    std::vector<std::int32_t> ids, next;
    std::vector<double> largest;
    for (double position, id, following, logit, loss;
         table >> position >> id >> following >> logit >> loss;) {
      ids.push_back(static_cast<std::int32_t>(id));
      next.push_back(static_cast<std::int32_t>(following));
      largest.push_back(logit);
    }
    REQUIRE(ids.size() == 260);
    const auto length = static_cast<Index>(ids.size());

    for (const bool cached : {true, false}) {
      TextGenerationConfig generation;
      generation.sampling.temperature = 0;
      generation.max_tokens = length;
      if (!cached) generation.cache.reset();
      std::vector<std::int32_t> tokens;
      generate_text(model, {ids[0]}, generation, [&](Index, std::int32_t token) {
        tokens.push_back(token);
        return true;
      });
      INFO("cached: ", cached);
      CHECK(tokens == next);
    }
    const Tensor all_btv = model(Tensor::from(ids, {1, length}));
    double worst = 0;
    for (Index i = 0; i < length; ++i) {
      const float* const row = all_btv.data<float>() + i * 512;
      const double found = *std::max_element(row, row + 512);
      worst = std::max(worst, std::abs(found - largest[static_cast<std::size_t>(i)]));
    }

    const std::string bytes = read_bytes(std::string(folder) + "/golden_logits_pos0-7.f32");
    REQUIRE(bytes.size() == 8 * 512 * sizeof(float));
    const Tensor expected = Tensor::empty({8, 512});
    std::memcpy(expected.raw(), bytes.data(), bytes.size());
    const Tensor logits =
        model(Tensor::from(std::vector<std::int32_t>(ids.begin(), ids.begin() + 8), {1, 8}));
    const double error = absolute_error(logits.alias({8, 512}), expected);
    MESSAGE("logits differ by " << error << ", the largest of each step by " << worst);
    CHECK_BELOW(error, 1e-4);
    CHECK_BELOW(worst, 1e-4);
  }
}
