#pragma once

#include <tapeformer/autograd/random.h>
#include <tapeformer/autograd/tensor.h>

namespace tapeformer {

/// Initial values for a weight [Out, In], drawn in place.
/// Source:  Glorot and Bengio 2010 (Xavier); He et al. 2015, arXiv:1502.01852 (Kaiming)
void xavier_uniform(const Tensor& weight, Generator& random,
                    double gain = 1);  ///< +-gain sqrt(6 / (In + Out))
void xavier_normal(const Tensor& weight, Generator& random,
                   double gain = 1);  ///< std gain sqrt(2 / (In + Out))
/// Initialises a packed projection: each block of that many rows is initialised as a weight of its own.
void xavier_uniform_parts(const Tensor& weight, const PooledVector<Index>& rows, Generator& random);
void kaiming_uniform(const Tensor& weight, Generator& random,
                     double gain = 1.4142135623730951);  ///< +-gain sqrt(3 / In)
void kaiming_normal(const Tensor& weight, Generator& random,
                    double gain = 1.4142135623730951);  ///< std gain / sqrt(In)
/// Normal with mean 0.
void normal(const Tensor& weight, Generator& random, double standard_deviation);
/// PyTorch's default for torch.nn.Linear, weight and bias: uniform in +-1 / sqrt(inputs).
void torch_linear_default(const Tensor& values, Index inputs, Generator& random);

}  // namespace tapeformer
