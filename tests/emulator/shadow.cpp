#include <tapeformer/tests/emulator/shadow.h>

#include <algorithm>
#include <limits>

namespace tapeformer::emulator {
namespace {

using Verbs = std::array<const char*, 3>;  // of Access
// At the end of the count, better blind than wrong.
constexpr std::uint16_t kLastTime = 0xffff;

bool knows(const Known& known, unsigned thread, unsigned time) {
  return time < known.before[thread] || known.before[thread] == kLastTime;
}

/// Keeps what is known of the later interval; in the same one, the choice of two times for each thread.
template <class Choose>
void merge(Known& own, const Known& other, const Choose& choose) {
  if (other.interval < own.interval) return;
  if (other.interval > own.interval) {
    own = other;
    return;
  }
  std::transform(own.before.begin(), own.before.end(), other.before.begin(), own.before.begin(), choose);
}

constexpr Verbs kNow{"reads", "writes", "changes atomically"}, kBefore{"read", "wrote", "changed atomically"};

}  // namespace

void Known::add(const Known& other) {
  merge(*this, other, [](std::uint16_t a, std::uint16_t b) { return std::max(a, b); });
}

void Known::keep_common(const Known& other) {
  merge(*this, other, [](std::uint16_t a, std::uint16_t b) { return std::min(a, b); });
}

void Shadow::begin_launch() {
  if (pages_.size() > kMostPages || interval_ > std::numeric_limits<std::uint32_t>::max() / 2) {
    pages_.clear();
    recent_.fill({});
    known_.fill({});
    interval_ = 0;
  }
  launch_begin_ = interval_ + 1;
  blocks_.clear();
}

void Shadow::begin_block(const uint3& block, unsigned threads) {
  block_begin_ = ++interval_;
  blocks_.emplace_back(block_begin_, block);
  threads_ = threads;
  is_wide_ = false;
  for (unsigned i = 0; i < threads; ++i) published_[i].clear();
}

void Shadow::begin_interval() { ++interval_; }

Known& Shadow::known(unsigned thread) {
  Known& known = known_[thread];
  if (known.interval != interval_) {
    known.interval = interval_;
    known.before.assign(threads_, 0);
  }
  return known;
}

std::uint16_t Shadow::time_of(unsigned thread) const {
  const Known& known = known_[thread];
  return known.interval == interval_ ? known.before[thread] : std::uint16_t{0};
}

const Known& Shadow::release(unsigned thread) {
  is_wide_ = true;
  Known& own = known(thread);
  if (own.before[thread] < kLastTime) ++own.before[thread];
  return own;
}

void Shadow::acquire(unsigned thread, const Known& from) {
  if (from.interval == interval_) known(thread).add(from);
}

void Shadow::publish(unsigned thread) {
  published_[thread].push_back(std::uint64_t{interval_} << 16 | time_of(thread));
  release(thread);
}

void Shadow::join_lanes(unsigned warp, unsigned mask) {
  const unsigned first = warp * kLanes, from = is_wide_ ? 0 : first,
                 to = is_wide_ ? threads_ : std::min(first + kLanes, threads_);
  std::array<std::uint16_t, kThreads> all{};
  for (unsigned a = 0; a < kLanes; ++a) {
    if ((mask >> a & 1) == 0) continue;
    Known& lane = known(first + a);
    if (lane.before[first + a] < kLastTime) ++lane.before[first + a];
    for (unsigned b = from; b < to; ++b) all[b] = std::max(all[b], lane.before[b]);
  }
  for (unsigned a = 0; a < kLanes; ++a)
    if ((mask >> a & 1) != 0) std::copy(&all[from], &all[from] + (to - from), &known(first + a).before[from]);
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

/// Whether the thread of `now` knows `old` to be done; both of this launch.
inline bool Shadow::before(const Record& old, const Record& now) const {
  if (old.interval() != now.interval()) return old.interval() >= block_begin_;
  if (old.thread() == now.thread()) return true;
  const Known& known = known_[now.thread()];
  if (known.interval != now.interval()) return false;
  return knows(known, old.thread(), old.time());
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
    // Any access that would race with the old one will race with the new one too.
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
  const std::uint64_t time = time_of(thread);
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

bool Shadow::is_published(const Record& record, const Known& known) const {
  const std::vector<std::uint64_t>& fences = published_[record.thread()];
  const auto first = std::lower_bound(fences.begin(), fences.end(), record.bits >> 16);
  if (first == fences.end()) return false;
  return *first >> 16 < interval_ || knows(known, record.thread(), *first & 0xffff);
}

std::string Shadow::touch_beside(const void* address, bool writes, const Known& known) {
  const std::uintptr_t begin = reinterpret_cast<std::uintptr_t>(address);
  for (std::uintptr_t word = begin; word < begin + 16; word += 4) {
    Cell& memory = cell(word);
    for (const Record& old : memory.records) {
      if (old.interval() < block_begin_ || (!writes && old.kind() == Access::read)) continue;
      if (old.interval() == interval_ && !knows(known, old.thread(), old.time()))
        return describe(old, kBefore) + ", and nothing orders them";
      if (!is_published(old, known)) return describe(old, kBefore) + " and has not published since";
    }
    if (!writes) continue;
    memory.written_in = block_begin_;
    memory.written_bytes = 15;
  }
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
