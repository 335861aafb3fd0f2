#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/linear_attention.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/tests/autograd/kernels/cuda_case.h>

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
  if (kind.decays > 0)
    in.push_back(host_uniform(kind.decays == 1 ? Shape{B, T, H} : Shape{B, T, H, kWidth}, -1, 0, random));
  if (kind.deltas) in.push_back(host_uniform({B, T, H}, 0, 1, random));
  if (kind.starts) in.push_back(host_normal({B, H, kWidth, kValueWidth}, random));
  return in;
}

}  // namespace

TEST_CASE("in bf16, with decays and states in f32, as near as plain operations") {
  Generator random(test_seed(2));
  for (const Kind& kind : kKinds) {
    CAPTURE(kind.decays);
    CAPTURE(kind.deltas);
    std::vector<Tensor> x = inputs_of(kind, 1, 20, 1, random);
    if (kind.decays > 0) x[3] = x[3].to(DType::f32);
    if (kind.starts) x.back() = x.back().to(DType::f32);
    check_bf16(attention_of(kind), {}, x, host_normal({(20 + kWidth) * kValueWidth}, random), 0, DType::f32);
    Tensor last;  // of a call that nothing records, as decoding makes it
    LinearAttentionOptions options;
    options.last_state = &last;
    const std::vector<Tensor> there = on_gpu({x[0], x[1], x[2]}, DType::bf16);
    CHECK(linear_attention(there[0], there[1], there[2], options).dtype() == DType::bf16);
    CHECK(last.dtype() == DType::f32);
  }
}
