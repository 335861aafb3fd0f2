#pragma once

#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/autograd/storage.h>

#include <cstdint>
#include <string>
#include <utility>

namespace tapeformer {
namespace detail {

/// While it lives, checkpoint() runs a body, whose draws are collected in the first run and repeated later.
struct Draws {
  Draws(PooledVector<std::uint64_t>& drawn, bool repeats)
      : numbers(drawn), again(repeats), outer(std::exchange(running, this)) {}
  ~Draws() { running = outer; }
  Draws(const Draws&) = delete;
  Draws& operator=(const Draws&) = delete;

  PooledVector<std::uint64_t>& numbers;
  bool again;
  Draws* outer;
  std::size_t next = 0;
  inline static thread_local Draws* running = nullptr;  // the innermost
};

[[noreturn]] inline void throw_not_the_same(const std::string& what) {
  throw TapeError("[checkpoint] the body must compute the same again; " + what +
                  "; try changing modes and weights after the reverse pass");
}

}  // namespace detail

/// The result of draw(), a number that differs from call to call, such as that of a layer's next dropout
/// mask. When checkpoint() runs its body again, it is the number of the first run, and draw() is not called.
template <class F>
std::uint64_t drawn(const F& draw) {
  detail::Draws* again = detail::Draws::running;
  while (again != nullptr && !again->again) again = again->outer;
  if (again != nullptr && again->next == again->numbers.size())
    detail::throw_not_the_same("it drew " + number_of(again->next, "number") + " at first, and now more");
  const std::uint64_t number = again != nullptr ? again->numbers[again->next++] : draw();
  for (detail::Draws* first = detail::Draws::running; first != again; first = first->outer)
    first->numbers.push_back(number);
  return number;
}

}  // namespace tapeformer
