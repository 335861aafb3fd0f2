#pragma once

#include <tapeformer/autograd/storage.h>

#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>

namespace tapeformer {

/// A move-only callable whose captures live in the pool.
template <class Signature>
class PooledFunction;
template <class R, class... Arguments>
class PooledFunction<R(Arguments...)> {
 public:
  PooledFunction() = default;
  template <class F>
  static PooledFunction of(F&& function) {
    PooledFunction result;
    result.callable_.reset(new Callable<std::decay_t<F>>(std::forward<F>(function)));
    return result;
  }
  explicit operator bool() const { return callable_ != nullptr; }
  R operator()(Arguments... arguments) const { return callable_->call(arguments...); }

 private:
  struct Base {
    virtual ~Base() = default;
    virtual R call(Arguments... arguments) = 0;
    static void* operator new(std::size_t bytes) { return pool_allocate(bytes); }
    static void operator delete(void* object, std::size_t bytes) { pool_free(object, bytes); }
  };
  template <class F>
  struct Callable final : Base {
    template <class G>
    explicit Callable(G&& g) : function(std::forward<G>(g)) {}
    R call(Arguments... arguments) override { return function(arguments...); }
    F function;
  };
  std::unique_ptr<Base> callable_;
};

}  // namespace tapeformer
