#pragma once

#include <cuda_emulator_hopper.h>

#include <array>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace tapeformer::emulator {

class Machine;

/// What a block has going on beside its threads: copies of boxes and products, done as late as waits allow.
class HopperBlock {
 public:
  explicit HopperBlock(Machine& machine) : machine_(machine) {}
  void begin();
  /// Throws: Fault if something was begun and never waited for, or more registers were taken than there are
  void end();

  void init_barrier(std::uint64_t* barrier, int arrivals);
  void publish_barriers();
  void arrive(std::uint64_t* barrier, int bytes);
  void wait(std::uint64_t* barrier, unsigned parity, Place place);
  void load_box(void* to, const CUtensorMap& map, std::uint64_t* barrier, const int (&at)[4]);
  void store_box(const CUtensorMap& map, const void* from, const int (&at)[4]);
  void finish_stores();
  void set_registers(int count, bool more);
  void meet_at(int barrier, int threads, bool waits, Place place);
  void wgmma_fence();
  void wgmma(float* d, int columns, std::uint64_t a, const unsigned* registers, std::uint64_t b, bool adds);
  void wgmma_commit();
  void wgmma_wait(std::size_t pending, Place place);
  unsigned shared_address(const void* shared) const;

 private:
  struct Box {
    CUtensorMap map;
    char* shared;
    std::array<int, 4> at;
  };
  struct Barrier {
    int arrivals, missing;  ///< of a phase; still to come in this one
    std::int64_t bytes = 0;
    unsigned phase = 0;
    bool is_published = false;
    unsigned thread;  ///< that made it
    std::vector<Box> loads;
  };
  struct NamedBarrier {
    int threads = 0, arrived = 0;
  };
  /// One product as one thread knows it.
  struct Product {
    float* d;
    int columns;
    std::uint64_t a, b;
    const unsigned* registers;
    std::array<unsigned, 4> copied;
    bool adds;
    std::size_t group;
  };
  /// The true numbers of an accumulator that products are changing; NaN stands there meanwhile.
  struct InFlight {
    std::vector<float> values;
    int products;
  };
  struct Thread {
    std::vector<Product> products;
    std::map<float*, InFlight> accumulators;
    std::size_t closed = 0;  ///< groups
    bool is_fenced = false;
    std::vector<Box> stores;
    int registers = 0;  ///< 0: as at the start
  };
  struct Warpgroup {
    unsigned waiting = 0;
    Place place{};
    std::size_t pending = 0;
  };

  Barrier& barrier_at(std::uint64_t* barrier);
  void end_phase_if_complete(std::uint64_t* key, Barrier& barrier);
  void move(const Box& box, bool to_shared);
  void require_tile(const void* shared) const;
  void multiply(unsigned first_thread);
  /// The 16-bit number at `offset` bytes behind a matrix's beginning, where the swizzle has it.
  float number_at(std::uint64_t matrix, unsigned offset) const;

  Machine& machine_;
  bool is_used_ = false;
  std::map<std::uint64_t*, Barrier> barriers_;
  std::map<int, NamedBarrier> named_;
  std::map<unsigned, Thread> threads_;
  std::map<unsigned, Warpgroup> warpgroups_;
};

}  // namespace tapeformer::emulator
