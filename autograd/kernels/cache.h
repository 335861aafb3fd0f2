#pragma once

#include <tapeformer/autograd/kernels/write.h>

#include <cstdint>

namespace tapeformer::kernels {

/// The place of each row's new token in a cache's memory of keys or values, [rows, room, width]:
/// positions[row], below `room`. A width is 0 if there are no keys or values.
struct TokenPlaces {
  Index rows = 0, room = 0, key_width = 0, value_width = 0;
  const std::int32_t* positions = nullptr;
};

/// held_keys[r, positions[r]] = keys[r], and likewise for values.
TAPEFORMER_KERNEL(put_tokens, const TokenPlaces& places, const T* keys, const T* values, T* held_keys,
                  T* held_values);

/// lengths[r] = positions[r] + 1
TAPEFORMER_PLAIN_KERNEL(lengths_up_to, Index rows, const std::int32_t* positions, std::int32_t* lengths);

}  // namespace tapeformer::kernels
