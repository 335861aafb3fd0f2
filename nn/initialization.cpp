#include <tapeformer/autograd/error.h>
#include <tapeformer/nn/initialization.h>

#include <cmath>
#include <cstring>

namespace tapeformer {

void xavier_uniform(const Tensor& weight, Generator& random) {
  if (weight.rank() != 2)
    throw ShapeError("[initialization] a weight must be [Out, In]; got weight=" + weight.describe());
  const double bound = std::sqrt(6 / static_cast<double>(weight.size(0) + weight.size(1)));
  random.fill_uniform(weight, -bound, bound);
}

void xavier_uniform_parts(const Tensor& weight, const PooledVector<Index>& rows, Generator& random) {
  const Tensor all = Tensor::empty(weight.shape(), weight.dtype(), Device::cpu());
  char* to = static_cast<char*>(all.raw());
  for (const Index count : rows) {
    const Tensor part = Tensor::empty({count, weight.size(1)}, weight.dtype(), Device::cpu());
    xavier_uniform(part, random);
    std::memcpy(to, part.raw(), static_cast<std::size_t>(part.bytes()));
    to += part.bytes();
  }
  weight.copy_from(all);
}

void torch_linear_default(const Tensor& values, Index inputs, Generator& random) {
  const double bound = inputs == 0 ? 0 : 1 / std::sqrt(static_cast<double>(inputs));
  random.fill_uniform(values, -bound, bound);
}

bool writes_residual(const std::string& name) {
  for (const char* projection : {"attention.output.", "feed_forward.down.", "feed_forward.shared.down."})
    if (name.find(projection) != std::string::npos) return true;
  return false;
}

}  // namespace tapeformer
