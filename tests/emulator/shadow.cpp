#include <tapeformer/tests/emulator/shadow.h>

#include <algorithm>
#include <limits>

namespace tapeformer::emulator {
namespace {

using Verbs = std::array<const char*, 3>;  // of Access
constexpr Verbs kNow{"reads", "writes", "changes atomically"}, kBefore{"read", "wrote", "changed atomically"};

}  // namespace

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

void Shadow::begin_block(const uint3& block) {
  block_begin_ = ++interval_;
  blocks_.emplace_back(block_begin_, block);
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

inline Shadow::Cell& Shadow::cell(std::uintptr_t address) {
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
inline bool Shadow::before(const Record& old, const Record& now) const {
  if (old.interval() != now.interval()) return old.interval() >= block_begin_;
  if (old.thread() == now.thread()) return true;
  if (old.thread() / kLanes != now.thread() / kLanes) return false;
  const Warp& warp = warps_[now.thread() / kLanes];
  if (warp.interval != now.interval()) return false;
  const unsigned seen = warp.seen[now.thread() % kLanes][old.thread() % kLanes];
  return old.time() < seen || seen == kMostJoins;  // at the end of the count, rather blind than wrong
}

/// False if `now` races with a recorded access, which becomes `other`.
inline bool Shadow::touch_cell(Cell& cell, const Record& now, bool shared, Record& other) const {
  Record* free = nullptr;
  const std::uint32_t oldest = shared ? block_begin_ : launch_begin_;
  for (Record& old : cell.records) {
    if (old.bits == now.bits) return true;
    if (old.interval() < oldest) {
      free = &old;
      continue;
    }
    const bool conflict =
        (old.bytes() & now.bytes()) != 0 && (now.kind() != old.kind() || now.kind() == Access::write);
    // Whatever would race with the old one will race with the new one too.
    const bool replaced =
        (old.bytes() & ~now.bytes()) == 0 && (now.kind() == Access::write || now.kind() == old.kind());
    if (!conflict && !replaced) continue;
    if (before(old, now)) {
      if (!replaced) continue;
      old.bits = 0;
      free = &old;
    } else if (conflict) {
      other = old;
      return false;
    }
  }
  if (free == nullptr) {  // forget a read, if there is one: writes race with more
    free = std::find_if(cell.records.begin(), cell.records.end() - 1,
                        [&](const Record& old) { return old.kind() == Access::read; });
  }
  *free = now;
  return true;
}

std::string Shadow::touch(unsigned thread, const void* address, std::size_t bytes, Access kind, bool shared) {
  const std::uintptr_t begin = reinterpret_cast<std::uintptr_t>(address), end = begin + bytes;
  const Warp& warp = warps_[thread / kLanes];
  const std::uint64_t time = warp.interval == interval_ ? warp.joins[thread % kLanes] : 0;
  const std::uint64_t everywhere =
      std::uint64_t{interval_} << 32 | time << 16 | thread << 6 | static_cast<unsigned>(kind) << 4;
  bool written = false;
  for (std::uintptr_t word = begin & ~std::uintptr_t{3}; word < end; word += 4) {
    const std::uintptr_t from = std::max(begin, word) - word, to = std::min<std::uintptr_t>(end - word, 4);
    const unsigned touched = ((1u << to) - 1) & ~((1u << from) - 1);
    const Record now{everywhere | touched};
    Cell& memory = cell(word);
    Record other{};
    if (!touch_cell(memory, now, shared, other))
      return describe(now, kNow) + " what " + describe(other, kBefore) + ", and nothing orders them";
    if (!shared) continue;
    if (memory.written_in != block_begin_) memory.written_bytes = 0;
    written |= (memory.written_bytes & touched) != 0;
    if (kind == Access::read) continue;
    memory.written_in = block_begin_;
    memory.written_bytes |= touched;
  }
  if (shared && !written && kind != Access::write)
    return describe({everywhere}, kNow) + " what no thread of its block has written yet";
  return "";
}

std::string Shadow::describe(const Record& record, const std::array<const char*, 3>& verbs) const {
  const auto after =
      std::upper_bound(blocks_.begin(), blocks_.end(), record.interval(),
                       [](std::uint32_t interval, const auto& block) { return interval < block.first; });
  const uint3 block = std::prev(after)->second;
  return "thread " + std::to_string(record.thread()) + " of block (" + std::to_string(block.x) + "," +
         std::to_string(block.y) + "," + std::to_string(block.z) + ") " +
         verbs[static_cast<std::size_t>(record.kind())];
}

}  // namespace tapeformer::emulator
