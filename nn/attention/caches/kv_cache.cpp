#include <tapeformer/autograd/dispatch.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/autograd/kernels/cache.h>
#include <tapeformer/autograd/kernels/shape.h>
#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/nn/attention/caches/contiguous_cache.h>
#include <tapeformer/nn/attention/caches/paged_cache.h>
#include <tapeformer/nn/attention/caches/state_cache.h>

namespace tapeformer {

CacheStep step_to(const Tensor& positions) {
  const Tensor lengths = Tensor::empty({positions.size(0)}, DType::i32, positions.device());
  dispatch_on("kv_cache", positions.device(), [&](auto on) {
    kernels::lengths_up_to(on, lengths.elements(), positions.address<std::int32_t>(),
                           lengths.address<std::int32_t>());
  });
  return {positions, lengths};
}

Tensor KvCache::lengths(Device device) const {
  if (step_.lengths.defined()) return step_.lengths;
  return Tensor::full({rows()}, static_cast<double>(length()), DType::i32, device);
}

void KvCache::copy_tokens(Index rows, Index count, const Tensor& x, Index length_x, Index from,
                          const Tensor& y, Index length_y, Index to) {
  const Index width = y.size(2);
  dispatch("kv_cache", operands(x, y), [&](auto on, auto* source, auto* target) {
    kernels::copy_columns(on, rows, count * width, length_x * width, from * width, length_y * width,
                          to * width, source, target);
  });
}

void KvCache::put_step(const Tensor& keys, const Tensor& values, const Tensor& cached_keys,
                       const Tensor& cached_values) const {
  require_same_device("kv_cache", "positions", step_.positions, keys);
  const kernels::TokenPlaces places{rows(), cached_keys.size(1), widths_.key, widths_.value,
                                    step_.positions.address<std::int32_t>()};
  dispatch("kv_cache", operands(keys, values, cached_keys, cached_values),
           [&](auto on, auto* fresh_keys, auto* fresh_values, auto* keys_there, auto* values_there) {
             kernels::put_tokens(on, places, fresh_keys, fresh_values, keys_there, values_there);
           });
}

void KvCache::check_append(const Tensor& keys, const Tensor& values, const Tensor& cached) const {
  const auto got = [&] {
    return format("; got keys={}{} for key width {}, value width {}{}", keys.describe(),
                  values.defined() ? ", values=" + values.describe() : "", widths_.key, widths_.value,
                  rows() > 0 ? ", " + number_of(rows(), "row") + " of " + number_of(length(), "token") : "");
  };
  const bool fits = keys.rank() == 3 && keys.size(2) == widths_.key &&
                    values.defined() == (widths_.value > 0) &&
                    (!values.defined() || values.shape() == Shape{keys.size(0), keys.size(1), widths_.value});
  if (!fits) throw ShapeError("[kv_cache] keys and values must be [rows, tokens, width]" + got());
  if (rows() > 0 && keys.size(0) != rows())
    throw ShapeError("[kv_cache] the number of rows must stay the same" + got() +
                     "; try reorder() or clear()");
  if (capacity_ > 0 && length() + keys.size(1) > capacity_)
    throw ShapeError("[kv_cache] a row must not hold more than " + number_of(capacity_, "token") + got() +
                     "; try a larger capacity");
  const DType type = cached.defined() ? cached.dtype() : keys.dtype();
  if (!is_floating(type) || keys.dtype() != type || (values.defined() && values.dtype() != type))
    throw DTypeError(
        format("[kv_cache] keys and values must be of one floating type, here {}", name_of(type)) + got());
  const Tensor both[] = {keys, values};
  if (tape_for("kv_cache", both, values.defined() ? 2 : 1) != nullptr)
    throw TapeError("[kv_cache] cached keys and values have no gradient" + got() +
                    "; try without a cache, or NoGradGuard");
}

void KvCache::reorder(const std::vector<std::int32_t>& order) {
  if (rows() == 0) return;
  for (const std::int32_t row : order)
    if (row < 0 || row >= rows())
      throw ShapeError(format("[kv_cache] reorder takes existing rows; got row {} of {}", row, rows()));
  order.empty() ? clear() : pick(order);
}

std::unique_ptr<KvCache> make_cache(const CacheConfig& config, const CacheWidths& widths) {
  if (widths.state > 0) return std::make_unique<StateCache>(widths);
  if (config.capacity < 0 || config.block_size < 1 || widths.key < 1 || widths.value < 0)
    throw Error(
        format("[kv_cache] block_size and key width must be positive, capacity and value width not negative; "
               "got block_size={}, capacity={}, key={}, value={}",
               config.block_size, config.capacity, widths.key, widths.value));
  if (config.kind == CacheKind::paged) return std::make_unique<PagedCache>(config, widths);
  return std::make_unique<ContiguousCache>(config, widths);
}

}  // namespace tapeformer
