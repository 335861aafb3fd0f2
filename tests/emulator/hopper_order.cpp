#include <tapeformer/tests/emulator/machine.h>

#include <algorithm>

// The order and the accesses of asynchronous operations. Barriers pass the knowledge of threads that arrive
// to those that wait; a wait for products or stores only tells the thread itself.
namespace tapeformer::emulator {

constexpr unsigned kPiece = 16, kRowBytes = 128;

unsigned HopperBlock::make_agents(unsigned count) {
  agents_ += count;
  if (agents_ > kAgents)
    machine_.fail("the emulator keeps " + std::to_string(kAgents) +
                  " barriers, warps that multiply and threads that store apart; got more");
  return agents_ - count;
}

Knowledge HopperBlock::known() {
  Knowledge known;
  tell(known);
  return known;
}

void HopperBlock::tell(Knowledge& to) {
  const Progress& from = own().beside;
  for (unsigned i = 0; i < kAgents; ++i) to.beside[i] = std::max(to.beside[i], from[i]);
  if (Shadow* shadow = machine_.shadow()) to.threads.add(shadow->release(machine_.running_thread()));
}

void HopperBlock::learn(unsigned thread, const Knowledge& from) {
  Progress& to = threads_[thread].beside;
  for (unsigned i = 0; i < kAgents; ++i) to[i] = std::max(to[i], from.beside[i]);
  if (Shadow* shadow = machine_.shadow()) shadow->acquire(thread, from.threads);
}

void HopperBlock::join_threads() {
  if (!is_used_) return;
  Progress all{};
  for (const Thread& thread : threads_)
    for (unsigned i = 0; i < kAgents; ++i) all[i] = std::max(all[i], thread.beside[i]);
  for (Thread& thread : threads_) thread.beside = all;
}

void HopperBlock::join_lanes(unsigned warp, unsigned mask) {
  if (!is_used_) return;
  Progress all{};
  const auto each_lane = [&](const auto& use) {
    for (unsigned lane = 0; lane < kWarp; ++lane)
      if ((mask >> lane & 1) != 0) use(threads_[warp * kWarp + lane].beside);
  };
  each_lane([&](const Progress& own) {
    for (unsigned i = 0; i < kAgents; ++i) all[i] = std::max(all[i], own[i]);
  });
  each_lane([&](Progress& own) { own = all; });
}

void HopperBlock::publish_to_copies() {
  own();
  if (Shadow* shadow = machine_.shadow()) shadow->publish(machine_.running_thread());
}

std::string HopperBlock::touch(std::size_t offset, std::size_t bytes, Access kind) const {
  if (!is_used_) return "";
  const bool writes = kind != Access::read;
  const unsigned thread = machine_.running_thread();
  const std::string other = accesses_.under_way(offset, bytes, writes, threads_[thread].beside);
  if (other.empty()) return "";
  return "thread " + std::to_string(thread) + (writes ? " writes" : " reads") + " what " + other +
         ", and nothing orders them";
}

void HopperBlock::touch_piece(std::uint32_t operation, std::size_t offset, bool writes,
                              const Knowledge& known) {
  std::string wrong = accesses_.touch(operation, offset, writes, known.beside);
  if (Shadow* shadow = machine_.shadow(); shadow != nullptr && wrong.empty()) {
    wrong = shadow->touch_beside(machine_.shared_memory() + offset, writes, known.threads);
    if (!wrong.empty())
      wrong = accesses_.describe(operation) + (writes ? " writes" : " reads") + " what " + wrong;
  }
  if (!wrong.empty()) machine_.fail(wrong + "; got dynamic shared memory + " + std::to_string(offset));
}

/// A row of a box is one of shared memory, and of global memory as far as the tensor goes. No thread can wait
/// for the writes of a store to global memory.
void HopperBlock::touch_box(const AsyncOperation& operation, const Box& box, bool is_load) {
  const std::uint32_t number = accesses_.add(operation);
  const Knowledge now = known();
  const auto offset = static_cast<std::size_t>(box.shared - machine_.shared_memory());
  for (std::size_t at = 0; at < box.map.box[1] * kRowBytes; at += kPiece)
    touch_piece(number, offset + at, is_load, now);
  if (!watching) return;
  for (std::uint32_t row = 0; row < box.map.box[1]; ++row) {
    const std::int64_t at[] = {box.at[0], std::int64_t{box.at[1]} + row, box.at[2], box.at[3]};
    std::int64_t from = 2 * at[0], columns = static_cast<std::int64_t>(box.map.sizes[0]) - at[0];
    bool is_inside = at[0] >= 0 && columns > 0;
    for (int i = 1; i < 4; ++i) {
      is_inside = is_inside && at[i] >= 0 && at[i] < static_cast<std::int64_t>(box.map.sizes[i]);
      from += at[i] * static_cast<std::int64_t>(box.map.strides[i - 1]);
    }
    if (is_inside && watching)
      machine_.touch(box.map.data + from, static_cast<std::size_t>(std::min<std::int64_t>(2 * columns, 128)),
                     is_load ? Access::read : Access::write, nullptr);
  }
}

}  // namespace tapeformer::emulator
