#pragma once

#include <tapeformer/autograd/kernels/write.h>

#include <cstdint>

namespace tapeformer::kernels {

/// Where a token of each row goes in what a cache holds of its tokens, [rows, room, width]: to
/// positions[row], which is within the room. For keys, and for values, of width 0 where there are none.
struct TokenPlaces {
  Index rows = 0, room = 0, key_width = 0, value_width = 0;
  const std::int32_t* positions = nullptr;
};

/// held[r, positions[r]] = fresh[r]
template <class T>
void put_tokens(Cpu, const TokenPlaces& places, const T* keys, const T* values, T* held_keys, T* held_values);
template <class T>
void put_tokens(Cuda, const TokenPlaces& places, const T* keys, const T* values, T* held_keys,
                T* held_values);

/// lengths[r] = positions[r] + 1
void lengths_up_to(Cpu, Index rows, const std::int32_t* positions, std::int32_t* lengths);
void lengths_up_to(Cuda, Index rows, const std::int32_t* positions, std::int32_t* lengths);

}  // namespace tapeformer::kernels
