#include <tapeformer/examples/gradcheck/attention_cost.h>

#include <doctest/doctest.h>

#include <sstream>

using namespace tapeformer;

TEST_CASE("the table's sizes reach the formulas") {
  const CheckSizes sizes;  // B=2 T=5 C=6 H=4 G=2 D=4 E=3, latents 5, hidden 5
  const std::vector<NamedCost> costs = attention_costs(sizes, DType::f64);
  REQUIRE(costs.size() == 13);
  const Index expected[][2] = {
      {6 * (16 + 16 + 12) + 44 + 12 * 6 + 6, 8 * 4 * (4 + 3)},         // mha
      {6 * (16 + 8 + 6) + 30 + 12 * 6 + 6, 8 * 2 * (4 + 3)},           // gqa
      {6 * (16 + 8 + 6) + 30 + 12 * 6 + 6, 8 * 2 * (4 + 3)},           // gqa, of whose keys blocks are chosen
      {6 * (16 + 4 + 3) + 23 + 12 * 6 + 6, 8 * (4 + 3)},               // mqa
      {6 * 24 + 6 * (5 + 2) + 5 + 5 * 4 * (4 + 3) + 72, 8 * (5 + 2)},  // mla
      {6 * 24 + 6 * (5 + 2) + 5 + 5 * 4 * (4 + 3) + 72, 8 * (5 + 2)},
      {6 * (16 + 8 + 6) + 30 + 12 * 6 + 6 + 8 + 3, 8 * 2 * (4 + 3)},      // differential, grouped too
      {6 * (20 + 20 + 12) + 20 + 12 + 12 * 6 + 6 + 20, 8 * 4 * (5 + 3)},  // additive
      // nsa: gates, and a network for the 32 tokens of a compressed key, and of a value
      {6 * (16 + 18 + 24 + 12) + 70 + 12 * 6 + 6 + 32 * 20 + 16 + 32 * 12 + 9, 8 * 6 * (4 + 3)},
      // W x, the decays through a head's width, their offsets, the gate, the norm, the output's projection
      {6 * 44 + 6 * 4 + 4 * 16 + 16 + 6 * 12 + 3 + 12 * 6, 0},         // gla
      {6 * 44 + 4 * 44 + 6 * 4 + 3 + 12 * 6, 0},                       // deltanet: convolution, beta
      {6 * 44 + 4 * 44 + 6 * 4 + 6 * 4 + 8 + 6 * 12 + 3 + 12 * 6, 0},  // gated_deltanet
      {6 * 44 + 4 * 44 + 6 * 4 + 6 * 4 + 4 * 16 + 16 + 4 + 6 * 3 + 3 * 12 + 3 + 12 * 6, 0},  // kda
  };
  for (std::size_t i = 0; i < costs.size(); ++i) {
    CAPTURE(costs[i].name);
    CHECK(costs[i].cost.parameters == expected[i][0]);
    CHECK(costs[i].cost.cache_bytes_per_token == expected[i][1]);
  }
  CHECK(costs[9].cost.cache_bytes_per_row == 8 * 4 * 4 * 3);
  CHECK(costs[12].cost.cache_bytes_per_row == 8 * (4 * 4 * 3 + 3 * 44));
  CHECK(costs[4].name == "mla, naive");
  CHECK(costs[4].cost.forward_flops != costs[5].cost.forward_flops);
  // Two rows of one token: projections of 6 x 44 and 12 x 6 weights, six keys in each of four heads.
  CHECK(costs[0].decoding_flops == 2 * 2 * (6 * 44 + 12 * 6 + 6 * 4 * (4 + 3)));
  // Naive latent attention projects six latents a row again.
  CHECK(costs[4].decoding_flops ==
        2 * 2 * (6 * 4 * (4 + 2) + 6 * (5 + 2) + 12 * 6 + 6 * 5 * 4 * (4 + 3) + 6 * 4 * (4 + 2 + 3)));
  CHECK(costs[5].decoding_flops ==
        2 * 2 * (6 * 4 * (4 + 2) + 6 * (5 + 2) + 12 * 6 + 5 * 4 * (4 + 3) + 6 * 4 * 2 * (5 + 2)));
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
  CHECK(out.str().find("mla, absorbed") != std::string::npos);
  CHECK(out.str().find("4.20 M") != std::string::npos);   // 4 (1024^2 + 1024) parameters
  CHECK(out.str().find("34.36 G") != std::string::npos);  // 2 (4 * 2048 * 1024^2 + 2048^2 * 1024 * 2)
  CHECK(out.str().find("8192") != std::string::npos);     // 4 * 2 * 1024 bytes per token
  // At 2,048 tokens, 3 blocks of 64 keys instead of all.
  CHECK(out.str().find("gqa, 3 of 64") != std::string::npos);
  CHECK(out.str().find("12.58 M      12.58 M") != std::string::npos);  // 3 * 1024 * 4096 weights, all active
  CHECK(out.str().find("139.08 M") != std::string::npos);
  CHECK(out.str().find("1.76 %") != std::string::npos);
}
