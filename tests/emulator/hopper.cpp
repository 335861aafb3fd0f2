#include <tapeformer/tests/emulator/machine.h>

#include <algorithm>

// Barriers in shared memory, copies of boxes, registers. Never instrumented: copies are checked elsewhere.
namespace tapeformer::emulator {

constexpr int kRegisters = 65536, kBoxRowBytes = 128, kSwizzleBytes = 1024;
// A device aligns dynamic shared memory to no more than 16 bytes.
constexpr unsigned kFirstAddress = 1024 + 16;

void HopperBlock::begin() {
  if (!is_used_) return;
  barriers_.clear();
  named_.clear();
  threads_.clear();
  warpgroups_.clear();
  written_.clear();
  agents_ = 0;
  is_used_ = false;
}

/// The state of the running thread.
HopperBlock::Thread& HopperBlock::own() {
  if (!is_used_) {
    is_used_ = true;
    threads_.resize(machine_.block_threads());
    accesses_.begin_block();
  }
  return threads_[machine_.running_thread()];
}

void HopperBlock::end() {
  if (!is_used_) return;
  for (const Thread& thread : threads_) {
    if (!thread.products.empty()) machine_.fail("a block returned before its products were waited for");
    if (!thread.stores.empty()) machine_.fail("a block returned before its stores were waited for");
  }
  for (const auto& [key, barrier] : barriers_)
    if (!barrier.loads.empty()) machine_.fail("a block returned before its loads were waited for");
  for (const Written& piece : written_) std::copy(piece.bytes.begin(), piece.bytes.end(), piece.global);
}

unsigned HopperBlock::shared_address(const void* shared) const {
  const std::ptrdiff_t offset = static_cast<const char*>(shared) - machine_.shared_memory();
  if (offset < 0 || offset > static_cast<std::ptrdiff_t>(machine_.shared_bytes()))
    machine_.fail("an address is of the dynamic shared memory");
  return static_cast<unsigned>(offset) + kFirstAddress;
}

void HopperBlock::init_barrier(std::uint64_t* barrier, int arrivals) {
  own();
  if (shared_address(barrier) % 8 != 0) machine_.fail("a barrier lies at a multiple of 8 bytes");
  if (arrivals < 1) machine_.fail("a barrier waits for one arrival at least");
  Barrier made{};
  made.arrivals = made.missing = arrivals;
  made.thread = machine_.running_thread();
  made.agent = make_agents(1);
  barriers_[barrier] = made;
}

void HopperBlock::publish_barriers() {
  publish_to_copies();
  for (auto& [key, barrier] : barriers_) {
    if (barrier.thread != machine_.running_thread() || barrier.is_published) continue;
    barrier.is_published = true;
    own().beside[barrier.agent] = 1;
  }
}

HopperBlock::Barrier& HopperBlock::barrier_at(std::uint64_t* barrier) {
  const auto found = barriers_.find(barrier);
  if (found == barriers_.end()) machine_.fail("a barrier was not made");
  if (!found->second.is_published) machine_.fail("a barrier was made and not published");
  if (own().beside[found->second.agent] == 0)
    machine_.fail("a thread comes to a barrier that was made and published, and nothing orders them");
  return found->second;
}

void HopperBlock::end_phase_if_complete(std::uint64_t* key, Barrier& barrier) {
  if (barrier.missing > 0) return;
  if (barrier.bytes < 0)
    machine_.fail("more bytes arrived at a barrier than a phase expects; got " +
                  std::to_string(-barrier.bytes) + " too many");
  if (barrier.bytes > 0) return;
  barrier.completed[barrier.phase++ & 1u] = std::move(barrier.arrived);
  barrier.arrived = {};
  barrier.missing = barrier.arrivals;
  machine_.wake(key);
}

void HopperBlock::arrive(std::uint64_t* key, int bytes) {
  Barrier& barrier = barrier_at(key);
  if (barrier.missing == 0) machine_.fail("more threads arrive at a barrier than a phase expects");
  barrier.bytes += bytes;
  --barrier.missing;
  tell(barrier.arrived);
  end_phase_if_complete(key, barrier);
}

/// Loads happen when a thread would wait for them.
void HopperBlock::wait(std::uint64_t* key, unsigned parity, Place place) {
  if (parity > 1) machine_.fail("a parity is 0 or 1");
  Barrier& barrier = barrier_at(key);
  while ((barrier.phase & 1u) == parity) {
    if (barrier.loads.empty()) {
      machine_.park(key, {Operation::phase, place.file, place.line, 0, 0, 0, 0});
      continue;
    }
    for (const Box& box : barrier.loads) {
      move(box, true);
      barrier.bytes -= std::int64_t{box.map.box[1]} * kBoxRowBytes;
      barrier.arrived.beside[barrier.agent] = box.number + 1;
    }
    barrier.loads.clear();
    end_phase_if_complete(key, barrier);
  }
  learn(machine_.running_thread(), barrier.completed[parity]);
}

void HopperBlock::require_box(const void* shared, const CUtensorMap& map) const {
  const unsigned address = shared_address(shared);
  if (address % kSwizzleBytes != 0)
    machine_.fail("a box that is swizzled lies at a multiple of 1024 bytes of shared memory");
  if (reinterpret_cast<std::uintptr_t>(&map) % 64 != 0)
    machine_.fail("a tensor map lies at a multiple of 64 bytes");
  if (address + map.box[1] * kBoxRowBytes > kFirstAddress + machine_.shared_bytes())
    machine_.fail("a box leaves the dynamic shared memory");
}

void HopperBlock::load_box(void* to, const CUtensorMap& map, std::uint64_t* key, const int (&at)[4],
                           Place place) {
  require_box(to, map);
  Barrier& barrier = barrier_at(key);
  const Box box{map, static_cast<char*>(to), {at[0], at[1], at[2], at[3]}, barrier.begun++};
  touch_box({"a load", place, barrier.agent, 1, box.number}, box, true);
  std::memset(to, 0xFF, map.box[1] * kBoxRowBytes);  // its old contents are undefined
  barrier.loads.push_back(box);
  machine_.wake(key);
}

void HopperBlock::store_box(const CUtensorMap& map, const void* from, const int (&at)[4], Place place) {
  require_box(from, map);
  Thread& thread = own();
  if (thread.storing_agent == kAgents) thread.storing_agent = make_agents(1);
  char* shared = const_cast<char*>(static_cast<const char*>(from));
  thread.stores.push_back({map, shared, {at[0], at[1], at[2], at[3]}, thread.stored++});
  touch_box({"a store", place, thread.storing_agent, 1, thread.stores.back().number}, thread.stores.back(),
            false);
}

/// Shared memory may change now. No thread of the block can know when the numbers reach global memory.
void HopperBlock::finish_stores() {
  Thread& thread = own();
  for (const Box& box : thread.stores) move(box, false);
  if (!thread.stores.empty()) thread.beside[thread.storing_agent] = thread.stored;
  thread.stores.clear();
}

/// Between shared memory, swizzled by its addresses, and the part of the box that lies in the tensor.
void HopperBlock::move(const Box& box, bool to_shared) {
  const CUtensorMap& map = box.map;
  for (std::uint32_t row = 0; row < map.box[1]; ++row) {
    for (std::uint32_t column = 0; column < map.box[0]; ++column) {
      const std::int64_t at[] = {std::int64_t{box.at[0]} + column, std::int64_t{box.at[1]} + row, box.at[2],
                                 box.at[3]};
      bool is_inside = true;
      std::int64_t offset = 2 * at[0];
      for (int i = 0; i < 4; ++i) {
        is_inside = is_inside && at[i] >= 0 && at[i] < static_cast<std::int64_t>(map.sizes[i]);
        if (i > 0) offset += at[i] * static_cast<std::int64_t>(map.strides[i - 1]);
      }
      const unsigned plain = shared_address(box.shared) + row * kBoxRowBytes + 2 * column;
      char* shared = machine_.shared_memory() + (plain ^ (plain >> 7 & 7u) << 4) - kFirstAddress;
      char* global = const_cast<char*>(map.data) + (is_inside ? offset : 0);
      if (to_shared && is_inside) std::memcpy(shared, global, 2);
      if (to_shared && !is_inside) std::memset(shared, 0, 2);
      if (!to_shared && is_inside) written_.push_back({global, {shared[0], shared[1]}});
    }
  }
}

std::size_t HopperBlock::place_of(std::uint64_t matrix, unsigned offset) const {
  if (matrix >> 62 != 1 || (matrix >> 49 & 7u) != 0) machine_.fail("a matrix is swizzled by 128 bytes");
  if ((matrix >> 3 & 7u) != 0 || (matrix >> 32 & 0x3Fu) != 0)
    machine_.fail("the rows of a matrix that is swizzled begin at multiples of 1024 bytes of shared memory");
  const unsigned plain = static_cast<unsigned>((matrix & 0x3FFFu) << 4) + offset;
  const unsigned swizzled = plain ^ (plain >> 7 & 7u) << 4;
  if (swizzled < kFirstAddress || swizzled + 2 > kFirstAddress + machine_.shared_bytes())
    machine_.fail("a matrix leaves the dynamic shared memory");
  return swizzled - kFirstAddress;
}

float HopperBlock::number_at(std::uint64_t matrix, unsigned offset) const {
  std::uint16_t bits;
  std::memcpy(&bits, machine_.shared_memory() + place_of(matrix, offset), 2);
  return bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

int HopperBlock::registers_held() const {
  int held = 0;
  const int at_start = kRegisters / static_cast<int>(machine_.block_threads()) / 8 * 8;
  for (const Thread& thread : threads_) held += thread.registers != 0 ? thread.registers : at_start;
  return held;
}

/// A warpgroup that takes more waits until others have given them up.
void HopperBlock::set_registers(int count, bool more, Place place) {
  int& registers = own().registers;
  const int before =
      registers != 0 ? registers : kRegisters / static_cast<int>(machine_.block_threads()) / 8 * 8;
  if (count % 8 != 0 || count < 24 || count > 256)
    machine_.fail("a thread's registers are a multiple of 8 from 24 to 256; got " + std::to_string(count));
  if (more ? count < before : count > before)
    machine_.fail("registers are taken, or given up; got " + std::to_string(count) + " of " +
                  std::to_string(before));
  while (registers_held() + count - before > kRegisters)
    machine_.park(&threads_, {Operation::registers, place.file, place.line, 0, 0, 0, 0});
  registers = count;
  if (!more) machine_.wake(&threads_);
}

void HopperBlock::meet_at(int id, int threads, bool waits, Place place) {
  own();
  if (id < 1 || id > 15) machine_.fail("named barriers are 1 to 15; got " + std::to_string(id));
  if (threads < 32 || threads % 32 != 0)
    machine_.fail("whole warps meet at a named barrier; got " + std::to_string(threads) + " threads");
  NamedBarrier& barrier = named_[id];
  if (barrier.arrived == 0) barrier.threads = threads;
  if (barrier.threads != threads) machine_.fail("threads expect different numbers at a named barrier");
  tell(barrier.gathered);
  ++barrier.lanes[machine_.running_thread() / kWarp];
  if (waits) barrier.waiting.push_back(machine_.running_thread());
  if (++barrier.arrived == threads) {
    for (const auto& [warp, lanes] : barrier.lanes)
      if (lanes % static_cast<int>(kWarp) != 0)
        machine_.fail("a warp arrives at a named barrier as a whole, and counts as 32 threads; got " +
                      std::to_string(lanes) + " of its threads");
    barrier.lanes.clear();
    barrier.arrived = 0;
    for (const unsigned thread : barrier.waiting) learn(thread, barrier.gathered);
    barrier.waiting.clear();
    barrier.gathered = {};
    machine_.wake(&barrier);
  } else if (waits) {
    machine_.park(&barrier, {Operation::named_barrier, place.file, place.line, 0, 0, 0, 0});
  }
}

HopperBlock& hopper() { return running_machine().hopper(); }

}  // namespace tapeformer::emulator

CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, std::uint32_t rank, void* data,
                                const std::uint64_t* sizes, const std::uint64_t* strides,
                                const std::uint32_t* box, const std::uint32_t* element_strides,
                                CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion, CUtensorMapFloatOOBfill fill) {
  if (type != CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 || rank != 4 || interleave != CU_TENSOR_MAP_INTERLEAVE_NONE ||
      swizzle != CU_TENSOR_MAP_SWIZZLE_128B || fill != CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE ||
      reinterpret_cast<std::uintptr_t>(data) % 16 != 0 || reinterpret_cast<std::uintptr_t>(map) % 64 != 0 ||
      box[0] != 64)
    return CUDA_ERROR_INVALID_VALUE;
  map->data = static_cast<const char*>(data);
  for (std::uint32_t i = 0; i < rank; ++i) {
    if (sizes[i] == 0 || sizes[i] > std::uint64_t{1} << 32 || box[i] == 0 || box[i] > 256 ||
        element_strides[i] != 1 || (i > 1 && box[i] != 1))
      return CUDA_ERROR_INVALID_VALUE;
    map->sizes[i] = sizes[i];
    map->box[i] = box[i];
    if (i == 0) continue;
    if (strides[i - 1] % 16 != 0 || strides[i - 1] == 0 || strides[i - 1] >= std::uint64_t{1} << 40)
      return CUDA_ERROR_INVALID_VALUE;
    map->strides[i - 1] = strides[i - 1];
  }
  return CUDA_SUCCESS;
}
