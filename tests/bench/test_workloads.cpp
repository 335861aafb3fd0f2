#include <tapeformer/tests/bench/workloads.h>

#include <doctest/doctest.h>

using namespace tapeformer;

TEST_CASE("a step's operations agree with a count by hand") {
  Workload w;
  w.layers = 2, w.width = 4, w.feed_forward = 8, w.vocabulary = 5, w.batch = 3, w.length = 6;
  // 18 tokens; a causal square of 6 x 6 is half of one, and its scores and sums are 2 products of 4.
  CHECK(w.flops(100) == 6 * 100 * 18 + 3 * 2 * 3 * (2 * 2 * 4 * 6 * 6) / 2);

  w.translates = true, w.source_length = 7;
  // Multiply-adds of one row's forward pass: 7 tokens through the encoder and as the memory of 2 layers ...
  const double encoder = 7 * 2 * (4 * 4 * 4 + 2 * 4 * 8), memory = 7 * 2 * (2 * 4 * 4);
  // ... 6 through the decoder's own attention, queries and output of the other, the network, and the head
  const double decoder = 6 * (2 * (4 * 4 * 4 + 2 * 4 * 4 + 2 * 4 * 8) + 4 * 5);
  const double attention = 2 * (2 * 4 * 7 * 7 + 4 * 6 * 6 + 2 * 4 * 6 * 7);
  CHECK(w.flops(100) == 2 * 3 * 3 * (encoder + memory + decoder + attention));
}

TEST_CASE("a workload goes by its name, with another batch if one is given") {
  // A step of the largest one, by hand: 124,475,904 parameters, 65,536 tokens, 5.4e13 operations.
  const Workload largest = workload_named("gpt2-124m-h200");
  CHECK(largest.flops(124475904) == 6.0 * 124475904 * 65536 + 6.0 * 12 * 64 * 1024 * 1024 * 768);
  CHECK(workload_named("gpt2-124m-1k:1").batch == 1);
  CHECK_THROWS_WITH_AS(workload_named("gpt3"), doctest::Contains("there is no workload gpt3; there are "),
                       Error);
  for (const char* name : {"babygpt:", "babygpt:0", "babygpt:-1", "babygpt:x", "babygpt:99999999"})
    CHECK_THROWS_WITH_AS(workload_named(name), doctest::Contains("must be a number above 0"), Error);
}
