#pragma once

#include <tapeformer/autograd/tape.h>

#include <utility>

namespace tapeformer {
namespace detail {

Tensor checkpoint(Tensors inputs, ComposedFallback body);

}  // namespace detail

/// y = body(), of which a tape keeps the inputs alone: a reverse pass runs the body again, recorded, and goes
/// back through that. The same results to the last bit, for the time of a second forward pass; see README.md.
/// `inputs` are the tensors that the body captures and that the tape is to count; parameters need no mention.
/// The body must live up to the pass with all that it refers to, compute the same again (what it draws from
/// Generators and Dropout layers is drawn again; everything else that it reads must not have changed), and
/// leave nothing behind but y: what it computes on the way cannot be used outside. Runs once where nothing is
/// recorded.
/// Throws:  TapeError, in the pass, if the body draws otherwise or another shape comes out
/// Source:  Chen et al. 2016, arXiv:1604.06174
template <class F>
Tensor checkpoint(Tensors inputs, F&& body) {
  if (Tape::current() == nullptr) return body();
  return detail::checkpoint(inputs, ComposedFallback::of(std::forward<F>(body)));
}

}  // namespace tapeformer
