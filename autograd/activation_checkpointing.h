#pragma once

#include <tapeformer/autograd/tape.h>

#include <cstdint>
#include <utility>

namespace tapeformer {
namespace detail {

/// What a body that is running has drawn so far, or is to draw again.
struct Draws {
  PooledVector<std::uint64_t>& numbers;
  bool again;
  std::size_t next = 0;
  Draws* outer = nullptr;
};
inline thread_local Draws* running_draws = nullptr;

/// True where a body runs again; `number` is then what it drew here before.
bool draw_again(std::uint64_t& number);
/// For every body that runs for the first time.
void remember_draw(std::uint64_t number);

Tensor checkpoint(Tensors inputs, ComposedFallback body);

}  // namespace detail

/// `draw()`, a number that differs from call to call, such as that of a layer's next dropout mask. Where
/// checkpoint() runs its body again, it is the number of the first time, and draw() is not called.
template <class F>
std::uint64_t drawn(const F& draw) {
  if (detail::running_draws == nullptr) return draw();
  std::uint64_t number = 0;
  if (!detail::draw_again(number)) number = draw();
  detail::remember_draw(number);
  return number;
}

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
