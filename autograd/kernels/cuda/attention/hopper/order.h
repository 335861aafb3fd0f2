#pragma once

#include <tapeformer/autograd/kernels/attention.h>

#include <algorithm>

/// Which block computes which tiles in the Hopper kernels. Plain C++, for the device too.
namespace tapeformer::kernels {

/// All tiles in the order in which they are begun. A unit is a batch entry and a head. Tiles of one index in
/// several units follow each other, the last queries first: with a causal mask these see the most keys. The
/// units are divided into sections, each small enough for its keys and values to stay in the device's L2
/// cache. Every second section, counted from the last one, begins with its first queries instead, so that
/// neighbours always have about the same work. With other masks the order is the same: the host does not know
/// what they let each tile see.
struct TileOrder {
  struct Tile {
    int unit, index;
  };

  constexpr int size() const { return units * tiles; }
  constexpr Tile at(int position) const {
    const int section = position / (units_at_once * tiles), first = section * units_at_once;
    const int width = std::min(units_at_once, units - first), own = position - first * tiles;
    const int last = (units - 1) / units_at_once;
    return {first + own % width, (last - section) % 2 == 0 ? tiles - 1 - own / width : own / width};
  }

  int units, units_at_once, tiles;  // the tiles of a unit
};

inline TileOrder order_of(const AttentionShape& s, Index tile_rows, Index cached_bytes) {
  const Index units = s.batch * s.heads, tiles = (s.queries + tile_rows - 1) / tile_rows;
  const Index bytes = s.batch * s.groups * s.keys * (s.key_width + s.value_width) * Index{sizeof(BFloat16)};
  const Index sections = std::min(units, (bytes + cached_bytes - 1) / cached_bytes);
  const Index units_at_once = (units + sections - 1) / sections;
  return {static_cast<int>(units), static_cast<int>(units_at_once), static_cast<int>(tiles)};
}

/// The position of a block's n-th tile. The blocks take one each, in turn from the first to the last and from
/// the last to the first, so that sums of neighbours' work are about the same.
constexpr int position_of(int n, int block, int blocks) {
  return n * blocks + (n % 2 == 0 ? block : blocks - 1 - block);
}

}  // namespace tapeformer::kernels
