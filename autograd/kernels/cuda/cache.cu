#include <tapeformer/autograd/kernels/cache.h>
#include <tapeformer/autograd/kernels/cuda/device.h>

namespace tapeformer::kernels {
namespace {

/// Keys and values in one launch: launches cost a step more than copies.
template <class T>
__global__ void put_tokens_kernel(TokenPlaces places, const T* keys, const T* values, T* held_keys,
                                  T* held_values) {
  const Index width = places.key_width + places.value_width;
  for_each_index(places.rows * width, [&](Index i) {
    const Index row = i / width, at = i % width, place = row * places.room + places.positions[row];
    if (at < places.key_width) {
      held_keys[place * places.key_width + at] = keys[row * places.key_width + at];
    } else {
      const Index behind = at - places.key_width;
      held_values[place * places.value_width + behind] = values[row * places.value_width + behind];
    }
  });
}

__global__ void lengths_up_to_kernel(Index rows, const std::int32_t* positions, std::int32_t* lengths) {
  for_each_index(rows, [&](Index row) { lengths[row] = positions[row] + 1; });
}

}  // namespace

template <class T>
void put_tokens(Cuda on, const TokenPlaces& places, const T* keys, const T* values, T* held_keys,
                T* held_values) {
  const Index count = places.rows * (places.key_width + places.value_width);
  launch(on, "put_tokens", put_tokens_kernel<T>, blocks_for(count), places, keys, values, held_keys,
         held_values);
}

void lengths_up_to(Cuda on, Index rows, const std::int32_t* positions, std::int32_t* lengths) {
  launch(on, "lengths_up_to", lengths_up_to_kernel, blocks_for(rows), rows, positions, lengths);
}

TAPEFORMER_CUDA_KERNEL(put_tokens);

}  // namespace tapeformer::kernels
