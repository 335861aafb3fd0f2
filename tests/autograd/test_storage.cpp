#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/storage.h>
#include <tapeformer/tests/autograd/kernels/cuda_case.h>

#include <array>
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

using namespace tapeformer;

namespace {

/// Under the address sanitizer every block is an allocation of its own and nothing is counted.
bool pool_counts() {
  const auto before = pool_statistics().in_use_bytes;
  constexpr std::size_t kSize = 1 << 20;  // none that a thread keeps for itself
  void* block = pool_allocate(kSize);
  const bool counts = pool_statistics().in_use_bytes != before;
  pool_free(block, kSize);
  return counts;
}

}  // namespace

TEST_CASE("blocks of every size are aligned, separate and writable") {
  const std::size_t sizes[] = {0,   1,    63,   64,   65,     511,     512,
                               513, 1024, 1025, 4097, 100000, 1 << 20, (1 << 21) + 1};
  std::vector<std::pair<unsigned char*, std::size_t>> blocks;
  for (const std::size_t size : sizes) {
    for (int copy = 0; copy < 3; ++copy) {
      auto* block = static_cast<unsigned char*>(pool_allocate(size));
      CHECK(reinterpret_cast<std::uintptr_t>(block) % 64 == 0);
      std::memset(block, static_cast<int>(blocks.size()), size);
      blocks.emplace_back(block, size);
    }
  }
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const auto [block, size] = blocks[i];
    bool kept = true;
    for (std::size_t k = 0; k < size; ++k) kept = kept && block[k] == static_cast<unsigned char>(i);
    CHECK(kept);
    pool_free(block, size);
  }
}

TEST_CASE("a freed block serves the next request of its size class, and the system is not asked again") {
  if (!pool_counts()) return;
  for (const std::size_t size : {std::size_t{100}, std::size_t{5000}, std::size_t{3} << 20}) {
    void* first = pool_allocate(size);
    const auto requests = pool_statistics().system_requests;
    pool_free(first, size);
    for (int i = 0; i < 100; ++i) {
      void* again = pool_allocate(size - static_cast<std::size_t>(i % 4));
      CHECK(again == first);
      pool_free(again, size - static_cast<std::size_t>(i % 4));
    }
    CHECK(pool_statistics().system_requests == requests);
  }
}

TEST_CASE("statistics count what is handed out, at most an eighth more than was asked for") {
  if (!pool_counts()) return;
  for (std::size_t size = 1; size < (std::size_t{1} << 22); size = size * 5 / 3 + 1) {
    const PoolStatistics before = pool_statistics();
    void* block = pool_allocate(size);
    const PoolStatistics during = pool_statistics();
    const auto taken = static_cast<std::size_t>(during.in_use_bytes - before.in_use_bytes);
    CHECK(taken >= size);
    CHECK(taken <= size + std::max<std::size_t>(64, size / 8 + 1));
    CHECK(during.peak_bytes >= during.in_use_bytes);
    CHECK(during.held_bytes >= during.in_use_bytes);
    pool_free(block, size);
    CHECK(pool_statistics().in_use_bytes == before.in_use_bytes);
  }
}

TEST_CASE("blocks freed by another thread come back, and threads that end give back what they kept") {
  if (!pool_counts()) return;
  constexpr std::size_t kSizes[] = {64, 200, 3000, 8192};
  constexpr int kBlocks = 100, kRounds = 50;
  const auto round = [&] {
    for (const std::size_t size : kSizes) {
      std::vector<void*> blocks;
      for (int i = 0; i < kBlocks; ++i) blocks.push_back(pool_allocate(size));
      std::thread([&] {
        for (void* block : blocks) pool_free(block, size);
      }).join();
    }
  };
  round();
  const PoolStatistics before = pool_statistics();
  for (int i = 0; i < kRounds; ++i) round();
  CHECK(pool_statistics().in_use_bytes == before.in_use_bytes);
  CHECK(pool_statistics().held_bytes == before.held_bytes);
  CHECK(pool_statistics().system_requests == before.system_requests);
}

TEST_CASE("what a thread keeps for itself does not grow with what it frees") {
  if (!pool_counts()) return;
  // The first thread allocates and the second one frees, with at most kQueue blocks between them.
  constexpr std::size_t kSize = 1000, kQueue = 64;
  constexpr int kBlocks = 10000;
  std::array<std::atomic<void*>, kQueue> queue{};
  const auto pass_on = [&](int blocks) {
    std::thread second([&] {
      for (int i = 0; i < blocks; ++i) {
        void* block = nullptr;
        while ((block = queue[static_cast<std::size_t>(i) % kQueue].exchange(nullptr)) == nullptr)
          std::this_thread::yield();
        pool_free(block, kSize);
      }
    });
    for (int i = 0; i < blocks; ++i) {
      std::atomic<void*>& place = queue[static_cast<std::size_t>(i) % kQueue];
      while (place.load() != nullptr) std::this_thread::yield();
      place.store(pool_allocate(kSize));
    }
    second.join();
  };
  const PoolStatistics before = pool_statistics();
  pass_on(kBlocks);
  const PoolStatistics after = pool_statistics();
  CHECK(after.in_use_bytes == before.in_use_bytes);
  // Those of the queue, and of two batches of 16 in each thread, all of 1 KiB: less than a chunk.
  CHECK(after.held_bytes - before.held_bytes <= 2 << 20);
}

TEST_CASE("of one thread the peak is exact, of several it is not too low") {
  if (!pool_counts()) return;
  constexpr std::size_t kSmall = 4096, kLarge = 1 << 20;
  const PoolStatistics before = pool_statistics();
  // More than was ever in use, of large blocks, and then small ones beside them, which are dropped before
  // the next large one comes.
  std::vector<void*> large, small;
  while (pool_statistics().in_use_bytes <= before.peak_bytes) large.push_back(pool_allocate(kLarge));
  CHECK(pool_statistics().peak_bytes == pool_statistics().in_use_bytes);
  for (int again = 0; again < 2; ++again) {  // the second time they come from the thread's own
    small.clear();
    for (int i = 0; i < 3; ++i) small.push_back(pool_allocate(kSmall));
    for (void* block : small) pool_free(block, kSmall);
    if (again == 0) large.push_back(pool_allocate(kLarge));
  }
  const std::int64_t in_use = pool_statistics().in_use_bytes;
  pool_free(large.back(), kLarge);
  large.back() = pool_allocate(kLarge);
  CHECK(pool_statistics().in_use_bytes == in_use);
  CHECK(pool_statistics().peak_bytes == in_use + 3 * static_cast<std::int64_t>(kSmall));

  std::thread([&] {
    for (void*& block : small) block = pool_allocate(kSmall);
    void* another = pool_allocate(kSmall);
    CHECK(pool_statistics().peak_bytes == in_use + 4 * static_cast<std::int64_t>(kSmall));
    pool_free(another, kSmall);
  }).join();
  CHECK(pool_statistics().in_use_bytes == in_use + 3 * static_cast<std::int64_t>(kSmall));
  for (void* block : small) pool_free(block, kSmall);
  for (void* block : large) pool_free(block, kLarge);
  CHECK(pool_statistics().in_use_bytes == before.in_use_bytes);
}

TEST_CASE("tensors of a thread that outlive its cache go back too") {
  if (!pool_counts()) return;
  struct Late {
    void* block = nullptr;
    ~Late() { pool_free(block, 300); }
  };
  const auto before = pool_statistics().in_use_bytes;
  std::thread([] {
    thread_local Late late;  // destroyed after the cache, which is made by the first allocation
    late.block = pool_allocate(300);
  }).join();
  CHECK(pool_statistics().in_use_bytes == before);
}

TEST_CASE("a request that the system refuses is not counted, and the message has the sizes") {
  if (!pool_counts()) return;
  const PoolStatistics before = pool_statistics();
  CHECK_THROWS_WITH_AS(pool_allocate(std::size_t{1} << 60),
                       doctest::Contains("the system does not have 1099511627776 MiB left; held="),
                       DeviceError);
  CHECK(pool_statistics().in_use_bytes == before.in_use_bytes);
  CHECK(pool_statistics().held_bytes == before.held_bytes);
}

TEST_CASE("a handle frees its object with the last copy") {
  static int alive = 0;
  struct Counted : Pooled {
    Counted() { ++alive; }
    ~Counted() { --alive; }
  };
  Handle<Counted> first(new Counted);
  CHECK(first.is_sole());
  {
    const Handle<Counted> second = first;
    CHECK(!first.is_sole());
    CHECK(second.get() == first.get());
  }
  CHECK(first.is_sole());
  Handle<Counted> moved = std::move(first);
  CHECK(!first);
  CHECK(moved.is_sole());
  moved = Handle<Counted>();
  CHECK(alive == 0);
  CHECK(!moved.is_sole());
}

TEST_CASE("a GPU's memory belongs to a storage as long as that lives") {
  if (!has_gpu()) return;
  const auto in_use = [] { return cuda::memory_statistics(0).in_use_bytes; };
  const auto before = in_use();
  {
    const Handle<Storage> storage(new Storage(1000, Device::cuda(0)));
    const Handle<Storage> for_upload(new Storage(Storage::ForUpload{500, Device::cuda(0)}));
    CHECK(storage->device == Device::cuda(0));
    CHECK(for_upload->device == Device::cuda(0));
    CHECK(for_upload->data != storage->data);
    CHECK(in_use() == before + 1500);
  }
  CHECK(in_use() == before);
  CHECK_THROWS_AS(Storage(std::size_t{1} << 44, Device::cuda(0)), DeviceError);
  CHECK(in_use() == before);
}
