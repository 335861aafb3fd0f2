#include <tapeformer/nn/formats/marian_npz.h>
#include <tapeformer/nn/formats/npz.h>
#include <tapeformer/tests/nn/formats/temporary_folder.h>
#include <tapeformer/tests/reference/golden.h>

#include <doctest/doctest.h>

#include <algorithm>

using namespace tapeformer;

namespace {

const char* const kMarianCases[] = {"post", "pre"};

std::string npz_of(const std::string& name) {
  return TAPEFORMER_SOURCE_DIR "/tests/golden/marian_" + name + ".npz";
}

/// A copy of a golden file with other options: the message that refuses it, without its path.
std::string marian_refusal(const std::string& from, const std::string& to) {
  const TemporaryFolder folder;
  NpzArrays arrays = load_npz(npz_of("post"));
  auto& [type, shape, options] = arrays.at("special:model.yml");
  REQUIRE(options.find(from) != std::string::npos);
  options.replace(options.find(from), from.size(), to);
  shape = {static_cast<Index>(options.size())};
  const std::string path = folder.file("model.npz");
  save_npz(path, arrays);
  const std::string said = message_of<CheckpointError>([&] { load_marian_npz(path); });
  return said.compare(0, path.size(), path) == 0 ? said.substr(path.size() + 2) : said;
}

}  // namespace

TEST_CASE("logits are those of transformers, and arrays are written as they were read") {
  const Golden golden("marian");
  for (const std::string name : kMarianCases) {
    INFO(name);
    EncoderDecoder model = load_marian_npz(npz_of(name));
    const TemporaryFolder folder;
    const std::string path = folder.file("model.npz");
    save_marian_npz(path, model);
    const NpzArrays before = load_npz(npz_of(name)), after = load_npz(path);
    REQUIRE(after.size() == before.size());
    for (const auto& [array, theirs] : before) {
      if (array == "special:model.yml") continue;
      INFO(array);
      CHECK(after.at(array).shape == theirs.shape);
      CHECK(after.at(array).data == theirs.data);
    }
    CHECK(marian_npz_config(path).to_json() == model.config().to_json());
    model.to(DType::f64);
    const Tensor logits =
        model(golden.tensor(name, "source"), golden.tensor(name, "mask"), golden.tensor(name, "target"));
    CHECK_BELOW(absolute_error(logits, golden.tensor(name, "logits")), 1e-12);
  }
}

TEST_CASE("models with tables for each side, a head of its own and another decoder come back") {
  EncoderDecoderConfig config = load_marian_npz(npz_of("post")).config();
  config.tie_embeddings = false, config.source_vocabulary = 9, config.decoder_feed_forward = 5;
  const Tensor source = Tensor::from<std::int32_t>({3, 7, 1, 0, 8, 2}, {2, 3}),
               target = Tensor::from<std::int32_t>({28, 12, 28, 3}, {2, 2});
  Generator random(test_seed(2));
  for (const bool tied : {true, false}) {
    config.tie_target_head = tied;
    EncoderDecoder model(config, random);
    Tensor head;
    for (auto& [name, parameter] : model.named_parameters()) {
      if (name == "head.weight") head = parameter.value();
      random.fill_normal(parameter.value(), 0, 0.3);
      const Index columns = name == "head.bias" ? 1 : parameter.value().size(-1);
      if (name.find("head.") == 0 || name.find("embedding") != std::string::npos)  // the last token's
        std::fill_n(parameter.value().data<float>() + parameter.value().elements() - columns, columns, 0.0f);
    }
    model.eval();
    const TemporaryFolder folder;
    const std::string path = folder.file("model.npz");
    save_marian_npz(path, model);
    const EncoderDecoder read = load_marian_npz(path);
    CHECK(read.config().to_json() == model.config().to_json());
    CHECK(relative_error(read(source, {}, target), model(source, {}, target)) == 0);
    if (tied) continue;
    NpzArrays arrays = load_npz(path);
    arrays.erase("decoder_ff_logit_out_W");
    head = head.to(Device::cpu());
    arrays["decoder_ff_logit_out_Wt"] = {
        "<f4", {28, 12}, {static_cast<const char*>(head.raw()), 28 * 12 * sizeof(float)}};
    save_npz(path, arrays);
    CHECK(relative_error(load_marian_npz(path)(source, {}, target), model(source, {}, target)) == 0);
  }
}

TEST_CASE("options and arrays that are not implemented are refused by name") {
  const std::string not_implemented = " changes the arithmetic and is not implemented";
  CHECK(marian_refusal("type: transformer", "type: s2s") == "type = \"s2s\"" + not_implemented);
  CHECK(marian_refusal("transformer-postprocess: dan", "transformer-postprocess: dhn") ==
        "transformer-postprocess = dhn" + not_implemented);
  CHECK(marian_refusal("transformer-ffn-activation: swish", "transformer-ffn-activation: gelu") ==
        "transformer-ffn-activation must be swish or relu");
  CHECK(marian_refusal("transformer-decoder-autoreg: self-attention", "transformer-decoder-autoreg: rnn") ==
        "transformer-decoder-autoreg = \"rnn\"" + not_implemented);
  CHECK(marian_refusal("skip: false", "transformer-attention-mask: alibi") ==
        "transformer-attention-mask = \"alibi\"" + not_implemented);
  CHECK(marian_refusal("skip: false", "transformer-alibi-shift: false\ntransformer-no-bias: false") ==
        "nothing was thrown");
  CHECK(marian_refusal("right-left: false", "left-right: false") ==
        "left-right is unknown here and may change the arithmetic; if it does not, remove it");
  CHECK(marian_refusal("right-left: false", "? bert-" + std::string(60'000, 'x') + "\n: 1") ==
        "nothing was thrown");  // however long a name is
  CHECK(marian_refusal("type: transformer", "type: [") ==
        "special:model.yml:43: is not YAML: did not find expected ',' or ']'");
  CHECK(marian_refusal("- 28", "- x") ==
        "source-vocabulary must be an integer from 1 to 2147483647; got \"x\"");
  CHECK(marian_refusal("enc-depth: 2", "enc-depth: 1") == "array 'encoder_l2_ffn_W1' is not in the model");
  CHECK(marian_refusal("enc-depth: 2", "enc-depth: 99999") == "has too few arrays for its layers");
  CHECK(marian_refusal("dec-depth: 1", "dec-depth: 2") == "has no array 'decoder_l2_self_Wq'");
  CHECK(marian_refusal("transformer-dim-ffn: 11", "transformer-dim-ffn: 12") ==
        "array 'encoder_l1_ffn_W1' is <f4[12,11], but the model has <f4[12,12] there");
}

TEST_CASE("a model that Marian cannot express is refused") {
  const TemporaryFolder folder;
  const std::string path = folder.file("model.npz");
  EncoderDecoder model = load_marian_npz(npz_of("post"));
  const auto refusal = [&](EncoderDecoder& refused) {
    return message_of<CheckpointError>([&] { save_marian_npz(path, refused); });
  };
  EncoderDecoderConfig config = model.config();
  config.layer.epsilon = 1e-6, config.positions = PositionKind::learned;
  Generator random(test_seed(1));
  EncoderDecoder other(config, random);
  CHECK(refusal(other) ==
        "[export] marian-npz has no such model; its transformer differs least; got epsilon=1e-06, "
        "positions=learned; try epsilon=1e-05, positions=sinusoidal_halves");
  random.fill_normal(model.parameters()[0].value(), 0, 1);
  CHECK(refusal(model) ==
        "[export] Marian's decoder begins with zeros; got a nonzero embedding of the last token, 28; try "
        "--format marian");
  CHECK(folder.count() == 0);
}
