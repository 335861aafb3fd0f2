#pragma once

#include <cuda_emulator.h>
#include <cuda_emulator_tensor_map.h>
#include <tapeformer/tests/emulator/async_accesses.h>

#include <array>
#include <cstddef>
#include <deque>
#include <map>
#include <string>
#include <vector>

namespace tapeformer::emulator {

class Machine;

/// The asynchronous work of a block: box copies and products, executed as late as waits allow.
class HopperBlock {
 public:
  explicit HopperBlock(Machine& machine) : machine_(machine) {}
  void begin();
  /// Throws: Fault if something was begun and never waited for
  void end();

  void init_barrier(std::uint64_t* barrier, int arrivals);
  void publish_barriers();
  void arrive(std::uint64_t* barrier, int bytes);
  void wait(std::uint64_t* barrier, unsigned parity, Place place);
  void load_box(void* to, const CUtensorMap& map, std::uint64_t* barrier, const int (&at)[4], Place place);
  void store_box(const CUtensorMap& map, const void* from, const int (&at)[4], Place place);
  void finish_stores();
  void publish_to_copies();
  void set_registers(int count, bool more, Place place);
  void meet_at(int barrier, int threads, bool waits, Place place);
  void wgmma_fence();
  void wgmma(float* d, int columns, std::uint64_t a, const unsigned* registers, std::uint64_t b, bool adds,
             Place place);
  void wgmma_commit();
  void wgmma_wait(std::size_t pending, Place place);
  unsigned shared_address(const void* shared) const;

  /// A barrier of the block; a __syncwarp.
  void join_threads();
  void join_lanes(unsigned warp, unsigned mask);
  /// The running thread touches dynamic shared memory. Returns which operation may be under way there.
  std::string touch(std::size_t offset, std::size_t bytes, Access kind) const;

 private:
  struct Box {
    CUtensorMap map;
    char* shared;
    std::array<int, 4> at;
    std::uint32_t number;  ///< of the loads of its barrier
  };
  struct Barrier {
    int arrivals, missing;  ///< of a phase; still to come in this one
    std::int64_t bytes = 0;
    unsigned phase = 0;
    bool is_published = false;
    unsigned thread;  ///< that made it
    std::vector<Box> loads;
    unsigned agent;  ///< of its loads; its making is the first thing it does
    std::uint32_t begun = 1;
    Knowledge arrived;                   ///< of those who arrived in this phase
    std::array<Knowledge, 2> completed;  ///< in the last phase of each parity
  };
  struct NamedBarrier {
    int threads = 0, arrived = 0;
    Knowledge gathered;
    std::vector<unsigned> waiting;
    std::map<unsigned, int> lanes;  ///< of each warp that have arrived
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
    Place place;
  };
  /// Registers that products have used, and what they held at the last fence.
  struct Fenced {
    std::size_t count;
    std::vector<std::uint32_t> held;
  };
  /// Two bytes of global memory that a store will have written when the block is over.
  struct Written {
    char* global;
    std::array<char, 2> bytes;
  };
  /// The true numbers of an accumulator that products are changing; it holds NaN meanwhile.
  struct InFlight {
    std::vector<float> values;
    int products;
  };
  struct Thread {
    std::vector<Product> products;
    std::map<float*, InFlight> accumulators;
    std::size_t begun = 0, closed = 0;  ///< products, groups
    bool is_fenced = false;
    std::map<const void*, Fenced> fenced;
    std::vector<Box> stores;
    unsigned storing_agent = kAgents;  ///< none yet
    std::uint32_t stored = 0;
    Progress beside{};  ///< what it knows to be done
    int registers = 0;  ///< 0: as at the start
  };
  /// A product that not all threads have begun yet, and the common knowledge of those that have.
  struct Issue {
    unsigned threads = 0;
    Knowledge known;
  };
  struct Warpgroup {
    unsigned waiting = 0;
    Place place{};
    std::size_t pending = 0;
    unsigned first_agent = kAgents;  ///< of its warps; none yet
    std::deque<Issue> issues;        ///< from number `issued` on
    std::size_t issued = 0;
  };

  Barrier& barrier_at(std::uint64_t* barrier);
  void end_phase_if_complete(std::uint64_t* key, Barrier& barrier);
  void move(const Box& box, bool to_shared);
  int registers_held() const;
  void require_fenced(const void* registers, std::size_t count);
  void require_box(const void* shared, const CUtensorMap& map) const;
  unsigned make_agents(unsigned count);
  Thread& own();
  /// The knowledge of the running thread.
  Knowledge known();
  void tell(Knowledge& to);
  void learn(unsigned thread, const Knowledge& from);
  /// 16 bytes of shared memory that an operation reads or writes, begun by a thread that knows `known`.
  void touch_piece(std::uint32_t operation, std::size_t offset, bool writes, const Knowledge& known);
  void touch_box(const AsyncOperation& operation, const Box& box, bool is_load);
  void touch_product(const Product& product, unsigned first_agent, const Knowledge& known);
  void multiply(unsigned first_thread);
  /// The 16-bit number at `offset` bytes after a matrix's beginning, where the swizzle puts it.
  float number_at(std::uint64_t matrix, unsigned offset) const;
  std::size_t place_of(std::uint64_t matrix, unsigned offset) const;

  Machine& machine_;
  bool is_used_ = false;
  std::map<std::uint64_t*, Barrier> barriers_;
  std::map<int, NamedBarrier> named_;
  std::vector<Thread> threads_;
  std::map<unsigned, Warpgroup> warpgroups_;
  AsyncAccesses accesses_;
  std::vector<Written> written_;
  unsigned agents_ = 0;
};

}  // namespace tapeformer::emulator
