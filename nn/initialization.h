#pragma once

#include <tapeformer/autograd/random.h>
#include <tapeformer/autograd/tensor.h>

namespace tapeformer {

/// Draws initial values for a weight [Out, In] in place: uniform in +-sqrt(6 / (In + Out)).
/// Source:  Glorot and Bengio 2010
void xavier_uniform(const Tensor& weight, Generator& random);
/// Initialises a packed projection: each block of rows is drawn like a separate weight.
void xavier_uniform_parts(const Tensor& weight, const PooledVector<Index>& rows, Generator& random);
/// Draws PyTorch's initial values for torch.nn.Linear, weight or bias: uniform in +-1 / sqrt(inputs).
void torch_linear_default(const Tensor& values, Index inputs, Generator& random);
/// True for a parameter of a projection that writes into the residual sum; attention's is called "output".
bool writes_residual(const std::string& name);

}  // namespace tapeformer
