#pragma once

#include <cuda_emulator_tensor_map.h>
#include <tapeformer/tests/emulator/shadow.h>

#include <array>
#include <string>
#include <vector>

namespace tapeformer::emulator {

/// Agents carry out operations next to the threads, one after the other: the products of a warp, the loads of
/// a barrier, the stores of a thread. The number of operations that an agent has done can be known.
constexpr unsigned kAgents = 64;
using Progress = std::array<std::uint32_t, kAgents>;

/// The operations that a thread knows to be complete; barriers pass this on to other threads.
struct Knowledge {
  Progress beside{};
  Known threads;  ///< in kernels whose accesses are seen

  void add(const Knowledge& other);
  void keep_common(const Knowledge& other);
};

/// Done when operation `number` of each of its agents is.
struct AsyncOperation {
  const char* name;
  Place place;
  unsigned first_agent, agents;
  std::uint32_t number;
};

/// The last asynchronous reads and writes of each 16 bytes of a block's dynamic shared memory. They may
/// happen at any time between their start and the moment when a thread knows that they are done.
class AsyncAccesses {
 public:
  void begin_block() { ++block_, operations_.clear(); }
  /// The number of an operation that has begun.
  std::uint32_t add(const AsyncOperation& operation);

  /// It reads or writes the 16 bytes at `offset`, a multiple of 16; its thread knows what is `done`. Returns
  /// the fault; empty: none.
  std::string touch(std::uint32_t operation, std::size_t offset, bool writes, const Progress& done);
  /// A thread does. Returns the operation that may be under way, and its access; empty: none.
  std::string under_way(std::size_t offset, std::size_t bytes, bool writes, const Progress& done) const;
  std::string describe(std::uint32_t operation) const;

 private:
  static constexpr std::size_t kPiece = 16;
  static constexpr std::uint32_t kNone = 0xffffffffu;
  struct Piece {
    std::uint32_t block = 0;  ///< in others: nothing happened here
    std::uint32_t write = kNone;
    std::vector<std::uint32_t> reads;  ///< since then, the last one of each agent
  };

  bool is_done(std::uint32_t operation, const Progress& done) const;
  std::string unordered(const Piece& piece, bool writes, const Progress& done) const;

  std::uint32_t block_ = 0;
  std::vector<AsyncOperation> operations_;  ///< of the block
  std::vector<Piece> pieces_ = std::vector<Piece>(kMaxSharedBytes / kPiece);
};

}  // namespace tapeformer::emulator
