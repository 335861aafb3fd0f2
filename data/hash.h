#pragma once

#include <tapeformer/autograd/shape.h>

#include <cstdint>
#include <string_view>

namespace tapeformer {

/// One round of SplitMix64, a bijection of 64-bit integers that looks random. Unlike the distributions of
/// <random>, it gives the same values with every standard library.
/// Source:  Steele, Lea and Flood 2014, "Fast splittable pseudorandom number generators"
constexpr std::uint64_t mix_bits(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/// A random number that is a pure function of (seed, counter).
constexpr std::uint64_t mix_bits(std::uint64_t seed, std::uint64_t counter) {
  return mix_bits(mix_bits(seed) ^ (counter * 0xd1342543de82ef95u));
}

/// `bits` scaled to [0, size); size < 2^63.
/// Source:  Lemire 2019, arXiv:1805.10941 (without the rejection: the bias is below size / 2^64)
constexpr std::uint64_t bounded(std::uint64_t bits, std::uint64_t size) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::uint64_t>((static_cast<Wide>(bits) * size) >> 64);
}

/// The place of `index` in a shuffled [0, size), without a table: a Feistel network permutes the next power
/// of four, and is applied again to results outside [0, size).
/// Source:  Black and Rogaway 2002, "Ciphers with arbitrary finite domains"
constexpr Index shuffled(Index index, Index size, std::uint64_t seed) {
  constexpr int kRounds = 8;
  int half = 0;
  while ((Index{1} << (2 * half)) < size) ++half;
  const std::uint64_t mask = (std::uint64_t{1} << half) - 1;
  do {
    std::uint64_t left = static_cast<std::uint64_t>(index) >> half,
                  right = static_cast<std::uint64_t>(index) & mask;
    for (int round = 0; round < kRounds; ++round) {
      const std::uint64_t mixed = left ^ (mix_bits(seed + static_cast<std::uint64_t>(round), right) & mask);
      left = right;
      right = mixed;
    }
    index = static_cast<Index>(left << half | right);
  } while (index >= size);
  return index;
}

/// FNV-1a, the same on every machine (std::hash is not).
constexpr std::uint64_t hash_text(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

}  // namespace tapeformer
