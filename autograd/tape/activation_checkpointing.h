#pragma once

#include <tapeformer/autograd/tape/tape.h>

#include <utility>

namespace tapeformer {
namespace detail {

Tensor checkpoint(Tensors inputs, ComposedFallback body);

}  // namespace detail

/// y = body(), with only the inputs kept on the tape: a reverse pass records the body again and goes back
/// through it. The results are the same to the last bit, at the cost of a second forward pass.
/// `inputs` are the tensors that the body captures and the tape tracks; parameters need not be named.
/// All that the body refers to must live until the pass. The body must compute the same again: draws from
/// Generators and Dropout layers are repeated, and everything else that it reads must be unchanged. It must
/// have no effect except y. Without a recording tape it runs once.
/// Throws:  TapeError, in the pass, if the body draws differently or returns another shape
/// Source:  Chen et al. 2016, arXiv:1604.06174
template <class F>
Tensor checkpoint(Tensors inputs, F&& body) {
  if (Tape::current() == nullptr) return body();
  return detail::checkpoint(inputs, ComposedFallback::of(std::forward<F>(body)));
}

}  // namespace tapeformer
