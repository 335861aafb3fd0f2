#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/tests/autograd/kernels/attention_path_case.h>
#include <tapeformer/tests/autograd/ops/additive_case.h>
#include <tapeformer/tests/emulator/in_order.h>
#include <tapeformer/tests/reference/random_cases.h>
#include <tapeformer/tests/reference/sanitized.h>

#include <algorithm>
#include <cmath>

using namespace tapeformer;

namespace {

const int kCases = random_cases(60);
constexpr DType kSplitTypes[] = {DType::bf16, DType::f32};

/// Attention of query, key and value, and of the weight of additive attention where there are four inputs.
Function attention_of(const AttentionOptions& options, bool is_composed) {
  return [=](const std::vector<Tensor>& in) {
    if (in.size() == 3)
      return (is_composed ? composed_attention : scaled_dot_product_attention)(in[0], in[1], in[2], options);
    return (is_composed ? composed_additive_attention : additive_attention)(in[0], in[1], in[2], in[3],
                                                                            options);
  };
}

Tensor seed_of(const AttentionInputs& in, Generator& random) {
  return host_normal({in.B(), in.T(), in.H(), in.value.size(3)}, random);
}

/// Rows of whole chunks of 16 bytes, as tensor cores need them.
void round_widths(AttentionProblem& p) {
  const auto rounded_bf16 = [](Index width) { return std::min<Index>((width + 7) / 8 * 8, 256); };
  p.key_width = rounded_bf16(p.key_width), p.value_width = rounded_bf16(p.value_width);
}

}  // namespace

TEST_CASE("random attention on a GPU: masked values may hold anything") {
  constexpr Index kMostPairs = 20000;
  for (const DType type : {DType::f64, DType::f32, DType::bf16}) {
    AttentionPath plain = gpu_path("plain", type);
    plain.fit = [](AttentionProblem& p) { limit_pairs(p, kMostPairs); };
    search(plain, kCases);
    AttentionPath split = gpu_path("split", type);
    split.fit = [](AttentionProblem& p) {
      limit_pairs(p, kMostPairs);
      p.queries = std::min<Index>(p.queries, 16), p.keys += p.keys < 129 ? 128 : 0, p.dropout = 0;
      round_widths(p);
    };
    search(split, kCases);
    if (type == DType::bf16) continue;
    const AttentionPath additive = additive_path(std::string("additive cuda ") + name_of(type), type,
                                                 Device::cuda(), additive_attention);
    search(additive, kCases);
  }
  for (AttentionPath tensor_cores : {gpu_path("tensor_cores", DType::bf16), gpu_path("tf32", DType::f32)}) {
    tensor_cores.fit = [](AttentionProblem& p) {
      limit_pairs(p, kMostPairs);
      round_widths(p);
    };
    search(tensor_cores, kCases);
  }
  AttentionPath hopper = gpu_path("hopper", DType::bf16);
  hopper.fit = [](AttentionProblem& p) {
    limit_pairs(p, kMostPairs);
    p.queries += p.queries < 64 ? 64 : 0;
    p.mask = p.key_mask = 0;
    round_widths(p);
    p.key_width = std::min<Index>(p.key_width, 128), p.value_width = std::min<Index>(p.value_width, 128);
    if (std::max(p.key_width, p.value_width) < 40) p.key_width += 40;
  };
  search(hopper, kCases);
}

TEST_CASE("random attention on a GPU: ranges of keys that end one key from a tile's border") {
  for (const std::string kind : {"tensor_cores", "tf32", "hopper"}) {
    const bool is_hopper = kind == "hopper";
    const AttentionPath path = gpu_path(kind, kind == "tf32" ? DType::f32 : DType::bf16);
    const auto check = [&](const AttentionProblem& problem) {
      if (!wrong_with(path, problem).empty()) report_wrong(path, problem);
    };
    AttentionProblem p;
    p.queries = is_hopper ? 64 : 33, p.keys = 260;
    p.key_width = p.value_width = is_hopper ? 40 : 8;
    p.junk = 5;
    for (const Index border : {32, 64, 128}) {
      // With top_left the queries stand at keys 0, 1, ...; without, the last one stands at the last key.
      for (const Index query : {Index{0}, p.queries - 1}) {
        AttentionProblem until = p, from = p;
        until.top_left = 1, until.after = border - 2 - query;
        from.before = p.keys - p.queries + query - (border + 1);
        if (until.after >= 0) check(until);
        check(from);
      }
    }
    // Two sequences, whose keys leave a gap: some begin with a tile of queries.
    p.queries = 128, p.keys = 70, p.sequences = 2, p.own_keys = p.lengths = 1;
    for (p.seed = 1; p.seed <= fewer_if_sanitized(24); ++p.seed) check(p);
  }
}

TEST_CASE("relative distances of a block that end with the first key of a tile") {
  Generator random(test_seed(48));
  for (const DType type : {DType::f32, DType::f64}) {
    for (const Index S : {192, 224}) {  // a block's 256 distances from 1 - S on; tiles of f32 and of f64
      AttentionCase c = simple_case(1, 1, S, 1, 1, 2, 2, random);
      c.options.alignment = CausalAlignment::top_left;
      c.options.relative_bias = random_normal({1, 2 * S - 1}, random);
      check_path(gpu_path("plain", type), c, random);
    }
  }
}

TEST_CASE("wrong starts of queries lead to no distance beyond those of a relative bias") {
  AttentionMasks masks;
  masks.query_starts = on_gpu(integers({0, 2000000000, 5}, {3}));
  masks.key_starts = on_gpu(integers({0, 3, 7}, {3}));
  const Tensor positions = query_positions(masks, 1, 5, 7, Device::cuda());
  const VisibleKeys visible = visible_keys(masks, 1, 5, 7, Device::cuda());
  for (Index t = 0; t < 5; ++t) {
    REQUIRE(visible.from.at(t) < visible.to.at(t));
    CHECK(std::fabs(visible.from.at(t) - positions.at(t)) <= 6);
    CHECK(std::fabs(visible.to.at(t) - 1 - positions.at(t)) <= 6);
  }
}

TEST_CASE("gradients of score modifiers are added to existing ones") {
  Generator random(test_seed(47));
  const AttentionCase c = simple_case(2, 20, 70, 2, 1, 8, 8, random);
  AttentionOptions options = modified_options(20, 70, random);
  const ByTf32 tf32;
  for (const DType type : {DType::f64, DType::f32, DType::bf16}) {
    // The mask of f64 by one block per tile.
    options.mask = random_normal(type == DType::f64 ? Shape{2, 2, 20, 70} : Shape{2, 1, 70}, random);
    const AttentionOptions there = options_on_gpu(options, type);
    const std::vector<Tensor> in = inputs_on_gpu(c.in, type);
    std::vector<Parameter> parameters;
    for (const Tensor& x : joined(in, list_of_modifiers(there))) parameters.emplace_back(x);
    std::vector<Tensor> once;
    for (int pass = 0; pass < 2; ++pass) {
      const std::vector<Tensor> leaves(parameters.begin(), parameters.end());
      Tape tape;
      const Tensor y =
          scaled_dot_product_attention(leaves[0], leaves[1], leaves[2], with_modifiers(there, leaves, 3));
      tape.backward(y, Tensor::full(y.shape(), 1, type, Device::cuda()));
      for (const Parameter& x : parameters) {
        if (pass == 0) once.push_back(readable(x.gradient()) * 2.0);
      }
    }
    for (std::size_t i = 0; i < once.size(); ++i)
      CHECK_BELOW(relative_error(readable(parameters[i].gradient()), once[i]), 1e-14);
  }
}

TEST_CASE("bf16 errors are at most twice, of gradients three times, those of plain operations in bf16") {
  if (is_sanitized()) return;
  for (const bool is_additive : {false, true}) {
    for (const Index width : {16, 64}) {
      CAPTURE(is_additive);
      CAPTURE(width);
      std::vector<double> fused(5), plain(5);  // summed over several inputs, as the largest error is luck
      for (int draw = 0; draw < 4; ++draw) {
        Generator random(test_seed(static_cast<std::uint64_t>(100 + draw)));
        const AttentionInputs in = random_inputs(1, 40, 70, 2, 1, width, 24, random);
        std::vector<Tensor> inputs = in.list(), here;
        if (is_additive) inputs.push_back(host_normal({2, width}, random));
        const std::vector<Tensor> there = on_gpu(inputs, DType::bf16);
        for (const Tensor& x : there) here.push_back(readable(x));
        const Tensor seed = on_gpu(seed_of(in, random).to(DType::bf16));
        AttentionOptions options, options_here;
        options.causal = options_here.causal = draw % 2 == 0;
        options.mask = on_gpu(host_normal({2, 1, 70}, random).to(DType::bf16));
        options_here.mask = readable(options.mask);
        const auto exact = with_gradients(attention_of(options_here, true), here, readable(seed));
        const auto add_errors = [&](bool is_composed, std::vector<double>& errors) {
          const auto got = with_gradients(attention_of(options, is_composed), there, seed);
          for (std::size_t i = 0; i < got.size(); ++i)
            errors[i] += relative_error(readable(got[i]), exact[i]);
        };
        add_errors(false, fused);
        add_errors(true, plain);
      }
      for (std::size_t i = 0; i < (is_additive ? 5 : 4); ++i) {
        CAPTURE(i);
        CHECK(fused[i] > 0);
        CHECK_BELOW(fused[i], (i == 0 ? 2 : 3) * plain[i]);
      }
    }
  }
}

TEST_CASE("the same bits, run after run and in any order of blocks and threads") {
  if (is_sanitized()) return;
  struct Bits {
    const char* kind;
    DType type;
    Index queries, width;
  };
  for (const auto& [kind, type, queries, width] : {Bits{"plain", DType::f32, 70, 16},
                                                   {"plain", DType::bf16, 70, 16},
                                                   {"additive", DType::f32, 70, 16},
                                                   {"split", DType::f32, 3, 40},
                                                   {"split", DType::bf16, 3, 40},
                                                   {"tensor_cores", DType::bf16, 130, 64},
                                                   {"tensor_cores", DType::bf16, 130, 128},
                                                   {"tf32", DType::f32, 130, 64},
                                                   {"tf32", DType::f32, 130, 128},
                                                   {"hopper", DType::bf16, 130, 64}}) {
    const std::string name = kind;
    CAPTURE(name);
    Generator random(test_seed(14));
    AttentionCase c = simple_case(1, queries, 200, 2, 1, width, 24, random);
    if (name != "hopper") c.options = modified_options(queries, 200, random);
    if (name != "split") c.options.dropout = 0.2;
    c.options.causal = true;
    const AttentionPath path = name == "additive"
                                   ? additive_path(name, type, Device::cuda(), additive_attention)
                                   : gpu_path(name, type);
    const Tensor seed = seed_of(c.in, random);
    const OpResult first = path.run(c, seed, {});
    for (const std::uint64_t order : {0, 7}) {
      const InOrder in(order);
      const OpResult again = path.run(c, seed, {});
      CHECK(absolute_error(again.y, first.y) == 0);
      for (std::size_t i = 0; i < first.gradients.size(); ++i)
        CHECK(absolute_error(again.gradients[i], first.gradients[i]) == 0);
    }
  }
}

TEST_CASE("no queries, no keys") {
  Generator random(test_seed(16));
  for (const char* kind : {"plain", "tensor_cores"}) {
    for (const Index queries : {0, 3}) {
      const AttentionCase c = simple_case(2, queries, queries == 0 ? 3 : 0, 2, 1, 8, 8, random);
      const OpResult got = gpu_path(kind, DType::bf16).run(c, seed_of(c.in, random), {});
      for (const Tensor& x : joined({got.y}, got.gradients))
        for (Index i = 0; i < x.elements(); ++i) CHECK(x.at(i) == 0);
    }
  }
}

TEST_CASE("masks on another device are refused, naming both") {
  const Tensor x = Tensor::zeros({2, 3, 1, 4}, DType::f32, Device::cuda());
  AttentionOptions key_mask, mask, lengths;
  key_mask.key_mask = Tensor::full({2, 3}, 1, DType::boolean, Device::cpu());
  mask.mask = Tensor::zeros({3, 3}, DType::f32, Device::cpu());
  lengths.key_lengths = Tensor::zeros({2}, DType::i32, Device::cpu());
  for (const auto& [options, got] : {std::pair{key_mask, "key_mask=bool[2,3]"},
                                     {mask, "mask=f32[3,3]"},
                                     {lengths, "key_lengths=i32[2]"}}) {
    const std::string name = std::string(got).substr(0, std::string(got).find('='));
    const std::string expected = "[scaled_dot_product_attention] " + name +
                                 " must be on the device of the values; got " + got + " on cpu, ";
    const std::string text =
        message_of<DeviceError>([&, &masks = options] { scaled_dot_product_attention(x, x, x, masks); });
    CHECK(text.find(expected) == 0);
    CHECK(text.find("on cuda:0") != std::string::npos);
  }
}

TEST_CASE("a latent that is key and value at once, of many heads, is loaded once, with the same result") {
  for (const DType type : kSplitTypes) {
    for (const Index chunks : {10, 72}) {  // of 16 bytes; 72 fit only when they are loaded once
      const Index width = chunks * 16 / bytes_of(type);
      CAPTURE(width);
      Generator random(test_seed(31));
      AttentionCase c = simple_case(2, 2, 200, 10, 1, width, width, random);
      c.options.causal = true;
      c.options.key_lengths = integers({200, 90}, {2});
      c.in.value = c.in.key.clone();
      check_path(gpu_path("split", type), c, random);
      const Tensor expected = attention_by("tensor_cores", c.in, c.options, type);
      c.in.value = c.in.key;
      const Tensor got = attention_by("tensor_cores", c.in, c.options, type);
      CHECK_BELOW(relative_error(got, expected), type == DType::bf16 ? 0x1p-7 : 1e-5);
      if (chunks == 72 && kernels::shared_room({}) >= 103'680)  // compute capability 8.6 has less
        CHECK(!same_values(got, attention_by("plain", c.in, c.options, type)));
    }
  }
}

TEST_CASE("many parts, some of which see nothing") {
  for (const DType type : kSplitTypes) {
    Generator random(test_seed(32));
    AttentionCase c = simple_case(2, 3, 1500, 2, 1, 16, 16, random);
    c.options.key_lengths = integers({1500, 70}, {2});
    c.options.causal = true;
    c.options.window_before = 400;
    check_path(gpu_path("split", type), c, random);
    c.options.query_mask = booleans({1, 0, 1, 0, 0, 0}, {2, 3});
    check_path(gpu_path("split", type), c, random);
  }
}

TEST_CASE("up to 16 queries of more than 128 keys without dropout are split, others not") {
  Generator random(test_seed(33));
  const auto takes = [&](Index T, Index S, Index D, Index E, double dropout = 0, Index shift = 0) {
    const AttentionCase c = simple_case(1, T, S, 2, 1, D, E, random);
    AttentionOptions options;
    options.dropout = dropout;
    return !same_values(attention_by("tensor_cores", c.in, options, DType::f32, shift),
                        attention_by("plain", c.in, options, DType::f32, shift));
  };
  CHECK(takes(1, 129, 16, 16));
  CHECK(takes(16, 300, 16, 16));
  CHECK(takes(2, 300, 16, 20));
  CHECK_FALSE(takes(17, 300, 16, 16));
  CHECK_FALSE(takes(1, 128, 16, 16));
  CHECK_FALSE(takes(1, 300, 15, 16));
  CHECK_FALSE(takes(1, 300, 16, 18));
  CHECK_FALSE(takes(1, 300, 16, 644));
  CHECK_FALSE(takes(1, 300, 16, 16, 0.1));
  CHECK_FALSE(takes(1, 300, 16, 16, 0, 1));
}
