#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/matmul.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/autograd/ops/softmax.h>
#include <tapeformer/autograd/random.h>
#include <tapeformer/examples/gradcheck/attention_figures.h>
#include <tapeformer/examples/shared/progress.h>
#include <tapeformer/nn/attention/basic/self_attention.h>
#include <tapeformer/nn/attention/basic/single_head.h>
#include <tapeformer/nn/attention/multi_head.h>

#include <algorithm>
#include <ostream>

namespace tapeformer {
namespace {

constexpr Index kTokens = 6, kWidth = 3, kHeadWidth = 2;

Tensor six_tokens() {
  return Tensor::from<float>({0.43f, 0.15f, 0.89f, 0.55f, 0.87f, 0.66f, 0.57f, 0.85f, 0.64f,  //
                              0.22f, 0.58f, 0.33f, 0.77f, 0.25f, 0.10f, 0.05f, 0.80f, 0.55f},
                             {kTokens, kWidth});
}

/// The first `columns` of rows `from` to `to` of x, counted from 1, inclusive.
std::string rows_text(const Tensor& x, Index from, Index to, Index columns, int decimals) {
  const Index stride = x.size(-1);
  std::string text;
  for (Index row = from - 1; row < to; ++row) {
    if (!text.empty()) text += " / ";
    for (Index column = 0; column < columns; ++column) {
      text += column > 0 ? " " : "";
      text += format(decimals > 0 ? "{:.4f}" : "{:.0f}", x.at(row * stride + column));
    }
  }
  return text;
}
std::string row_text(const Tensor& x, Index row, Index columns) { return rows_text(x, row, row, columns, 4); }
std::string all_text(const Tensor& x, int decimals = 4) {
  return rows_text(x, 1, x.elements() / x.size(-1), x.size(-1), decimals);
}

/// The head of figures 3, 6 and 7: query, key and value are drawn in this order, as torch.nn.Linear draws.
SingleHeadAttention torch_head(std::uint64_t seed, bool causal) {
  SingleHeadConfig config;
  config.width = kWidth;
  config.key_width = kHeadWidth;
  config.causal = causal;
  Generator unused(0);
  SingleHeadAttention head(config, unused);
  TorchGenerator torch(seed);
  for (Parameter& weight : head.parameters()) weight.set_value(torch.linear_weight(kHeadWidth, kWidth));
  return head;
}

struct Attended {
  Tensor y, weights;
};
Attended attend(const Attention& head, const Tensor& x_btc) {
  Attended result;
  AttentionContext context;
  context.weights = &result.weights;
  result.y = head(x_btc, x_btc, context);
  return result;
}

void weightless(const Tensor& x, std::vector<AttentionFigure>& figures) {
  const Tensor scores = matmul(x, transposed(x));
  Tensor weights;
  const Tensor context = self_attention(x, 1, &weights);
  figures.push_back({"No weights: scores of tokens 1 and 2",
                     "0.9995 0.9544 0.9422 0.4753 0.4576 0.6310 / 0.9544 1.4950 1.4754 0.8434 0.7070 1.0865",
                     rows_text(scores, 1, 2, kTokens, 4)});
  figures.push_back({"No weights: attention weights of token 2", "0.1385 0.2379 0.2333 0.1240 0.1082 0.1581",
                     row_text(weights, 2, kTokens)});
  figures.push_back({"No weights: context",
                     "0.4421 0.5931 0.5790 / 0.4419 0.6515 0.5683 / 0.4431 0.6496 0.5671 / "
                     "0.4304 0.6298 0.5510 / 0.4671 0.5910 0.5266 / 0.4177 0.6503 0.5645",
                     all_text(context)});
  figures.push_back({"Sums instead of softmax: weights of token 2",
                     "0.1455 0.2278 0.2249 0.1285 0.1077 0.1656",
                     row_text(scores / sum(scores, {-1}, true), 2, kTokens)});
}

void bare_matrices(const Tensor& x, std::vector<AttentionFigure>& figures) {
  MatrixSelfAttentionConfig config;
  config.width = kWidth;
  config.key_width = kHeadWidth;
  Generator unused(0);
  MatrixSelfAttention attention(config, unused);
  TorchGenerator torch(123);
  std::vector<Parameter> matrices = attention.parameters();  // query, key, value
  for (Parameter& matrix : matrices) matrix.set_value(torch.rand({kWidth, kHeadWidth}));
  Tensor weights;
  const Tensor y = attention(x, &weights);
  const Tensor query = matmul(x, matrices[0]), key = matmul(x, matrices[1]);
  figures.push_back({"Matrices: query of token 2", "0.4306 1.4551", row_text(query, 2, kHeadWidth)});
  figures.push_back({"Matrices: scores of token 2", "1.2705 1.8524 1.8111 1.0795 0.5577 1.5440",
                     row_text(matmul(query, transposed(key)), 2, kTokens)});
  figures.push_back({"Matrices: attention weights of token 2", "0.1500 0.2264 0.2199 0.1311 0.0906 0.1820",
                     row_text(weights, 2, kTokens)});
  figures.push_back({"Matrices: output",
                     "0.2996 0.8053 / 0.3061 0.8210 / 0.3058 0.8203 / 0.2948 0.7939 / 0.2927 0.7891 / "
                     "0.2990 0.8040",
                     all_text(y)});
}

void linear_layers(const Tensor& x, std::vector<AttentionFigure>& figures) {
  const Tensor x_btc = reshape(x, {1, kTokens, kWidth});
  const Attended full = attend(torch_head(789, false), x_btc);
  const Attended causal = attend(torch_head(789, true), x_btc);
  figures.push_back({"Linear layers: output",
                     "-0.0739 0.0713 / -0.0748 0.0703 / -0.0749 0.0702 / -0.0760 0.0685 / -0.0763 0.0679 / "
                     "-0.0754 0.0693",
                     all_text(full.y)});
  figures.push_back({"Linear layers: attention weights of token 6",
                     "0.1935 0.1663 0.1666 0.1542 0.1666 0.1529", row_text(full.weights, 6, kTokens)});
  figures.push_back({"Linear layers: causal weights of tokens 2, 3 and 4",
                     "0.5517 0.4483 / 0.3800 0.3097 0.3103 / 0.2758 0.2460 0.2462 0.2319",
                     row_text(causal.weights, 2, 2) + " / " + row_text(causal.weights, 3, 3) + " / " +
                         row_text(causal.weights, 4, 4)});

  const Shape square{kTokens, kTokens};
  const auto dropped = [&](const Tensor& values) {
    const Tensor keep = TorchGenerator(123).dropout_mask(square, 0.5);
    return 2 * where(keep, reshape(values, square), Tensor::scalar(0));
  };
  figures.push_back({"Dropout of ones",
                     "2 2 0 2 2 0 / 0 0 0 2 0 2 / 2 2 2 2 0 2 / 0 2 2 0 0 2 / 0 2 0 2 0 2 / 0 2 2 2 2 0",
                     all_text(dropped(Tensor::full(square, 1)), 0)});
  const Tensor thinned = dropped(causal.weights);
  figures.push_back(
      {"Dropout of the causal weights of tokens 3, 4 and 6",
       "0.7599 0.6194 0.6206 / 0.0000 0.4921 0.4925 0.0000 / "
       "0.0000 0.3327 0.3331 0.3084 0.3331 0.0000",
       row_text(thinned, 3, 3) + " / " + row_text(thinned, 4, 4) + " / " + row_text(thinned, 6, 6)});
}

void causal_batch(const Tensor& x, std::vector<AttentionFigure>& figures) {
  const Tensor one = reshape(x, {1, kTokens, kWidth});
  const Attended both = attend(torch_head(123, true), concat({one, one}, 0));
  const std::string published =
      "-0.4519 0.2216 / -0.5874 0.0058 / -0.6300 -0.0632 / -0.5675 -0.0843 / -0.5526 -0.0981 / "
      "-0.5299 -0.1081";
  figures.push_back(
      {"Causal attention, first of the batch", published, rows_text(both.y, 1, kTokens, kHeadWidth, 4)});
  figures.push_back({"Causal attention, second of the batch", published,
                     rows_text(both.y, kTokens + 1, 2 * kTokens, kHeadWidth, 4)});
}

void two_heads(const Tensor& x, std::vector<AttentionFigure>& figures) {
  AttentionConfig config;
  config.width = kWidth;
  config.output_width = kHeadWidth;
  config.heads = 2;
  config.packed = config.bias = false;
  config.output_bias = true;
  Generator unused(0);
  MultiHeadAttention heads(config, unused);
  TorchGenerator torch(123);
  for (Parameter& drawn : heads.parameters()) {  // query, key, value, output and its bias
    const Shape& shape = drawn.value().shape();
    drawn.set_value(drawn.value().rank() == 2 ? torch.linear_weight(shape[0], shape[1])
                                              : torch.linear_bias(shape[0], kHeadWidth));
  }
  const Tensor one = reshape(x, {1, kTokens, kWidth}), both = concat({one, one}, 0);
  AttentionContext causal;
  causal.causal = true;
  const std::string published =
      "0.3190 0.4858 / 0.2943 0.3897 / 0.2856 0.3593 / 0.2693 0.3873 / 0.2639 0.3928 / 0.2575 0.4028";
  figures.push_back({"Multi-head attention of two heads, from width three to two, both of the batch",
                     published + " / " + published, all_text(heads(both, both, causal))});
}

std::vector<std::string> rows_of(const std::string& text) {
  std::vector<std::string> rows;
  for (std::size_t from = 0; from <= text.size();) {
    const std::size_t to = std::min(text.find(" / ", from), text.size());
    rows.push_back(text.substr(from, to - from));
    from = to + 3;
  }
  return rows;
}

void print_figure(std::ostream& out, const AttentionFigure& figure) {
  out << figure.title << "\n";
  const std::vector<std::string> published = rows_of(figure.published), ours = rows_of(figure.ours);
  for (std::size_t row = 0; row < ours.size(); ++row) {
    out << format("  {:-42}  {:-42}  {}\n", published[row], ours[row],
                  published[row] == ours[row] ? "same" : "DIFFERS");
  }
}

}  // namespace

std::vector<AttentionFigure> attention_figures() {
  const Tensor x = six_tokens();
  std::vector<AttentionFigure> figures;
  weightless(x, figures);
  bare_matrices(x, figures);
  linear_layers(x, figures);
  causal_batch(x, figures);
  two_heads(x, figures);
  figures.push_back({"softmax(2.3, 9.1, 0.5); one text misprints 0.002 0.995 0.003", "0.0011 0.9987 0.0002",
                     all_text(softmax(Tensor::from<float>({2.3f, 9.1f, 0.5f}, {1, 3})))});
  return figures;
}

bool print_attention_figures(std::ostream& out) {
  bool all = true;
  out << "  published" << std::string(35, ' ') << "ours\n";
  for (const AttentionFigure& figure : attention_figures()) {
    print_figure(out, figure);
    all = all && figure.matches();
  }
  out << (all ? "every printed decimal is the same\n" : "some decimals DIFFER\n");
  return all;
}

}  // namespace tapeformer
