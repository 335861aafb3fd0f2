#include <tapeformer/tests/emulator/shadow.h>

#include <algorithm>
#include <limits>

namespace tapeformer::emulator {

void Shadow::begin_launch() {
  if (pages_.size() > kMostPages || interval_ > std::numeric_limits<std::uint32_t>::max() / 2) {
    pages_.clear();
    recent_.fill({});
    warps_.fill({});
    interval_ = 0;
  }
  launch_begin_ = interval_ + 1;
  blocks_.clear();
}

void Shadow::begin_block() {
  block_begin_ = ++interval_;
  blocks_.emplace_back(block_begin_, blockIdx);
}

void Shadow::begin_interval() { ++interval_; }

void Shadow::join_lanes(unsigned warp_number, unsigned mask) {
  Warp& warp = warps_[warp_number];
  if (warp.interval != interval_) {
    warp = Warp{};
    warp.interval = interval_;
  }
  std::array<std::uint16_t, kLanes> known{};
  for (unsigned a = 0; a < kLanes; ++a) {
    if ((mask >> a & 1) == 0) continue;
    if (warp.joins[a] < kMostJoins) ++warp.joins[a];
    warp.seen[a][a] = warp.joins[a];
    for (unsigned b = 0; b < kLanes; ++b) known[b] = std::max(known[b], warp.seen[a][b]);
  }
  for (unsigned a = 0; a < kLanes; ++a)
    if ((mask >> a & 1) != 0) warp.seen[a] = known;
}

Shadow::Cell& Shadow::cell(std::uintptr_t address) {
  const std::uintptr_t number = address / kPageBytes;
  auto& [recent_number, page] = recent_[number % recent_.size()];
  if (page == nullptr || recent_number != number) {
    std::unique_ptr<Page>& stored = pages_[number];
    if (!stored) stored = std::make_unique<Page>();
    recent_number = number;
    page = stored.get();
  }
  return (*page)[address % kPageBytes / 4];
}

/// Whether everybody sees `old` done when `now` happens; both of this launch.
bool Shadow::before(const Record& old, const Record& now) const {
  if (old.interval < block_begin_) return false;
  if (old.interval < now.interval || old.thread == now.thread) return true;
  const Warp& warp = warps_[now.thread / kLanes];
  const unsigned seen = warp.seen[now.thread % kLanes][old.thread % kLanes];
  return old.thread / kLanes == now.thread / kLanes && warp.interval == now.interval &&
         (old.time < seen || seen == kMostJoins);  // at the end of the count, rather blind than wrong
}

/// False if `now` races with a recorded access, which becomes `other`.
bool Shadow::touch_cell(Cell& cell, const Record& now, bool shared, Record& other) const {
  constexpr auto kRead = static_cast<unsigned>(Access::read), kWrite = static_cast<unsigned>(Access::write);
  Record* free = nullptr;
  for (Record& old : cell.records) {
    if (std::memcmp(&old, &now, sizeof now) == 0) return true;
    if (old.interval < (shared ? block_begin_ : launch_begin_)) {
      free = &old;
    } else if (before(old, now)) {
      // Whatever would race with the old one races with the new one too.
      if ((old.bytes & ~now.bytes) == 0 && (now.kind == kWrite || now.kind == old.kind)) {
        old.interval = 0;
        free = &old;
      }
    } else if ((old.bytes & now.bytes) != 0 && (now.kind != old.kind || now.kind == kWrite)) {
      other = old;
      return false;
    }
  }
  if (free == nullptr) {  // forget a read, if there is one: writes race with more
    free = std::find_if(cell.records.begin(), cell.records.end() - 1,
                        [&](const Record& old) { return old.kind == kRead; });
  }
  *free = now;
  return true;
}

std::string Shadow::touch(unsigned thread, const void* address, std::size_t bytes, Access kind, bool shared) {
  static constexpr const char* kVerbs[] = {"reads", "writes", "changes atomically"};
  static constexpr const char* kOther[] = {"read", "wrote", "changed atomically"};
  const std::uintptr_t begin = reinterpret_cast<std::uintptr_t>(address), end = begin + bytes;
  const Warp& warp = warps_[thread / kLanes];
  Record now{};
  now.interval = interval_;
  now.thread = static_cast<std::uint16_t>(thread & (kThreads - 1));
  now.kind = static_cast<std::uint16_t>(static_cast<unsigned>(kind) & 3u);
  now.time = warp.interval == interval_ ? warp.joins[thread % kLanes] : std::uint16_t{0};
  bool written = false;
  for (std::uintptr_t word = begin & ~std::uintptr_t{3}; word < end; word += 4) {
    const std::uintptr_t from = std::max(begin, word) - word, to = std::min<std::uintptr_t>(end - word, 4);
    const unsigned touched = ((1u << to) - 1) & ~((1u << from) - 1);
    now.bytes = static_cast<std::uint16_t>(touched & 15u);
    Cell& memory = cell(word);
    Record other{};
    if (!touch_cell(memory, now, shared, other))
      return thread_name(now) + " " + kVerbs[now.kind] + " what " + thread_name(other) + " " +
             kOther[other.kind] + ", and nothing orders them";
    if (!shared) continue;
    if (memory.written_in != block_begin_) memory.written_bytes = 0;
    written |= (memory.written_bytes & touched) != 0;
    if (kind == Access::read) continue;
    memory.written_in = block_begin_;
    memory.written_bytes |= touched;
  }
  if (shared && !written && kind != Access::write)
    return thread_name(now) + " " + kVerbs[now.kind] + " what no thread of its block has written yet";
  return "";
}

std::string Shadow::thread_name(const Record& record) const {
  const auto after =
      std::upper_bound(blocks_.begin(), blocks_.end(), record.interval,
                       [](std::uint32_t interval, const auto& block) { return interval < block.first; });
  const uint3 block = std::prev(after)->second;
  return "thread " + std::to_string(record.thread) + " of block (" + std::to_string(block.x) + "," +
         std::to_string(block.y) + "," + std::to_string(block.z) + ")";
}

}  // namespace tapeformer::emulator
