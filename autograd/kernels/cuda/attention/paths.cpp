#include <tapeformer/autograd/cuda/runtime.h>
#include <tapeformer/autograd/kernels/cuda/attention/paths.h>

#include <cstdlib>
#include <type_traits>

namespace tapeformer::kernels {
namespace {

/// The shared memory of a block, by compute capability, which is 8.0 or higher.
/// Source:  CUDA C++ Programming Guide 13.0, "Technical Specifications per Compute Capability"
int shared_kib(int major, int minor) {
  if (major == 8) return minor == 0 || minor == 7 ? 163 : 99;
  return major < 12 ? 227 : 99;
}

/// The fastest level allowed, as named by TAPEFORMER_ATTENTION.
enum class Level { plain, tensor_cores, hopper };

/// A way to compute attention, by functions as in paths.h.
template <class T>
struct Path {
  Level level;
  bool (*forward)(Cuda, const AttentionShape&, const AttentionOperands<T>&, T*, Wide<T>*);
  bool (*backward)(Cuda, const AttentionShape&, const AttentionOperands<T>&, const T*, const Wide<T>*,
                   const T*, const AttentionGradients<T>&);
};

/// Whether tensor cores may take T, f32 as TF32.
template <class T>
bool may_round() {
  return std::is_same_v<T, BFloat16> || matmul_precision() == MatmulPrecision::tf32;
}

/// In the order in which they are tried. The split kernels have no backward pass.
template <class T>
const std::vector<Path<T>>& paths() {
  static const std::vector<Path<T>> all = [] {
    std::vector<Path<T>> some{{Level::tensor_cores, split_attention_forward<T>, nullptr}};
    if constexpr (std::is_same_v<T, BFloat16>)
      some.push_back({Level::hopper, [](auto... in) { return hopper_attention_forward(in...); },
                      [](auto... in) { return hopper_attention_backward(in...); }});
    if constexpr (!std::is_same_v<T, double>)
      some.push_back({Level::tensor_cores,
                      [](auto... in) { return may_round<T>() && tensor_core_attention_forward<T>(in...); },
                      [](auto... in) { return may_round<T>() && tensor_core_attention_backward<T>(in...); }});
    some.push_back({Level::plain, plain_attention_forward<T>, plain_attention_backward<T>});
    return some;
  }();
  return all;
}

/// Throws:  DeviceError if TAPEFORMER_ATTENTION names no level
template <class T>
Level fastest_allowed(const AttentionOperands<T>& x) {
  const char* set = std::getenv("TAPEFORMER_ATTENTION");
  const std::string name = set == nullptr ? "hopper" : set;
  if (x.weight != nullptr || name == "plain") return Level::plain;  // additive attention has no other kernels
  if (name == "hopper") return Level::hopper;
  if (name == "tensor_cores") return Level::tensor_cores;
  throw DeviceError("[attention] TAPEFORMER_ATTENTION must be hopper, tensor_cores or plain; got " + name +
                    "; try unsetting it");
}

}  // namespace

std::size_t shared_room(Cuda on) {
  const cudaDeviceProp& device = cuda::device_state(on.device).properties;
  return static_cast<std::size_t>(shared_kib(device.major, device.minor)) * 1024;
}

template <class T>
void attention_forward(Cuda on, const AttentionShape& s, const AttentionOperands<T>& x, T* y,
                       Wide<T>* log_sum) {
  const Level fastest = fastest_allowed(x);
  for (const Path<T>& path : paths<T>())
    if (path.level <= fastest && path.forward(on, s, x, y, log_sum)) return;
}

template <class T>
void attention_backward(Cuda on, const AttentionShape& s, const AttentionOperands<T>& x, const T* y,
                        const Wide<T>* log_sum, const T* dy, const AttentionGradients<T>& to) {
  const Level fastest = fastest_allowed(x);
  for (const Path<T>& path : paths<T>())
    if (path.level <= fastest && path.backward != nullptr && path.backward(on, s, x, y, log_sum, dy, to))
      return;
}

template <class T>
void attention_score_gradients(Cuda on, const AttentionShape& s, const AttentionOperands<T>& x, const T* y,
                               const Wide<T>* log_sum, const T* dy, const AttentionScoreGradients<T>& to) {
  AttentionScoreGradients<T> rest = to;
  if constexpr (!std::is_same_v<T, double>) {
    if (to.drelative && may_round<T>() && fastest_allowed(x) >= Level::tensor_cores &&
        tensor_core_relative_gradient(on, s, x, y, log_sum, dy, to.drelative))
      rest.drelative = {};
  }
  if (rest.dbias || rest.drelative || rest.dparameter || rest.dsinks)
    plain_attention_score_gradients(on, s, x, y, log_sum, dy, rest);
}

TAPEFORMER_CUDA_KERNEL(attention_forward);
TAPEFORMER_CUDA_KERNEL(attention_backward);
TAPEFORMER_CUDA_KERNEL(attention_score_gradients);

}  // namespace tapeformer::kernels
