#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/linear_attention.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/tests/autograd/kernels/cuda_case.h>

#include <algorithm>

using namespace tapeformer;

namespace {

/// Decays of a token's head (0, 1 or D), whether there is a beta, and whether there is a first state.
struct Kind {
  Index decays;
  bool deltas, starts;
};
constexpr Index kWidth = 6, kValueWidth = 9;
constexpr Kind kKinds[] = {
    {0, false, false}, {kWidth, false, true}, {0, true, false}, {1, true, true}, {kWidth, true, true}};

/// y and the last state, joined.
Function attention_of(const Kind& kind) {
  return [kind](const std::vector<Tensor>& in) {
    LinearAttentionOptions options;
    std::size_t next = 3;
    if (kind.decays > 0) options.log_decay = in[next++];
    if (kind.deltas) options.beta = in[next++];
    if (kind.starts) options.state = in[next++];
    Tensor last;
    options.last_state = &last;
    const Tensor y = linear_attention(in[0], in[1], in[2], options);
    return concat({reshape(cast(y, last.dtype()), {y.elements()}), reshape(last, {last.elements()})}, 0);
  };
}

std::vector<Tensor> inputs_of(const Kind& kind, Index B, Index T, Index H, Generator& random) {
  std::vector<Tensor> in{host_normal({B, T, H, kWidth}, random),
                         affine(host_normal({B, T, H, kWidth}, random), 0.4, 0),
                         host_normal({B, T, H, kValueWidth}, random)};
  const auto uniform = [&](const Shape& shape, double low, double high) {
    return random_uniform(shape, low, high, random).to(Device::cpu());
  };
  if (kind.decays > 0)
    in.push_back(uniform(kind.decays == 1 ? Shape{B, T, H} : Shape{B, T, H, kWidth}, -1, 0));
  if (kind.deltas) in.push_back(uniform({B, T, H}, 0, 1));
  if (kind.starts) in.push_back(host_normal({B, H, kWidth, kValueWidth}, random));
  return in;
}

}  // namespace

TEST_CASE("in bf16, with decays and states in f32, as near as plain operations") {
  Generator random(test_seed(2));
  for (const Kind& kind : kKinds) {
    CAPTURE(kind.decays);
    CAPTURE(kind.deltas);
    const std::vector<Tensor> x = inputs_of(kind, 1, 20, 1, random);
    std::vector<Tensor> there, here;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const bool is_wide = (kind.decays > 0 && i == 3) || (kind.starts && i + 1 == x.size());
      there.push_back(on_gpu(x[i].to(is_wide ? DType::f32 : DType::bf16)));
      here.push_back(readable(there.back()));
    }
    const Function f = attention_of(kind);
    const Tensor seed =
        on_gpu(host_normal({(20 + kWidth) * kValueWidth}, random).to(DType::bf16).to(DType::f32));
    const std::vector<Tensor> exact = with_gradients(f, here, readable(seed)),
                              plain = with_gradients(f, there, seed, true),
                              got = with_gradients(f, there, seed);
    CHECK_BELOW(relative_error(readable(got[0]), exact[0]), 0x1p-8);
    for (std::size_t i = 0; i < got.size(); ++i) {
      CAPTURE(i);
      CHECK(got[i].dtype() == (i == 0 ? DType::f32 : there[i - 1].dtype()));
      CHECK_BELOW(relative_error(readable(got[i]), exact[i]),
                  3 * std::max(relative_error(readable(plain[i]), exact[i]), 0x1p-9));
    }
    Tensor last;  // of a call that nothing records, as decoding makes it
    LinearAttentionOptions options;
    options.last_state = &last;
    CHECK(linear_attention(there[0], there[1], there[2], options).dtype() == DType::bf16);
    CHECK(last.dtype() == DType::f32);
  }
}
