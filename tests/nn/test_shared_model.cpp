#include <tapeformer/optim/adamw.h>
#include <tapeformer/tests/nn/generation/language_case.h>

#include <condition_variable>
#include <mutex>
#include <thread>

using namespace tapeformer;

namespace {

constexpr Index kRows = 2, kTokens = 6;
constexpr std::size_t kThreads = 3;
using Numbers = std::vector<float>;

Tensor tokens_of(std::uint64_t seed) {
  return Tensor::from(random_tokens(kRows * kTokens, seed), {kRows, kTokens}).to(default_device());
}

void append(Numbers& all, const Tensor& x) {
  const Numbers more = x.to_vector<float>();
  all.insert(all.end(), more.begin(), more.end());
}

/// A thread's results with a model that others use too: states with a cache of its own, and all gradients on
/// a tape of its own.
Numbers use(const DecoderOnly& model, const std::vector<Tensor>& parameters, std::uint64_t seed) {
  Numbers all;
  LayerCaches caches = model.start();
  append(all, model.states(tokens_of(seed), caches));
  append(all, model.states(tokens_of(seed + 1), caches));
  Tape tape;
  for (const Tensor& gradient : tape.gradients(model.loss(tokens_of(seed), tokens_of(seed + 1)), parameters))
    append(all, gradient);
  return all;
}

/// Calls work(i) for each of some threads at once.
template <class Work>
void at_once(const Work& work) {
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < kThreads; ++i) threads.emplace_back([&work, i] { work(i); });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

// Also built with the thread sanitizer: see thread_sanitized.cmake.
TEST_CASE("threads share a model of each kind: all get the numbers of a single thread") {
  for (const LanguageKind& kind : language_kinds()) {
    CAPTURE(kind.name());
    DecoderOnly model = language_model(language_config(kind, 2 * kTokens), DType::f32);
    model.to(default_device());
    std::vector<Tensor> parameters;
    for (const auto& [path, parameter] : model.named_parameters()) parameters.push_back(parameter);
    std::vector<Numbers> together(kThreads);
    at_once([&](std::size_t i) { together[i] = use(model, parameters, 10 * i); });
    for (std::size_t i = 0; i < kThreads; ++i) CHECK(together[i] == use(model, parameters, 10 * i));
  }
}

TEST_CASE("threads train a model in turns: gradients and steps are those of one thread") {
  const auto trained = [](const auto& run) {
    DecoderOnly model = language_model(language_config({"mha", PositionKind::learned}, kTokens), DType::f32);
    model.to(default_device());
    AdamW optimizer(model.parameters());
    run([&](std::size_t i) {
      Tape tape;
      tape.backward(model.loss(tokens_of(i), tokens_of(i + 1)));
      optimizer.step(0.01);
      model.clear_gradients();
    });
    Numbers all;
    for (const auto& [path, parameter] : model.named_parameters()) append(all, parameter);
    return all;
  };
  const Numbers alone = trained([](const auto& step) {
    for (std::size_t i = 0; i < 3 * kThreads; ++i) step(i);
  });
  const Numbers in_turns = trained([](const auto& step) {
    std::mutex mutex;
    std::condition_variable changed;
    std::size_t next = 0;
    at_once([&](std::size_t i) {
      for (std::size_t turn = i; turn < 3 * kThreads; turn += kThreads) {
        std::unique_lock<std::mutex> lock(mutex);
        changed.wait(lock, [&] { return next == turn; });
        step(turn);
        ++next;
        changed.notify_all();
      }
    });
  });
  CHECK(in_turns == alone);
}
