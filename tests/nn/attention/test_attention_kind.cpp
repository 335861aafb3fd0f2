#include <tapeformer/nn/attention/attention_kind.h>
#include <tapeformer/nn/attention/heads.h>
#include <tapeformer/nn/formats/checkpoint.h>
#include <tapeformer/nn/generation/generate.h>
#include <tapeformer/nn/generation/generate_text.h>
#include <tapeformer/nn/linear.h>
#include <tapeformer/nn/transformer/decoder_only.h>
#include <tapeformer/nn/transformer/encoder_decoder.h>
#include <tapeformer/optim/adamw.h>
#include <tapeformer/tests/nn/formats/temporary_folder.h>
#include <tapeformer/tests/nn/module_case.h>
#include <tapeformer/tests/reference/config_case.h>

using namespace tapeformer;

namespace {

/// A kind of a user's own, with a field of its own: the mean of the last `reach` values that the masks let
/// through. It keeps no cache.
class MeanAttention : public Attention {
 public:
  MeanAttention(const AttentionConfig& config, Generator& random)
      : value_({or_else(config.memory_width, config.width), config.width, false, {}}, random),
        dropout_({config.dropout}, random),
        reach_(static_cast<Index>(config.resolved().own.at("reach"))) {}
  Tensor operator()(const Tensor& query, const Tensor& memory,
                    const AttentionContext& context = {}) const override {
    const Tensor value_bs1e = split_heads(value_(memory), 1);
    const Tensor query_bt1e = Tensor::zeros({query.size(0), query.size(1), 1, value_bs1e.size(3)});
    AttentionOptions options = attention_options(context, dropout_);
    options.window_before = reach_ - 1;
    return merge_heads(scaled_dot_product_attention(query_bt1e, value_bs1e, value_bs1e, options));
  }
  CacheWidths cache_widths() const override { return {}; }
  void visit(ParameterVisitor& visitor) override {
    visitor.child("value", value_);
    visitor.child("dropout", dropout_);
  }

 private:
  Linear value_;
  Dropout dropout_;
  Index reach_;
};

AttentionKind mean_kind() {
  AttentionKind kind;
  kind.name = "mean";
  kind.title = "mean";
  kind.make = [](const AttentionConfig& config, Generator& random) {
    return std::make_unique<MeanAttention>(config, random);
  };
  kind.can = kCanModelLanguage;
  kind.own = {{{"reach", "how many values it sees", kPositiveSize}, 4}};
  return kind;
}

/// For one case: the other tests know only the built-in kinds.
struct MeanIsRegistered {
  MeanIsRegistered() { register_attention_kind(mean_kind()); }
  ~MeanIsRegistered() { unregister_attention_kind(); }
};

/// Loss before and after some steps.
template <class Model, class Loss>
std::pair<double, double> trained(Model& model, const Loss& loss) {
  AdamW optimizer(model.parameters());
  double first = 0, last = 0;
  for (int step = 0; step < 40; ++step) {
    optimizer.clear_gradients();
    Tape tape;
    const Tensor now = loss(model);
    tape.backward(now);
    optimizer.step(1e-2);
    last = now.item();
    if (step == 0) first = last;
  }
  return {first, last};
}

template <class Model>
Model saved_and_loaded(Model& model) {
  const TemporaryFolder folder;
  write_bytes(folder.file("config.json"), model.config().to_json());
  save_weights(folder.file("weights.safetensors"), model);
  return Model::load(folder.file(""));
}

}  // namespace

TEST_CASE("kinds go by name, and an unknown one is refused with a list of the names") {
  for (const char* name : {"mha", "gqa", "mqa", "mla", "additive"}) {
    CHECK(attention_kind(name).name == name);
  }
  CHECK(message_of<Error>([] {
          attention_kind("linear");
        }).find("[attention] the kind must be one of mha, gqa, mqa, mla, differential, additive") == 0);
  CHECK(message_of<Error>([] { register_attention_kind(attention_kind("mha")); }) ==
        "[attention] there is already a kind named mha");
  CHECK(kind_names([](const AttentionKind& kind) { return kind.can & kCanExport; }) == "mha, gqa, mqa");
}

TEST_CASE("a kind of a user's own trains in a language model, is saved, loaded and generates") {
  const MeanIsRegistered registered;
  DecoderOnlyConfig config;
  config.vocabulary = 9, config.context = 6, config.layers = 2, config.width = 8;
  config.attention.kind = "mean", config.attention.heads = 2, config.attention.own["reach"] = 3;
  auto model = fresh_module<DecoderOnly>(config);
  const Tensor ids = ids_of({1, 5, 2, 7, 3, 3, 8, 1, 6, 4}, {2, 5}),
               targets = ids_of({5, 2, 7, 3, 1, 8, 1, 6, 4, 2}, {2, 5});
  const auto [first, last] = trained(model, [&](const DecoderOnly& m) { return m.loss(ids, targets); });
  CHECK_BELOW(last, 0.9 * first);
  model.eval();
  const DecoderOnly loaded = saved_and_loaded(model);
  CHECK(loaded.config().attention.kind == "mean");
  CHECK(loaded.config().attention.own.at("reach") == 3);
  CHECK(same_bits(loaded(ids), model(ids)));
  TextGenerationConfig generation;
  generation.max_tokens = 3;
  int tokens = 0;
  generate_text(loaded, {1, 5}, generation, [&](Index, std::int32_t) { return ++tokens > 0; });
  CHECK(tokens == 3);
  config.positions = PositionKind::rotary;
  CHECK(message_of<Error>([&] {
          fresh_module<DecoderOnly>(config);
        }).find("[attention] mean attention cannot rotate queries and keys by rotary positions") == 0);
  CHECK(message_of<Error>([&] { attention_cost(config.attention, {}); }) ==
        "[attention] the cost of mean is not known");
}

TEST_CASE("a field of a kind's own is checked, written and read as the others are") {
  const MeanIsRegistered registered;
  AttentionConfig config;
  config.kind = "mean", config.width = 8;
  CHECK(config.resolved().own.at("reach") == 4);
  check_every_field(config);
  const auto refused = [&] { return message_of<Error>([&] { config.check(); }); };
  config.own["reach"] = 0;
  CHECK(refused() == "[attention] reach must be from 1 to 2147483647; got 0");
  config.own["reach"] = 2.5;
  CHECK(refused() == "[attention] reach must be from 1 to 2147483647; got 2.5");
  config.own["reach"] = 5, config.kind = "mha";
  CHECK(refused() == "[attention] reach is for mean; got attention=mha, reach=5; try leaving it out");
  DecoderOnlyConfig model;
  model.vocabulary = 9;
  CHECK(model.to_json().find("reach") == std::string::npos);
  model.attention.kind = "mean";
  CHECK(model.to_json().find("\"reach\": 4.0") != std::string::npos);
}

TEST_CASE("a kind of a user's own trains in an encoder and decoder, is saved, loaded and translates") {
  const MeanIsRegistered registered;
  EncoderDecoderConfig config;
  config.source_vocabulary = config.target_vocabulary = 9;
  config.encoder_layers = config.decoder_layers = 1;
  config.layer.width = 8, config.layer.attention.heads = 2, config.layer.attention.kind = "mean";
  auto model = fresh_module<EncoderDecoder>(config);
  const Tensor source = ids_of({4, 5, 6, 7, 8, 4}, {2, 3}), target = ids_of({2, 6, 5, 2, 4, 8}, {2, 3}),
               expected = ids_of({6, 5, 3, 4, 8, 3}, {2, 3});
  const auto [first, last] =
      trained(model, [&](const EncoderDecoder& m) { return m.loss(source, {}, target, expected); });
  CHECK_BELOW(last, 0.9 * first);
  model.eval();
  const EncoderDecoder loaded = saved_and_loaded(model);
  CHECK(same_bits(loaded(source, {}, target), model(source, {}, target)));
  CHECK(beam_search(loaded, {{4, 5, 6}, {7}}).size() == 2);
}
