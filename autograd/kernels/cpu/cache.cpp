#include <tapeformer/autograd/kernels/cache.h>

#include <algorithm>

namespace tapeformer::kernels {

template <class T>
void put_tokens(Cpu, const TokenPlaces& places, const T* keys, const T* values, T* held_keys,
                T* held_values) {
  const auto put = [](const T* fresh, Index width, Index place, T* held) {
    std::copy(fresh, fresh + width, held + place * width);
  };
  for (Index row = 0; row < places.rows; ++row) {
    const Index place = row * places.room + places.positions[row];
    put(keys + row * places.key_width, places.key_width, place, held_keys);
    if (places.value_width > 0)
      put(values + row * places.value_width, places.value_width, place, held_values);
  }
}

void lengths_up_to(Cpu, Index rows, const std::int32_t* positions, std::int32_t* lengths) {
  std::transform(positions, positions + rows, lengths, [](std::int32_t position) { return position + 1; });
}

TAPEFORMER_CPU_KERNEL(put_tokens);

}  // namespace tapeformer::kernels
