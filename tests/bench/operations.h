#pragma once

#include <tapeformer/autograd/ops/attention/sparse_attention.h>
#include <tapeformer/nn/attention/attention_kind.h>
#include <tapeformer/tests/bench/operation.h>

#include <algorithm>
#include <map>
#include <set>

namespace tapeformer {

/// y [M, N] = x [M, K] w [N, K]^T + b: itself, or the gradient of x, or that of w.
inline Operation linear_operation(const std::string& which) {
  return {"M K N", [=](const Sizes& n, DType type) {
            const Tensor x = random_tensor({n[0], n[1]}, type), w = random_tensor({n[2], n[1]}, type),
                         b = random_tensor({n[2]}, type);
            const Function f = [=] { return linear(x, w, which == "forward" ? b : Tensor()); };
            const double numbers = static_cast<double>(n[0] * n[1] + n[1] * n[2] + n[0] * n[2]);
            return Work{2 * product(n), numbers,
                        which == "forward" ? forward(f, {x, w, b}) : backward(f, {which == "dgrad" ? x : w})};
          }};
}

/// y [M, N] = x [M, K] times the matrix [N, K] of each row's expert, of E with as many rows each.
inline Operation expert_operation(Pass which) {
  return {"M K N E", [=](const Sizes& n, DType type) {
            const Tensor x = random_tensor({n[0], n[1]}, type), w = random_tensor({n[3], n[2], n[1]}, type),
                         starts = Tensor::empty({n[3] + 1}, DType::i32, Device::cpu());
            for (Index e = 0; e <= n[3]; ++e)
              starts.data<std::int32_t>()[e] = static_cast<std::int32_t>(e * n[0] / n[3]);
            const Tensor there = starts.to(default_device());
            const Function f = [=] { return expert_linear(x, w, there); };
            const double products = 2.0 * static_cast<double>(n[0] * n[1] * n[2]),
                         numbers = static_cast<double>(n[0] * (n[1] + n[2]) + n[1] * n[2] * n[3]);
            const double times = which == Pass::forward ? 1 : 2;
            return Work{times * products, times * numbers, pass(which, f, {x, w})};
          }};
}

/// An operation on one tensor that reads and writes `numbers` numbers for each element.
inline Operation map_operation(const char* sizes, Pass which, double numbers, Tensor (*f)(const Tensor&)) {
  return {sizes, [=](const Sizes& n, DType type) {
            const Tensor x = random_tensor(n.size() == 1 ? Shape{n[0]} : Shape{n[0], n[1]}, type);
            return Work{0, numbers * product(n), pass(which, [=] { return f(x); }, {x})};
          }};
}

inline Operation layer_norm_operation(Pass which) {
  return {"ROWS N", [=](const Sizes& n, DType type) {
            const Tensor x = random_tensor({n[0], n[1]}, type), w = random_tensor({n[1]}, type),
                         b = random_tensor({n[1]}, type);
            const Function f = [=] { return layer_norm(x, w, b); };
            return Work{0, (which == Pass::forward ? 2 : 3) * product(n), pass(which, f, {x, w, b})};
          }};
}

/// The end of a sublayer and the norm before the next: reads both and writes the sum and its norm; the
/// gradient that both share is written once.
inline Operation add_layer_norm_operation(Pass which) {
  return {"ROWS N", [=](const Sizes& n, DType type) {
            const Tensor x = random_tensor({n[0], n[1]}, type), branch = random_tensor({n[0], n[1]}, type),
                         w = random_tensor({n[1]}, type), b = random_tensor({n[1]}, type);
            const Function f = [=] { return add_layer_norm(x, branch, w, b).y; };
            return Work{0, (which == Pass::forward ? 4 : 3) * product(n), pass(which, f, {x, branch, w, b})};
          }};
}

/// Forward and backward at once: logits read, their gradient written.
inline Work cross_entropy_both(const Sizes& n, DType type) {
  const Tensor x = random_tensor({n[0], n[1]}, type), ids = random_ids(n[0], n[1]);
  return {0, 2 * product(n), [=] {
            Tape tape;
            tape.watch(x);
            tape.gradients(cross_entropy(x, ids), {x});
          }};
}

inline Operation rotary_operation(Pass which) {
  return {
      "B T H D", [=](const Sizes& n, DType type) {
        const Tensor x = random_tensor({n[0], n[1], n[2], n[3]}, type), positions = random_ids(n[1], n[1]);
        return Work{0, 2 * product(n), pass(which, [=] { return rotary(x, positions); }, {x})};
      }};
}

inline Work cast(const Sizes& n, DType from, DType to) {
  const Tensor x = random_tensor({n[0]}, from);
  return {0, 0, [=] { x.to(to); }, false, product(n) * static_cast<double>(bytes_of(from) + bytes_of(to))};
}

inline Work column_sums(const Sizes& n, DType type) {
  const Tensor x = random_tensor({n[0], n[1]}, type);
  return {0, product(n), [=] { sum(x, {0}); }, true};
}

inline Operation cross_entropy_operation(Pass which) {
  return {"ROWS V", [=](const Sizes& n, DType type) {
            const Tensor x = random_tensor({n[0], n[1]}, type), ids = random_ids(n[0], n[1]);
            const Function f = [=] { return cross_entropy(x, ids); };
            return Work{0, (which == Pass::forward ? 1 : 2) * product(n), pass(which, f, {x}),
                        which == Pass::forward};
          }};
}

/// Rows of a table that `ids` read; on a GPU each counts once, since its memory is read only once.
inline Index looked_up(const Tensor& ids) {
  if (!ids.device().is_cuda()) return ids.elements();
  const Tensor here = ids.to(Device::cpu());
  const std::int32_t* first = here.data<std::int32_t>();
  return static_cast<Index>(std::set<std::int32_t>(first, first + ids.elements()).size());
}

inline Operation embedding_operation(Pass which) {
  return {"COUNT V C", [=](const Sizes& n, DType type) {
            const Tensor table = random_tensor({n[1], n[2]}, type), ids = random_ids(n[0], n[1]);
            const double rows = static_cast<double>(n[0] * n[2]), all = static_cast<double>(n[1] * n[2]);
            const Function f = [=] { return embedding(table, ids); };
            const auto into = pass(which, f, {table});
            if (which == Pass::forward)
              return Work{0, static_cast<double>(looked_up(ids) * n[2]) + rows, into};
            return Work{0, rows, into, false, all * static_cast<double>(std::max<Index>(4, bytes_of(type)))};
          }};
}

/// Modifiers of the scores of causal attention, or dropout; sinks and a relative bias get a gradient.
enum class Change { sinks, softcap, relative, sigmoid, dropout };

/// Query, key and value packed in one tensor, as in layers.
inline Operation attention_operation(Pass which, bool is_causal, std::optional<Change> change) {
  return {"B H T D", [=](const Sizes& n, DType type) {
            const Tensor packed = random_tensor({n[0], n[2], 3 * n[1] * n[3]}, type);
            const PackedHeads heads{n[1], n[1], n[3], n[3]};
            const DType of_sums = wide(type);
            AttentionOptions options;
            options.causal = is_causal;
            std::vector<Tensor> inputs{packed};
            const auto learned = [&](const Tensor& x) { return inputs.push_back(x), x; };
            if (change == Change::sinks) options.sinks = learned(random_tensor({n[1]}, of_sums));
            if (change == Change::softcap) {
              options.score_function = ScoreFunction::softcap;
              options.score_parameter = Tensor::full({1}, 50, of_sums);
            }
            if (change == Change::relative)
              options.relative_bias = learned(random_tensor({n[1], 2 * n[2] - 1}, of_sums));
            if (change == Change::sigmoid) options.weighting = AttentionWeighting::sigmoid;
            if (change == Change::dropout) options.dropout = 0.1;
            const Function f = [=] { return packed_attention(packed, heads, options); };
            const double flops = (is_causal ? 2 : 4) * product(n) * static_cast<double>(n[2]);
            return which == Pass::forward ? Work{flops, 4 * product(n), forward(f, inputs)}
                                          : Work{2.5 * flops, 8 * product(n), backward(f, inputs)};
          }};
}

/// Causal attention of each query to K blocks of keys, its own included.
inline Operation block_attention_operation(Pass which) {
  return {"B H T D BLOCK K", [=](const Sizes& n, DType type) {
            const Tensor packed = random_tensor({n[0], n[2], 3 * n[1] * n[3]}, type);
            const PackedHeads heads{n[1], n[1], n[3], n[3]};
            AttentionOptions options;
            options.causal = true, options.block_size = n[4], options.block_top_k = n[5];
            const Function f = [=] { return packed_attention(packed, heads, options); };
            double pairs = 0;
            for (Index t = 0; t < n[2]; ++t)
              pairs += static_cast<double>(t % n[4] + 1 + std::min(t / n[4], n[5] - 1) * n[4]);
            const double rows = static_cast<double>(n[0] * n[1] * n[3]),
                         all = rows * static_cast<double>(n[2]);
            return which == Pass::forward ? Work{4 * rows * pairs, 4 * all, forward(f, {packed})}
                                          : Work{10 * rows * pairs, 8 * all, backward(f, {packed})};
          }};
}

/// Causal latent attention of H heads of width D + R and values of width D, or with K < T to the K keys that
/// an indexer of H' heads of width D' chooses, on latents of width L + R, with the indexer's loss.
/// Projections are left out.
inline Operation latent_attention_operation(Pass which) {
  return {"B H T D R L K H' D'", [=](const Sizes& n, DType type) {
            const Index B = n[0], H = n[1], T = n[2], D = n[3], R = n[4], L = n[5], K = n[6];
            const auto tensor = [&](Index heads, Index width) {
              return random_tensor({B, T, heads, width}, type);
            };
            double pairs = 0;
            for (Index t = 0; t < T; ++t) pairs += static_cast<double>(std::min(t + 1, K));
            const double rows = static_cast<double>(B * H) * pairs;
            const auto work = [&](double width, const Function& f, const std::vector<Tensor>& of) {
              return Work{2 * rows * width, 0, pass(which, f, of)};
            };
            const bool is_forward = which == Pass::forward;
            if (K >= T) {
              const std::vector<Tensor> in{tensor(H, D + R), tensor(H, D + R), tensor(H, D)};
              AttentionOptions options;
              options.causal = true;
              const Function f = [=] { return scaled_dot_product_attention(in[0], in[1], in[2], options); };
              return work(static_cast<double>(is_forward ? 2 * D + R : 5 * D + 3 * R), f, in);
            }
            const Tensor query = tensor(H, L + R), latents = random_tensor({B, T, L + R}, type);
            const IndexHeads index{tensor(n[7], n[8]), random_tensor({B, T, n[8]}, type),
                                   random_tensor({B, T, n[7]}, type)};
            const Function f = [=] {
              AttentionMasks masks;
              masks.causal = true;
              const Tensor chosen = choose_keys(index, K, masks);
              Tensor shares;
              const Tensor y = sparse_attention(query, latents, chosen, {L, 0.1, &shares, nullptr});
              const Tensor loss = sum(shares * log_softmax(index_scores(index, chosen)));
              return y + cast(loss, y.dtype());
            };
            return work(static_cast<double>(is_forward ? 2 * L + R : 5 * L + 3 * R), f,
                        {query, latents, index.query, index.key, index.weights});
          }};
}

/// Both passes of a layer of causal self-attention: multi-head, or with its five sizes native sparse.
inline Operation attention_layer_operation(bool is_sparse) {
  return {is_sparse ? "B H T D SPAN STRIDE BLOCK K WINDOW" : "B H T D", [=](const Sizes& n, DType type) {
            AttentionConfig config(is_sparse ? "nsa" : "mha", n[1]);
            config.width = n[1] * n[3], config.rotary = true;
            std::size_t own = 4;
            for (const char* name : {"nsa_span", "nsa_stride", "nsa_block", "nsa_top_k", "nsa_window"})
              if (is_sparse) config.own[name] = static_cast<double>(n[own++]);
            const AttentionCost cost = attention_cost(config, {n[0], n[2], 0, 0, true, 0, type});
            Generator random(1);
            const std::shared_ptr<Attention> layer = make_attention(config, random);
            layer->to(type);
            const Tensor x = random_tensor({n[0], n[2], config.width}, type), dy = x.clone();
            const auto both = [=] {
              Tape tape;
              tape.watch(x);
              AttentionContext context;
              context.causal = true;
              tape.backward((*layer)(x, x, context), dy);
            };
            return Work{static_cast<double>(cost.forward_flops + cost.backward_flops),
                        static_cast<double>(4 * x.elements()), both};
          }};
}

/// The parameters of nanoGPT's model, each with a gradient; for bf16, in f32 with a shadow.
inline std::vector<Parameter> language_model_parameters(const Sizes& n, DType type) {
  const Index layers = n[0], width = n[1], vocabulary = n[2], context = n[3];
  std::vector<Parameter> parameters;
  const auto add_one = [&](const Shape& shape) {
    const DType kept = type == DType::bf16 ? DType::f32 : type;
    Parameter parameter(random_tensor(shape, kept));
    parameter.state()->gradient = random_tensor(shape, kept);
    parameter.set_shadow(type);
    parameter.state()->has_gradient = true;
    parameters.push_back(parameter);
  };
  for (const Shape& shape : {Shape{vocabulary, width}, Shape{context, width}, Shape{width}, Shape{width}})
    add_one(shape);
  for (Index layer = 0; layer < layers; ++layer) {
    for (const Index out : {3 * width, width, 4 * width}) add_one({out, width}), add_one({out});
    add_one({width, 4 * width});
    for (int i = 0; i < 5; ++i) add_one({width});
  }
  return parameters;
}

inline double count_of(const std::vector<Parameter>& parameters) {
  double count = 0;
  for (const Parameter& parameter : parameters) count += static_cast<double>(parameter.value().elements());
  return count;
}

/// Reads the value, the gradient and two moments, writes all but the gradient, and the shadow where there is
/// one.
inline Work adamw_step(const Sizes& n, DType type) {
  const auto optimizer = std::make_shared<AdamW>(language_model_parameters(n, type));
  const double bytes = type == DType::bf16 ? 7 * 4 + 2 : 7 * static_cast<double>(bytes_of(type));
  return {0, 0, [=] { optimizer->step(1e-4); }, true, bytes * count_of(optimizer->parameters())};
}

inline Work norm_of_gradients(const Sizes& n, DType type) {
  const std::vector<Parameter> parameters = language_model_parameters(n, type);
  const double bytes = std::max<double>(4, static_cast<double>(bytes_of(type)));
  return {0, 0, [=] { gradient_norm(parameters); }, true, bytes * count_of(parameters)};
}

inline Work residual_add(const Sizes& n, DType type) {
  const Tensor a = random_tensor({n[0]}, type), b = random_tensor({n[0]}, type);
  return {0, 3 * product(n), forward([=] { return a + b; }, {a, b})};
}

inline Work mask_making(const Sizes& n, DType type) {
  const Tensor mask = Tensor::empty({kernels::dropout_mask_words(n[0])}, DType::i32, Device::cpu());
  const DropoutDraw draw = draw_dropout(0.2, {1, 2, 3});
  return {0, product(n) / 8 / static_cast<double>(bytes_of(type)), [=] {
            kernels::dropout_mask(kernels::Cpu{}, draw.stream, n[0], draw.dropped, mask.data<std::int32_t>());
          }};
}

/// By name.
inline const std::map<std::string, Operation>& operations() {
  static const std::map<std::string, Operation> all = [] {
    std::map<std::string, Operation> made{
        {"linear_forward", linear_operation("forward")},
        {"linear_dgrad", linear_operation("dgrad")},
        {"linear_wgrad", linear_operation("wgrad")},
        {"dropout_mask", {"COUNT", mask_making}},
        {"narrow", {"COUNT", [](const Sizes& n, DType) { return cast(n, DType::f32, DType::bf16); }}},
        {"widen", {"COUNT", [](const Sizes& n, DType) { return cast(n, DType::bf16, DType::f32); }}},
        {"column_sums", {"ROWS N", column_sums}},
        {"cross_entropy_both", {"ROWS V", cross_entropy_both}},
        {"residual_add", {"COUNT", residual_add}},
        {"adamw_step", {"LAYERS C V T", adamw_step}},
        {"gradient_norm", {"LAYERS C V T", norm_of_gradients}}};
    const auto both = [&](const std::string& name, const auto& make) {
      made[name + "_forward"] = make(Pass::forward);
      made[name + "_backward"] = make(Pass::backward);
    };
    const auto map = [&](const std::string& name, const char* sizes, double forward, double backward,
                         Tensor (*f)(const Tensor&)) {
      made[name + "_forward"] = map_operation(sizes, Pass::forward, forward, f);
      made[name + "_backward"] = map_operation(sizes, Pass::backward, backward, f);
    };
    map("gelu", "COUNT", 2, 3, gelu);
    map("gelu_tanh", "COUNT", 2, 3, gelu_tanh);
    map("softmax", "ROWS N", 2, 3, [](const Tensor& x) { return softmax(x); });
    map("dropout", "COUNT", 2, 2, [](const Tensor& x) { return dropout(x, 0.2, {1, 2, 3}); });
    both("layer_norm", layer_norm_operation);
    both("add_layer_norm", add_layer_norm_operation);
    both("rotary", rotary_operation);
    both("cross_entropy", cross_entropy_operation);
    both("embedding", embedding_operation);
    both("expert_linear", expert_operation);
    const auto attention = [](std::optional<Change> change, bool is_causal = true) {
      return [=](Pass which) { return attention_operation(which, is_causal, change); };
    };
    both("attention", attention({}));
    both("full_attention", attention({}, false));
    both("sink_attention", attention(Change::sinks));
    both("softcap_attention", attention(Change::softcap));
    both("relative_attention", attention(Change::relative));
    both("sigmoid_attention", attention(Change::sigmoid));
    both("dropout_attention", attention(Change::dropout));
    both("block_attention", block_attention_operation);
    both("latent_attention", latent_attention_operation);
    made["mha_layer"] = attention_layer_operation(false);
    made["nsa_layer"] = attention_layer_operation(true);
    return made;
  }();
  return all;
}

}  // namespace tapeformer
