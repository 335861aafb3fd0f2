#include <tapeformer/tests/emulator/machine.h>

#include <algorithm>

// Collective operations: barriers of a block, operations of a warp.
namespace tapeformer::emulator {

void Machine::arrive_at_barrier(Thread& self) {
  if (at_barrier_ == 0) first_ = &self.call;
  const Call& first = *first_;
  if (self.call.operation != first.operation || self.call.line != first.line ||
      (self.call.file != first.file && std::strcmp(self.call.file, first.file) != 0))
    fail("threads of a block meet at different barriers; " + where_threads_are());
  predicates_ += self.call.value != 0;
  if (++at_barrier_ < size_) return;
  const std::uint64_t result = predicates_ != 0;
  at_barrier_ = predicates_ = 0;
  last_barrier_ = first;  // a copy: that thread makes other calls
  if (watched_) shadow_.begin_interval();
  hopper_.join_threads();
  ready_.clear();  // all of them were waiting here
  next_ = 0;
  for (unsigned i = 0; i < size_; ++i) {
    threads_[i].result = result;
    release(threads_[i]);
  }
}

void Machine::arrive_in_warp(Thread& self) {
  const unsigned warp = self.number / kWarp;
  const unsigned lane = self.number % kWarp;
  const unsigned mask = self.call.mask;
  const unsigned lanes = std::min(size_ - warp * kWarp, kWarp);
  const int width = self.call.width;
  if ((mask >> lane & 1) == 0) fail("the mask of a warp operation names its caller; " + where_threads_are());
  if (lanes < kWarp && mask >> lanes != 0)
    fail("the mask of a warp operation names lanes the block has; " + where_threads_are());
  if (width < 1 || width > warpSize || (width & (width - 1)) != 0)
    fail("a shuffle's width is 1, 2, 4, 8, 16 or 32; got " + std::to_string(width));
  waiting_lanes_[warp] |= 1u << lane;
  if ((waiting_lanes_[warp] & mask) != mask) return;
  Thread* const first = &threads_[warp * kWarp];
  for (unsigned other = 0; other < lanes; ++other) {
    if ((mask >> other & 1) == 0) continue;
    if (first[other].call.mask != mask) return;  // in company with others first
    if (first[other].call.operation != self.call.operation)
      fail("lanes of one mask meet at different operations; " + where_threads_are());
  }
  waiting_lanes_[warp] &= ~mask;
  if (self.call.operation == Operation::syncwarp) {
    if (watched_) shadow_.join_lanes(warp, mask);
    hopper_.join_lanes(warp, mask);
  }
  exchange(first, mask);
}

/// Gives each lane of the mask its result.
void Machine::exchange(Thread* lanes, unsigned mask) {
  unsigned votes = 0;
  for (unsigned lane = 0; lane < kWarp; ++lane)
    if ((mask >> lane & 1) != 0 && lanes[lane].call.value != 0) votes |= 1u << lane;
  for (unsigned lane = 0; lane < kWarp; ++lane) {
    if ((mask >> lane & 1) == 0) continue;
    const Call& call = lanes[lane].call;
    const int own = static_cast<int>(lane);
    const int begin = own & ~(call.width - 1);
    const int end = begin + call.width;
    int source = own;
    if (call.operation == Operation::shfl) source = begin + (call.argument & (call.width - 1));
    if (call.operation == Operation::shfl_xor)
      source = (own ^ call.argument) >= end ? own : own ^ call.argument;
    // The value of a lane outside the mask is undefined, and often unused.
    const bool defined = source >= 0 && source < warpSize && (mask >> source & 1) != 0;
    lanes[lane].result = defined ? lanes[source].call.value : ~std::uint64_t{0};
    if (call.operation == Operation::ballot) lanes[lane].result = votes;
    if (call.operation == Operation::share) {
      char* table = in_common_[lanes->number / kWarp].data();
      std::memcpy(table + lane * kSharedStride, reinterpret_cast<const void*>(call.value),
                  static_cast<std::size_t>(call.argument));
      lanes[lane].result = reinterpret_cast<std::uint64_t>(table);
    }
    release(lanes[lane]);
  }
}

}  // namespace tapeformer::emulator
