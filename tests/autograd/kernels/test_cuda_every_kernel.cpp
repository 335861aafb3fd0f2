#include <tapeformer/autograd/ops/additive_attention.h>
#include <tapeformer/autograd/ops/causal_convolution.h>
#include <tapeformer/autograd/ops/embedding.h>
#include <tapeformer/autograd/ops/experts.h>
#include <tapeformer/autograd/ops/gated.h>
#include <tapeformer/autograd/ops/linear_attention.h>
#include <tapeformer/autograd/ops/loss.h>
#include <tapeformer/autograd/ops/matmul.h>
#include <tapeformer/autograd/ops/normalization.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/autograd/ops/residual_norm.h>
#include <tapeformer/autograd/ops/rotary.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/autograd/ops/softmax.h>
#include <tapeformer/tests/autograd/kernels/attention_path_case.h>
#include <tapeformer/tests/emulator/in_order.h>

#include <cmath>

// Every kernel with a few blocks, of several warps and tiles: small enough for what watches each access, here
// or on a GPU. What optimizers run is in test_cuda_optim.cpp.
using namespace tapeformer;

namespace {

/// Outputs and gradients of `f` in f32 on the GPU are those in f64 on the CPU, and the same bits in any order
/// of blocks and threads.
void check_gpu(const Function& f, const std::vector<Tensor>& x, Generator& random, DType type = DType::f32,
               Index shift = 1) {
  const Tensor dy = host_normal(f(x).shape(), random);
  const auto run = [&] { return with_gradients(f, on_gpu(x, type, shift), on_gpu(dy.to(type))); };
  const std::vector<Tensor> expected = with_gradients(f, x, dy), got = run();
  const InOrder another(11);
  const std::vector<Tensor> again = run();
  for (std::size_t i = 0; i < got.size(); ++i) {
    CAPTURE(i);
    CHECK(got[i].device() == Device::cuda());
    CHECK(same_values(again[i], got[i]));
  }
  check_near(got, expected, type == DType::f64 ? 1e-11 : 1e-5);
}

constexpr Index kManyRows = 4099;  // more than there are blocks
// Rows that warps take, in two blocks, and rows that blocks take.
const Shape kRows[] = {{9, 70}, {3, 1100}};

Tensor positive(const Shape& shape, Generator& random) { return host_uniform(shape, 0.2, 2, random); }

/// Attention on a packed projection, on three inputs, or on four with additive scores; inputs after the first
/// `count` are modifiers.
Function attention_with(const AttentionOptions& options, std::size_t count = 9) {
  return [=](const std::vector<Tensor>& in) {
    const AttentionOptions there = with_modifiers(moved(options, in[0].device()), in, count);
    if (in.size() == 1) return packed_attention(in[0], {2, 1, 40, 36}, there);
    if (in.size() == 3) return scaled_dot_product_attention(in[0], in[1], in[2], there);
    return additive_attention(in[0], in[1], in[2], in[3], there);
  };
}

std::vector<Tensor> attention_inputs(Index queries, Index keys, Index width, Index value_width,
                                     bool is_additive, Generator& random) {
  std::vector<Tensor> in{host_normal({1, queries, 2, width}, random),
                         host_normal({1, keys, 1, width}, random),
                         host_normal({1, keys, 1, value_width}, random)};
  if (is_additive) in.push_back(host_normal({2, width}, random));
  return in;
}

}  // namespace

TEST_CASE("softmax and its logarithm") {
  Generator random(test_seed(1));
  for (const Shape& shape : kRows) {
    CAPTURE(shape.text());
    check_gpu([](const auto& in) { return softmax(in[0]); }, {host_normal(shape, random)}, random);
    check_gpu([](const auto& in) { return log_softmax(in[0]); }, {host_normal(shape, random)}, random);
    for (const Index n : {72, 1104, 2400}) {  // in packs
      const Tensor x = host_normal({shape[0], n}, random);
      check_gpu([](const auto& in) { return softmax(in[0]); }, {x}, random, DType::f32, 0);
      check_gpu([](const auto& in) { return log_softmax(in[0]); }, {x}, random, DType::f32, 0);
    }
  }
}

TEST_CASE("sums, also in parts and of more rows and columns than there are blocks") {
  Generator random(test_seed(2));
  for (const Shape& shape : {Shape{2, 9, 1}, Shape{kManyRows, 1025, 1}, Shape{1, 4200, 1}, Shape{2, 300, 40},
                             Shape{kManyRows, 2, 2}}) {
    CAPTURE(shape.text());
    const Tensor x = host_normal(shape, random, DType::f32), there = on_gpu(x);
    CHECK_BELOW(relative_error(readable(sum(there, {1})), readable(sum(x, {1}))), 1e-5);
  }
  const Tensor x = on_gpu(host_normal({kManyRows, 1025}, random, DType::f32));
  CHECK_BELOW(relative_error(readable(softmax(x)), softmax(readable(x))), 1e-5);
}

TEST_CASE("norms") {
  Generator random(test_seed(3));
  for (const Shape& shape : {Shape{260, 40}, Shape{3, 1100}, Shape{3, 6000}}) {
    CAPTURE(shape.text());
    const std::vector<Tensor> x{host_normal(shape, random), host_normal({shape[1]}, random),
                                host_normal({shape[1]}, random)};
    check_gpu([](const auto& in) { return layer_norm(in[0], in[1], in[2]); }, x, random);
    const std::vector<Tensor> joined{x[0], host_normal(shape, random), x[1], x[2]};
    for (const Index shift : {0, 1}) {
      check_gpu([](const auto& in) { return rms_norm(in[0], in[1]); }, {x[0], x[1]}, random, DType::f32,
                shift);
      check_gpu(
          [](const auto& in) {
            const SumAndNorm both = add_layer_norm(in[0], in[1], in[2], in[3], 1e-5, {0.2, {7, 1, 3}});
            return concat({both.sum, both.y}, 0);
          },
          joined, random, DType::f32, shift);
    }
  }
}

TEST_CASE("norms of the heads in a packed projection") {
  Generator random(test_seed(3));
  // Packs, single numbers, a part of a head behind the others, and more packs than a warp has lanes.
  for (const auto& [n, rest] : {std::pair{40, 0}, {40, 5}, {40, 92}, {280, 8}}) {
    const std::vector<Tensor> x{host_normal({260, 4 * n + rest}, random), host_normal({n}, random),
                                host_normal({n}, random)};
    check_gpu([](const auto& in) { return packed_head_norms(in[0], 3, 1, in[1], in[2]); }, x, random);
  }
}

TEST_CASE("convolutions, in packs and without") {
  Generator random(test_seed(3));
  for (const Index width : {70, 72}) {
    const std::vector<Tensor> x{host_normal({2, 130, width}, random),
                                host_normal({width == 70 ? 4 : 6, width}, random)};
    check_gpu([](const auto& in) { return causal_convolution(in[0], in[1]); }, x, random, DType::f32, 0);
  }
}

TEST_CASE("linear attention, of several chunks, in shared memory as far as it fits") {
  Generator random(test_seed(3));
  struct Case {
    Index decays, width, tokens;
  };
  for (const Case& n : {Case{0, 5, 37}, Case{1, 5, 37}, Case{5, 5, 37}, Case{64, 64, 20}, Case{1, 132, 20},
                        Case{132, 132, 20}}) {
    CAPTURE(n.width);
    CAPTURE(n.decays);
    const Shape tokens{1, n.tokens, 2}, keys{1, n.tokens, 2, n.width};
    std::vector<Tensor> x{host_normal(keys, random), host_normal(keys, random) * (0.9 / std::sqrt(n.width)),
                          host_normal({1, n.tokens, 2, n.width + 1}, random),
                          random_uniform(tokens, 0, 1, random),
                          random_uniform(n.decays > 1 ? keys : tokens, -1, 0, random)};
    for (Tensor& input : x) input = input.to(Device::cpu());
    if (n.decays == 0) x.pop_back();
    check_gpu(
        [](const auto& in) {
          LinearAttentionOptions options;
          options.beta = in[3];
          if (in.size() > 4) options.log_decay = in[4];
          return linear_attention(in[0], in[1], in[2], options);
        },
        x, random);
  }
}

TEST_CASE("losses, of logits and of states and weights") {
  Generator random(test_seed(4));
  for (const Shape& shape : kRows) {
    CAPTURE(shape.text());
    const Tensor targets = random_ids({shape[0]}, shape[1], random);
    targets.data<std::int32_t>()[1] = -1;
    for (const double cap : {0, 2}) {
      const Function loss = [&](const auto& in) {
        return cross_entropy(in[0], targets.to(in[0].device()), {-1, 0.1, cap});
      };
      check_gpu(loss, {host_normal(shape, random)}, random);
    }
    const Function linear_loss = [&](const auto& in) {
      LinearCrossEntropyOptions options;
      options.chunk = 4, options.softcap = 2;
      return linear_cross_entropy(in[0], in[1], in[2], targets.to(in[0].device()), options);
    };
    const std::vector<Tensor> x{host_normal({shape[0], 5}, random), host_normal({shape[1], 5}, random),
                                host_normal({shape[1]}, random)};
    check_gpu(linear_loss, x, random);
  }
}

TEST_CASE("embeddings, of more ids than one block reads at a time") {
  Generator random(test_seed(5));
  for (const Shape& shape : {Shape{1300, 33}, Shape{3, 1100}}) {
    const Tensor ids = random_ids({shape[0]}, 60, random);
    check_gpu([&](const auto& in) { return embedding(in[0], ids.to(in[0].device())); },
              {host_normal({70, shape[1]}, random)}, random);
  }
}

TEST_CASE("products by expert, of rows in tiles that are full, parts, or missing") {
  Generator random(test_seed(11));
  for (const Index active : {1, 3}) {
    const Tensor scores = host_normal({130, 5}, random);
    for (Index n = 0; n < 130; ++n) scores.data<double>()[5 * n + 2] = -9;  // an expert without rows
    check_gpu(
        [&](const auto& in) {
          const ExpertChoice choice = choose_experts(scores.to(in[0].device()), active);
          return embedding(expert_linear(embedding(in[0], choice.tokens), in[1], choice.starts), choice.rows);
        },
        {host_normal({130, 35}, random), host_normal({5, 20, 35}, random)}, random);
    const ExpertChoice here = choose_experts(scores, active), there = choose_experts(on_gpu(scores), active);
    CHECK(same_values(there.places, here.places));
    CHECK(same_values(there.starts, here.starts));
    CHECK_BELOW(relative_error(readable(there.shares), here.shares), 1e-15);
  }
  const Tensor scores = host_normal({130, 12}, random);
  for (const ExpertGroups& groups : {ExpertGroups{4, 2}, ExpertGroups{3, 1, true}})
    CHECK(same_values(choose_experts(on_gpu(scores), 3, groups).places,
                      choose_experts(scores, 3, groups).places));
}

TEST_CASE("rotation, also of more pairs than travel with a launch") {
  Generator random(test_seed(6));
  const Tensor positions = random_ids({5}, 100, random);
  for (const RotaryLayout layout : {RotaryLayout::interleaved, RotaryLayout::half_split}) {
    for (const Index width : {34, 300}) {
      RotaryConfig config;
      config.layout = layout;
      check_gpu(
          [&](const auto& in) {
            return packed_rotary(in[0], 2, width,
                                 rotary_angles(config, width, positions.to(in[0].device()), in[0].dtype()));
          },
          {host_normal({2, 5, 3 * width}, random)}, random);
      const Tensor packed = host_normal({2, 5, 3 * 64 + 32}, random);
      check_gpu(  // in packs, in place, and not
          [&](const auto& in) {
            const RotaryAngles angles =
                rotary_angles(config, 64, positions.to(in[0].device()), in[0].dtype());
            return packed_rotary(2 * in[0], 2, 64, angles) * packed_rotary(in[0], 3, 64, angles);
          },
          {packed}, random, DType::f32, 0);
    }
  }
}

TEST_CASE("dropout") {
  Generator random(test_seed(7));
  check_gpu(
      [](const auto& in) {
        return dropout(in[0], 0.3, {7, 1, 3});
      },
      {host_normal({3000}, random)}, random);
}

TEST_CASE("functions, on their own, as gates and behind a linear map") {
  Generator random(test_seed(8));
  for (const Unary f : kUnaries) {
    CAPTURE(std::string(name_of(f)));
    check_gpu([f](const auto& in) { return unary(f, in[0]); }, {positive({300}, random)}, random);
    check_gpu([f](const auto& in) { return gated(f, in[0]); }, {positive({9, 70}, random)}, random);
    check_gpu([f](const auto& in) { return linear(in[0], in[1], in[2], f); },
              {positive({9, 3}, random), positive({33, 3}, random), positive({33}, random)}, random);
  }
  check_gpu([](const auto& in) { return linear(in[0], in[1], in[2]); },
            {positive({9, 3}, random), positive({33, 3}, random), positive({33}, random)}, random);
  check_gpu([](const auto& in) { return matmul(in[0], in[1]); },
            {host_normal({20, 0}, random), host_normal({0, 20}, random)}, random);
}

TEST_CASE("arithmetic, choices, comparisons and a search for values that are not finite") {
  Generator random(test_seed(9));
  const Tensor mask = random_mask({5, 70}, random).to(Device::cpu());
  for (const Shape& shape : {Shape{5, 70}, Shape{5, 1}}) {
    const std::vector<Tensor> x{positive({5, 70}, random), positive(shape, random)};
    check_gpu([](const auto& in) { return (in[0] + in[1]) * in[0] / (in[1] + in[0]) - in[1] * 3; }, x,
              random);
    check_gpu([&](const auto& in) { return where(mask.to(in[0].device()), pow(in[0], 1.5), in[1]); }, x,
              random);
    const auto same = [&](Device device) {
      const Tensor a = mask.to(device), b = x[0].to(device);
      return logical_and(equal(b, where(a, b, x[1].to(device))), a);
    };
    CHECK(same_values(same(Device::cuda()), same(Device::cpu())));
  }
  check_gpu([](const auto& in) { return clamp(in[0], 0.75, 1.25); }, {positive({150, 41}, random)}, random);
  Tape tape;
  tape.detect_anomalies();
  const Tensor there = on_gpu(positive({700}, random).to(DType::f32));
  tape.watch(there);
  CHECK_NOTHROW(affine(there, 2, 1));
  CHECK(message_of<TapeError>([&] { log(affine(there, 0, -1)); }).find("element 0") != std::string::npos);
}

TEST_CASE("elements that move") {
  Generator random(test_seed(10));
  const Tensor index = random_ids({3, 40, 5}, 7, random);
  const Tensor x = host_normal({3, 40, 5}, random);
  check_gpu([](const auto& in) { return permute(in[0], {2, 0, 1}); }, {x}, random);
  check_gpu([](const auto& in) { return concat({in[0], slice(in[0], 1, 3, 9)}, 1); }, {x}, random);
  check_gpu(
      [](const auto& in) {
        return broadcast_to(in[0], {4, 5, 70});
      },
      {host_normal({5, 1}, random)}, random);
  check_gpu([&](const auto& in) { return scatter_add(in[0], 1, index.to(in[0].device()), 7); }, {x}, random);
  check_gpu([&](const auto& in) { return gather(in[0], 1, index.to(in[0].device())); },
            {host_normal({3, 7, 5}, random)}, random);
}

TEST_CASE("attention: several tiles of queries and keys, of several pieces") {
  Generator random(test_seed(11));
  for (const bool is_additive : {false, true}) {
    CAPTURE(is_additive);
    AttentionOptions options;
    options.causal = true;
    options.dropout = 0.2;
    options.mask = host_normal({2, 1, 70}, random);
    options.key_mask = random_mask({1, 70}, random);
    check_gpu(attention_with(options), attention_inputs(130, 70, 40, 36, is_additive, random), random);
    check_gpu(attention_with(options), attention_inputs(40, 70, 5, 3, is_additive, random), random,
              DType::f64);
  }
}

TEST_CASE("attention in bf16 on tensor cores, of each width and with dropout") {
  Generator random(test_seed(10));
  for (const Index width : {32, 64, 128, 256}) {
    CAPTURE(width);
    AttentionCase c = simple_case(1, 70, 134, 2, 1, width, 24, random);
    c.options.causal = true;
    c.options.dropout = width == 64 || width == 256 ? 0.25 : 0;
    check_path(gpu_path("tensor_cores", DType::bf16), c, random);
  }
}

TEST_CASE("attention with modifiers of its scores, and their gradients") {
  Generator random(test_seed(14));
  const auto check = [&](const char* kind, DType type, Index queries, Index keys, Index width,
                         bool is_sigmoid = false) {
    AttentionCase c = simple_case(1, queries, keys, 2, 1, width, 24, random);
    c.options = modified_options(queries, keys, random);
    if (queries > 16) c.options.dropout = 0.2;
    if (is_sigmoid) c.options.weighting = AttentionWeighting::sigmoid, c.options.sinks = Tensor();
    check_path(gpu_path(kind, type), c, random);
  };
  for (const Index width : {32, 64, 128, 256}) check("tensor_cores", DType::bf16, 40, 134, width);
  for (const DType type : {DType::f32, DType::bf16}) check("split", type, 3, 330, 16);
  check("tensor_cores", DType::bf16, 40, 134, 64, true);
  for (const bool is_sigmoid : {false, true}) {
    check("plain", DType::f32, 40, 134, 40, is_sigmoid);
    AttentionOptions options = modified_options(40, 70, random);
    if (is_sigmoid) options.weighting = AttentionWeighting::sigmoid, options.sinks = Tensor();
    std::vector<Tensor> inputs =
        joined(attention_inputs(40, 70, 5, 3, true, random), list_of_modifiers(options));
    for (Tensor& x : inputs) x = x.to(Device::cpu());
    check_gpu(attention_with(options, 4), inputs, random, DType::f64);
  }
}

TEST_CASE("attention of few queries: parts of several tiles of keys") {
  Generator random(test_seed(13));
  const AttentionCase c = simple_case(270, 1, 330, 1, 1, 16, 16, random);  // two parts of three tiles each
  for (const DType type : {DType::f32, DType::bf16}) check_path(gpu_path("split", type), c, random);
}

TEST_CASE("attention: widths that several blocks share, and packed sequences") {
  Generator random(test_seed(12));
  check_gpu(attention_with({}), attention_inputs(3, 70, 300, 300, false, random), random);
  AttentionOptions options;
  options.query_starts = integers({0, 20, 90}, {3});
  options.key_lengths = integers({15, 70}, {2});
  options.window_before = 30;
  check_gpu(attention_with(options), {host_normal({1, 90, 3 * 40 + 36}, random)}, random);
}
TEST_CASE("attention in plain operations: visible pairs of masks") {
  Generator random(test_seed(13));
  const std::vector<Tensor> in = attention_inputs(20, 30, 8, 8, false, random);
  AttentionOptions options;
  options.causal = true;
  for (const Tensor& mask : {Tensor(), random_mask({2, 20, 30}, random)}) {
    options.mask = mask;
    check_gpu(
        [options](const auto& x) {
          return composed_attention(x[0], x[1], x[2], moved(options, x[0].device()));
        },
        in, random);
  }
}
