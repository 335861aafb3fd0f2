#include <tapeformer/examples/gradcheck/attention_cost.h>
#include <tapeformer/tests/reference/text.h>

#include <doctest/doctest.h>

#include <sstream>
#include <tuple>

using namespace tapeformer;

// Costs themselves are measured in nn/attention/test_cost.cpp.
TEST_CASE("the table's sizes reach the formulas of five kinds") {
  const CheckSizes sizes;  // B=2 T=5 C=6 H=4 G=2 D=4 E=3, latents 5, hidden 5
  const std::vector<NamedCost> costs = attention_costs(sizes, DType::f64);
  REQUIRE(costs.size() == 13);
  // Decoding: two rows of one token, their projections, and six keys in each of four heads.
  const Index mla = 6 * 24 + 6 * (5 + 2) + 5 + 5 * 4 * (4 + 3) + 72;
  const std::tuple<std::size_t, std::string, Index, Index, Index> expected[] = {
      {0, "mha", 6 * (16 + 16 + 12) + 44 + 12 * 6 + 6, 8 * 4 * (4 + 3), 6 * 44 + 12 * 6 + 6 * 4 * (4 + 3)},
      {1, "gqa", 6 * (16 + 8 + 6) + 30 + 12 * 6 + 6, 8 * 2 * (4 + 3), 6 * 30 + 12 * 6 + 6 * 4 * (4 + 3)},
      // Naive latent attention projects six latents a row again.
      {4, "mla, naive", mla, 8 * (5 + 2),
       6 * 24 + 6 * 7 + 12 * 6 + 6 * 5 * 4 * (4 + 3) + 6 * 4 * (4 + 2 + 3)},
      {5, "mla, absorbed", mla, 8 * (5 + 2), 6 * 24 + 6 * 7 + 12 * 6 + 5 * 4 * (4 + 3) + 6 * 4 * 2 * (5 + 2)},
      {7, "additive", 6 * (20 + 20 + 12) + 20 + 12 + 12 * 6 + 6 + 20, 8 * 4 * (5 + 3),
       6 * (20 + 20 + 12) + 12 * 6 + 6 * 4 * (5 + 3)}};
  for (const auto& [i, name, parameters, bytes, decoding] : expected) {
    CHECK(costs[i].name == name);
    CHECK(costs[i].cost.parameters == parameters);
    CHECK(costs[i].cost.cache_bytes_per_token == bytes);
    CHECK(costs[i].decoding_flops == 2 * 2 * decoding);
  }
}

TEST_CASE("DeepSeek-V2's cache is what its paper says: 4.5 head widths per token and layer") {
  const std::vector<CacheSize> sizes = cache_sizes_of_deepseek_v2();
  REQUIRE(sizes.size() == 4);
  CHECK(sizes[0].numbers == 32768);
  CHECK(sizes[1].numbers == 2048);
  CHECK(sizes[2].numbers == 256);
  CHECK(sizes[3].numbers == 576);
  CHECK(2 * sizes[3].numbers == 9 * 128);
}

TEST_CASE("large amounts are printed in thousands, millions and so on") {
  CheckSizes sizes;
  sizes.batch = 1, sizes.queries = 2048, sizes.width = 1024, sizes.heads = 16, sizes.groups = 4;
  sizes.head_width = sizes.value_width = 64, sizes.latent_width = 256, sizes.hidden_width = 64;
  std::ostringstream out;
  print_attention_cost(out, sizes, DType::f32);
  CHECK(has(out.str(), "mla, absorbed"));
  CHECK(has(out.str(), "4.20 M"));   // 4 (1024^2 + 1024) parameters
  CHECK(has(out.str(), "34.36 G"));  // 2 (4 * 2048 * 1024^2 + 2048^2 * 1024 * 2)
  CHECK(has(out.str(), "8192"));     // 4 * 2 * 1024 bytes per token
  // At 2,048 tokens, 3 blocks of 64 keys instead of all.
  CHECK(has(out.str(), "gqa, 3 of 64"));
  CHECK(has(out.str(), "12.58 M      12.58 M"));  // 3 * 1024 * 4096 weights, all active
  CHECK(has(out.str(), "139.08 M"));
  CHECK(has(out.str(), "1.76 %"));
}
