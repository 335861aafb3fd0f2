#include <tapeformer/tests/emulator/machine.h>

#include <algorithm>

// Products of warpgroups: computed when a thread waits for them, from the contents of shared memory then.
namespace tapeformer::emulator {
namespace {

constexpr unsigned kGroup = 128, kRows = 64, kDepth = 16;
constexpr std::uint32_t kInFlight = 0xFFFFFFFFu;  // a NaN

unsigned bytes_of(std::uint64_t matrix, int field) {
  return static_cast<unsigned>(matrix >> field & 0x3FFFu) << 4;
}
/// Offsets of element k of row i in a matrix along k, and of element i of row k across it.
unsigned offset_along(std::uint64_t matrix, unsigned i, unsigned k) {
  return i / 8 * bytes_of(matrix, 32) + i % 8 * 128 + 2 * k;
}
unsigned offset_across(std::uint64_t matrix, unsigned i, unsigned k) {
  return i / 64 * bytes_of(matrix, 16) + k / 8 * bytes_of(matrix, 32) + k % 8 * 128 + i % 64 * 2;
}

/// The words of a thread's array, which may be gone by now: its stack is still there.
__attribute__((no_sanitize("address"))) std::vector<std::uint32_t> words_at(const void* array,
                                                                            std::size_t count) {
  std::vector<std::uint32_t> words;
  const auto* const from = static_cast<const volatile std::uint32_t*>(array);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t word = from[i];
    words.push_back(word);
  }
  return words;
}

}  // namespace

/// Remembers the registers of products: they must not change until the next product begins.
void HopperBlock::wgmma_fence() {
  Thread& thread = own();
  thread.is_fenced = true;
  for (auto& [registers, fenced] : thread.fenced) fenced.held = words_at(registers, fenced.count);
}

/// Registers that no product has used before are known from here on.
void HopperBlock::require_fenced(const void* registers, std::size_t count) {
  Fenced& fenced = own().fenced[registers];
  if (fenced.count == count && !fenced.held.empty() && fenced.held != words_at(registers, count))
    machine_.fail("a product's registers were changed behind the fence");
  fenced.count = count;
}

void HopperBlock::wgmma(float* d, int columns, std::uint64_t a, const unsigned* registers, std::uint64_t b,
                        bool adds, Place place) {
  Thread& thread = own();
  if (!thread.is_fenced) machine_.fail("a product begins behind a fence that follows the last wait");
  const unsigned number = machine_.running_thread() / kGroup;
  if (number * kGroup + kGroup > machine_.block_threads()) machine_.fail("a warpgroup has 128 threads");
  if (thread.accumulators.count(d) == 0) require_fenced(d, static_cast<std::size_t>(columns) / 2);
  if (registers != nullptr) require_fenced(registers, 4);
  Product product{d, columns, a, b, registers, {}, adds, thread.closed, place};
  if (registers != nullptr) std::copy_n(registers, 4, product.copied.begin());
  thread.products.push_back(product);
  Warpgroup& group = warpgroups_[number];
  if (group.first_agent == kAgents) group.first_agent = make_agents(kGroup / kWarp);
  const std::size_t at = thread.begun++ - group.issued;
  if (at == group.issues.size()) group.issues.emplace_back();
  Issue& issue = group.issues[at];
  if (issue.threads++ == 0)
    issue.known = known();
  else
    issue.known.keep_common(known());
  if (issue.threads == kGroup) {
    touch_product(product, group.first_agent, issue.known);
    group.issues.pop_front();
    ++group.issued;
  }
  InFlight& accumulator = thread.accumulators[d];
  const auto count = static_cast<std::size_t>(columns) / 2;
  if (accumulator.products++ == 0) {
    accumulator.values.assign(d, d + count);
    std::fill_n(d, count, bit_cast<float>(kInFlight));
  }
}

void HopperBlock::wgmma_commit() { ++own().closed; }

/// All its warps read the matrices that lie in shared memory.
void HopperBlock::touch_product(const Product& product, unsigned first_agent, const Knowledge& known) {
  const auto group = static_cast<std::uint32_t>(product.group);
  const std::uint32_t operation =
      accesses_.add({"a product", product.place, first_agent, kGroup / kWarp, group});
  const auto touch = [&](std::uint64_t matrix, unsigned offset) {
    touch_piece(operation, place_of(matrix, offset), false, known);
  };
  const auto columns = static_cast<unsigned>(product.columns);
  for (unsigned k = 0; product.registers == nullptr && k < kDepth; k += 8) {
    for (unsigned m = 0; m < kRows; ++m) touch(product.a, offset_along(product.a, m, k));
    for (unsigned n = 0; n < columns; ++n) touch(product.b, offset_along(product.b, n, k));
  }
  for (unsigned k = 0; product.registers != nullptr && k < kDepth; ++k)
    for (unsigned n = 0; n < columns; n += 8) touch(product.b, offset_across(product.b, n, k));
}

void HopperBlock::wgmma_wait(std::size_t pending, Place place) {
  Thread& thread = own();
  const unsigned number = machine_.running_thread() / kGroup;
  thread.is_fenced = false;
  Warpgroup& group = warpgroups_[number];
  if (thread.closed > pending && group.first_agent != kAgents)
    thread.beside[group.first_agent + machine_.running_thread() % kGroup / kWarp] =
        static_cast<std::uint32_t>(thread.closed - pending);
  if (group.waiting == 0) group.place = place, group.pending = pending;
  if (group.place.line != place.line || group.pending != pending)
    machine_.fail("threads of a warpgroup wait for products at different places; " +
                  machine_.where_threads_are());
  if (++group.waiting < kGroup) {
    machine_.park(&group, {Operation::products, place.file, place.line, 0, 0, 0, 0});
    return;
  }
  group.waiting = 0;
  const auto due = [&](const Thread& of) {
    return std::count_if(of.products.begin(), of.products.end(),
                         [&](const Product& product) { return product.group + pending < of.closed; });
  };
  const auto count = due(thread);
  for (unsigned t = number * kGroup; t < number * kGroup + kGroup; ++t)
    if (due(threads_[t]) != count) machine_.fail("threads of a warpgroup began different products");
  for (auto i = count; i > 0; --i) multiply(number * kGroup);
  machine_.wake(&group);
}

/// The oldest product of the warpgroup.
void HopperBlock::multiply(unsigned first) {
  const Product& product = threads_[first].products.front();
  const auto columns = static_cast<unsigned>(product.columns);
  for (unsigned t = first; t < first + kGroup; ++t) {
    if (threads_[t].products.empty()) machine_.fail("threads of a warpgroup began different products");
    const Product& same = threads_[t].products.front();
    if (same.columns != product.columns || same.a != product.a || same.b != product.b ||
        same.adds != product.adds || same.group != product.group ||
        (same.registers == nullptr) != (product.registers == nullptr))
      machine_.fail("threads of a warpgroup began different products");
    if (same.registers != nullptr && !std::equal(same.copied.begin(), same.copied.end(), same.registers))
      machine_.fail("a product's registers were changed before it was done");
  }
  std::vector<float> a(kRows * kDepth), b(kDepth * columns), c(kRows * columns, 0.0f);
  for (unsigned k = 0; k < kDepth; ++k) {
    for (unsigned n = 0; n < columns; ++n)
      b[k * columns + n] =
          number_at(product.b, product.registers == nullptr ? offset_along(product.b, n, k)
                                                            : offset_across(product.b, n, k));
    for (unsigned m = 0; m < kRows; ++m) {
      const unsigned lane = m % 8 * 4 + k % 8 / 2, part = k / 8 * 2 + m % 16 / 8;
      a[m * kDepth + k] =
          product.registers == nullptr
              ? number_at(product.a, offset_along(product.a, m, k))
              : half_of(threads_[first + m / 16 * kWarp + lane].products.front().copied[part], k % 2);
    }
  }
  for (unsigned m = 0; m < kRows; ++m) {
    for (unsigned k = 0; k < kDepth; ++k) {
      for (unsigned n = 0; n < columns; ++n) c[m * columns + n] += a[m * kDepth + k] * b[k * columns + n];
    }
  }
  for (unsigned t = 0; t < kGroup; ++t) {
    Thread& thread = threads_[first + t];
    const Product done = thread.products.front();
    InFlight& into = thread.accumulators[done.d];
    for (unsigned i = 0; i < columns / 2; ++i) {
      const unsigned lane = t % kWarp, row = t / kWarp * 16 + lane / 4 + i % 4 / 2 * 8,
                     column = i / 4 * 8 + lane % 4 * 2 + i % 2;
      into.values[i] = (done.adds ? into.values[i] : 0.0f) + c[row * columns + column];
    }
    thread.products.erase(thread.products.begin());
    if (--into.products > 0) continue;
    for (unsigned i = 0; i < columns / 2; ++i)
      if (bit_cast<std::uint32_t>(done.d[i]) != kInFlight)
        machine_.fail("an accumulator was changed before its products were done");
    std::copy(into.values.begin(), into.values.end(), done.d);
    thread.accumulators.erase(done.d);
  }
}

}  // namespace tapeformer::emulator
