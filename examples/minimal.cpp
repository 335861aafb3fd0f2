// The whole library in one small program: a language model that reads a text, learns to predict its next
// character, and then writes some text of its own. It takes seconds.
// Usage: minimal [TEXT_FILE [STEPS]]; without a file it reads the built-in text.
#include <tapeformer/autograd/xtensor.h>
#include <tapeformer/tapeformer.h>  // includes the library's headers; CMake generates it in the build folder

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <xtensor/xview.hpp>

using namespace tapeformer;
using Ids = std::vector<std::int32_t>;

constexpr Index kBatch = 16, kContext = 48, kWidth = 64, kHeads = 4, kLayers = 2;  // B, T, C, H, L

/// One layer: attention gathers from the tokens before each one, and a feed-forward network works on every
/// token by itself. Both add their result to their input.
struct Layer : Module {
  explicit Layer(Generator& random)
      : attention_norm({kWidth}),
        query_key_value({kWidth, 3 * kWidth}, random),
        output({kWidth, kWidth}, random),
        feed_forward_norm({kWidth}),
        feed_forward({kWidth, 4 * kWidth, Unary::gelu}, random) {}

  Tensor operator()(const Tensor& x_btc) const {
    AttentionOptions options;
    options.causal = true;  // no token may see the one that it predicts
    const Index D = kWidth / kHeads;
    // {query heads, key/value heads, width of a key, width of a value}
    const Tensor heads_bthd =
        packed_attention(query_key_value(attention_norm(x_btc)), {kHeads, kHeads, D, D}, options);
    const Tensor y_btc = x_btc + output(reshape(heads_bthd, x_btc.shape()));
    return y_btc + feed_forward(feed_forward_norm(y_btc));
  }
  /// Names the parameters, once: optimizers, files and devices all use this.
  void visit(ParameterVisitor& visitor) override {
    visitor.child("attention_norm", attention_norm);
    visitor.child("query_key_value", query_key_value);
    visitor.child("output", output);
    visitor.child("feed_forward_norm", feed_forward_norm);
    visitor.child("feed_forward", feed_forward);
  }

  LayerNorm attention_norm;
  Linear query_key_value, output;
  LayerNorm feed_forward_norm;
  FeedForward feed_forward;
};

/// The model: a vector for each token (here a character) and its position, layers that refine it, and a head
/// that scores every possible next token.
struct LanguageModel : Module {
  LanguageModel(Index vocabulary, Generator& random)
      : token_embedding({vocabulary, kWidth, 0.1}, random),
        position_embedding({PositionKind::learned, kWidth, kContext}, random),
        norm({kWidth}),
        head({kWidth, vocabulary}, random) {
    for (Index i = 0; i < kLayers; ++i) layers.emplace_back(random);
  }

  /// Shapes:  ids i32 [B, T], T <= kContext -> logits [B, T, V]
  Tensor operator()(const Tensor& ids_bt) const {
    Tensor x_btc = position_embedding(token_embedding(ids_bt));  // adds a learned vector for each position
    for (const Layer& layer : layers) x_btc = layer(x_btc);
    return head(norm(x_btc));
  }
  void visit(ParameterVisitor& visitor) override {
    visitor.child("token_embedding", token_embedding);
    visitor.child("position_embedding", position_embedding);
    visitor.children(layers);
    visitor.child("norm", norm);
    visitor.child("head", head);
  }

  Embedding token_embedding;
  Positions position_embedding;
  std::vector<Layer> layers;
  LayerNorm norm;
  Linear head;
};

/// Inputs and targets, i32 [B, T]: windows of the text from random places. The target is the token after its
/// input.
std::pair<Tensor, Tensor> random_batch(const Ids& text, Generator& random) {
  auto windows = xt::xarray<std::int32_t>::from_shape({kBatch, kContext + 1});
  for (Index row = 0; row < kBatch; ++row) {
    const auto start = text.begin() + random.below(static_cast<Index>(text.size()) - kContext);
    std::copy_n(start, kContext + 1, xt::row(windows, row).begin());
  }
  return {from_xtensor(xt::view(windows, xt::all(), xt::range(0, kContext))),
          from_xtensor(xt::view(windows, xt::all(), xt::range(1, kContext + 1)))};
}

/// Appends tokens to the text, each drawn from the model's prediction after the last kContext of them. There
/// is no tape here, so nothing is recorded.
Ids generate(const LanguageModel& model, Ids text, Index count, Generator& random) {
  for (Index i = 0; i < count; ++i) {
    const Ids context(text.end() - std::min<std::ptrdiff_t>(kContext, text.end() - text.begin()), text.end());
    const auto T = static_cast<Index>(context.size());
    const Tensor logits_1tv = model(Tensor::from(context, {1, T}));
    const Tensor next_11v = slice(logits_1tv, 1, T - 1, 1).to(Device::cpu()).to(DType::f64);
    const Index id = sample_token(next_11v.data<double>(), next_11v.size(2), SamplingConfig{0.8},
                                  random);  // a temperature
    text.push_back(static_cast<std::int32_t>(id));
  }
  return text;
}

int main(int argc, char** argv) try {
  share_processors();  // leaves other programs their share of the machine
  const std::string text = argc > 1 ? read_file(argv[1]) : built_in_text();
  const Index steps = argc > 2 ? std::atoll(argv[2]) : 600;
  if (steps < 1) throw Error("usage: minimal [TEXT_FILE [STEPS]]");
  // A TextSource hands its text to a reader piece by piece; here in one piece.
  const auto tokenizer = train_character_tokenizer([&](const auto& reader) { reader(text); });
  const Ids ids = tokenizer->encode(text);
  if (ids.size() <= kContext) throw Error("the text is too short; try one of some thousand characters");

  Generator random(42);
  LanguageModel model(tokenizer->vocabulary_size(), random);
  AdamW optimizer(model.parameters());
  for (Index step = 1; step <= steps; ++step) {
    const auto [inputs_bt, targets_bt] = random_batch(ids, random);
    optimizer.clear_gradients();
    Tape tape;  // records what this thread computes, up to backward
    const Tensor loss = cross_entropy(model(inputs_bt), targets_bt);
    tape.backward(loss);
    clip_gradient_norm(optimizer.parameters(), 1.0);
    optimizer.step(3e-3);
    if (step % 100 == 0) std::printf("step %d  loss %.3f\n", static_cast<int>(step), loss.item());
  }
  std::printf("\n%s\n", tokenizer->decode(generate(model, {ids.front()}, 400, random)).c_str());
} catch (const std::exception& error) {
  std::fprintf(stderr, "minimal: %s\n", error.what());
  return 2;
}
