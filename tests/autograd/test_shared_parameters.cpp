#include <doctest/doctest.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/matmul.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/tests/reference/support.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

using namespace tapeformer;

// Also built with the thread sanitizer: see sanitized.cmake.
TEST_CASE("threads with a tape each share parameters: each gets its own gradients") {
  const Parameter weight(values({1, 2, 3}, {3, 1})), bias(values({0.5}));
  const auto gradients = [&](double number) {
    const Tensor x = Tensor::full({2, 3}, number, DType::f64, Device::cpu()).to(default_device());
    Tape tape;
    const Tensor y = mean(tanh(matmul(x, weight) + bias));
    std::vector<double> all;
    for (const Tensor& gradient : tape.gradients(y * y, {weight, bias}))
      for (const double value : gradient.to_vector<double>()) all.push_back(value);
    return all;
  };
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (std::size_t i = 0; i < wrong.size(); ++i) {
    threads.emplace_back([&, i] {
      const std::vector<double> alone = gradients(0.1 * static_cast<double>(i + 1));
      for (int pass = 0; pass < 2000; ++pass)
        wrong[i] += gradients(0.1 * static_cast<double>(i + 1)) != alone;
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == std::vector<int>(4));
}

TEST_CASE("tensors go from thread to thread, which read them, record them again and drop them") {
  constexpr int kTensors = 200;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Tensor> queue;
  std::vector<double> found;
  std::thread reader([&] {
    for (int i = 0; i < kTensors; ++i) {
      std::unique_lock<std::mutex> lock(mutex);
      changed.wait(lock, [&] { return !queue.empty(); });
      const Tensor x = std::move(queue.front());
      queue.pop_front();
      lock.unlock();
      Tape tape;
      tape.watch(x);
      found.push_back(tape.gradients(sum(x * x), {x})[0].at(0));
    }
  });
  const Parameter weight(values({3}));
  for (int i = 0; i < kTensors; ++i) {
    Tape tape;  // of this thread; its results outlive it
    const Tensor x = (weight * static_cast<double>(i)).detach();
    const std::lock_guard<std::mutex> lock(mutex);
    queue.push_back(x);
    changed.notify_one();
  }
  reader.join();
  for (int i = 0; i < kTensors; ++i) CHECK(found[static_cast<std::size_t>(i)] == 6 * i);
}
