#include <tapeformer/tests/emulator/hopper_source.h>
#include <tapeformer/tests/emulator/race_kernels.h>

namespace tapeformer {
namespace {

using namespace hopper_tests;

int thread_in_block() { return static_cast<int>(threadIdx.x); }
/// A word of its own for each thread, in each of the tiles 0 and 1.
unsigned& own_word(int of) { return reinterpret_cast<unsigned*>(tile())[of]; }
unsigned& second_word(int of) { return reinterpret_cast<unsigned*>(tile() + Source::kBoxBytes)[of]; }
bool multiplies() { return threadIdx.x < 128; }
void multiply_and_wait() {
  float d[32];
  multiply(d);
  wgmma_wait<0>();
}
void store_tile(const CUtensorMap& map) {
  if (threadIdx.x != 0) return;
  store_box(&map, tile(), 0, static_cast<int>(blockIdx.x) * Source::kBoxRows, 0, 0);
  finish_stores();
}
/// All read tile 0 and say so; thread 0 loads another one there.
template <class Behind>
void read_then_load(const CUtensorMap& map, Behind&& behind) {
  make_barriers(1, 256);
  own_word(thread_in_block()) = 1;
  publish_to_copies();
  const unsigned other = own_word(thread_in_block());
  behind();
  second_word(thread_in_block()) = other;
  arrive(other_barrier());
  if (threadIdx.x != 0) return;
  wait(other_barrier(), 0);
  load_tile(map);
  wait(barrier(), 0);
}

}  // namespace

const std::vector<HopperRaceCase>& hopper_race_cases() {
  static const std::vector<HopperRaceCase> cases = {
      {"who has waited for a box reads it", nullptr,
       [](const CUtensorMap& map) {
         make_barrier(1);
         if (threadIdx.x == 0) load_tile(map);
         wait(barrier(), 0);
         second_word(thread_in_block()) = own_word(thread_in_block());
       }},
      {"others read it, too", "reads what a load (",
       [](const CUtensorMap& map) {
         make_barrier(1);
         if (threadIdx.x == 0) load_tile(map), wait(barrier(), 0);
         if (threadIdx.x == 64) second_word(0) = own_word(0);
       }},
      {"a product reads what all wrote, published and met behind", nullptr,
       [](const CUtensorMap&) {
         own_word(thread_in_block()) = second_word(thread_in_block()) = 0;
         publish_to_copies();
         meet_at(1, 256);
         if (multiplies()) multiply_and_wait();
       }},
      {"nobody publishes", "wrote and has not published since",
       [](const CUtensorMap&) {
         own_word(thread_in_block()) = 0;
         meet_at(1, 256);
         if (multiplies()) multiply_and_wait();
       }},
      {"nobody publishes, nor behind __syncthreads", "wrote and has not published since",
       [](const CUtensorMap&) {
         own_word(thread_in_block()) = 0;
         __syncthreads();
         if (multiplies()) multiply_and_wait();
       }},
      {"published before the writes", "wrote and has not published since",
       [](const CUtensorMap&) {
         publish_to_copies();
         own_word(thread_in_block()) = 0;
         meet_at(1, 256);
         if (multiplies()) multiply_and_wait();
       }},
      {"published behind the barrier", "wrote and has not published since",
       [](const CUtensorMap&) {
         own_word(thread_in_block()) = 0;
         __syncthreads();
         publish_to_copies();
         if (multiplies()) multiply_and_wait();
       }},
      {"published, and nobody met", "a product (",
       [](const CUtensorMap&) {
         own_word(thread_in_block()) = 0;
         publish_to_copies();
         if (multiplies()) multiply_and_wait();
       }},
      {"a store reads what is not published", "a store (",
       [](const CUtensorMap& map) {
         own_word(thread_in_block()) = 0;
         __syncthreads();
         store_tile(map);
       }},
      {"a store of what is published", nullptr,
       [](const CUtensorMap& map) {
         own_word(thread_in_block()) = 0;
         publish_to_copies();
         __syncthreads();
         store_tile(map);
       }},
      {"a tile changes under a product", "a product (",
       [](const CUtensorMap&) {
         if (!multiplies()) return;
         float d[32];
         multiply(d);
         if (threadIdx.x < 8) own_word(thread_in_block()) = 0;
         wgmma_wait<0>();
       }},
      {"a tile changes when one warp's part of a product is done", "writes what a product (",
       [](const CUtensorMap&) {
         if (!multiplies()) return;
         multiply_and_wait();
         if (threadIdx.x == 0) own_word(0) = 0;
       }},
      {"a tile changes when all parts are done", nullptr,
       [](const CUtensorMap&) {
         if (!multiplies()) return;
         multiply_and_wait();
         meet_at(1, 128);
         if (threadIdx.x == 0) own_word(0) = 0;
       }},
      {"a tile changes under a store", "writes what a store (",
       [](const CUtensorMap& map) {
         if (threadIdx.x != 0) return;
         store_box(&map, tile(), 0, static_cast<int>(blockIdx.x) * Source::kBoxRows, 0, 0);
         own_word(0) = 0;
         finish_stores();
       }},
      {"others change it behind the store of one", "writes what a store (",
       [](const CUtensorMap& map) {
         store_tile(map);
         if (threadIdx.x == 32) own_word(0) = 0;
       }},
      {"others change it when they met who stored it", nullptr,
       [](const CUtensorMap& map) {
         store_tile(map);
         __syncthreads();
         own_word(thread_in_block()) = 0;
       }},
      {"blocks store one box", "of block (0,0,0) wrote",
       [](const CUtensorMap& map) {
         if (threadIdx.x != 0) return;
         store_box(&map, tile(), 0, 0, 0, 0);
         finish_stores();
       }},
      {"a named barrier orders those who meet there", nullptr,
       [](const CUtensorMap&) {
         own_word(thread_in_block()) = 1;
         meet_at(1, 256);
         second_word(thread_in_block()) = own_word(255 - thread_in_block());
       }},
      {"and no others", "nothing orders them",
       [](const CUtensorMap&) {
         own_word(thread_in_block()) = 1;
         __syncthreads();
         own_word(thread_in_block()) = 2;
         meet_at(1 + thread_in_block() / 128, 128);
         second_word(thread_in_block()) = own_word(255 - thread_in_block());
       }},
      {"who arrives there tells those who wait", nullptr,
       [](const CUtensorMap&) {
         if (multiplies()) own_word(thread_in_block()) = 1, arrive_at(1, 256);
         if (!multiplies()) meet_at(1, 256), own_word(thread_in_block() - 128) = 2;
       }},
      {"and learns nothing", "nothing orders them",
       [](const CUtensorMap&) {
         if (!multiplies()) own_word(thread_in_block()) = 1, meet_at(1, 256);
         if (multiplies()) arrive_at(1, 256), own_word(thread_in_block() + 128) = 2;
       }},
      {"what follows an arrival is not told", "nothing orders them",
       [](const CUtensorMap&) {
         if (multiplies()) arrive_at(1, 256), own_word(thread_in_block()) = 1;
         if (!multiplies()) meet_at(1, 256), own_word(thread_in_block() - 128) = 2;
       }},
      {"a phase orders who arrived before who waited", nullptr,
       [](const CUtensorMap&) {
         make_barrier(128);
         if (multiplies()) own_word(thread_in_block()) = 1, arrive(barrier());
         if (!multiplies()) wait(barrier(), 0), own_word(thread_in_block() - 128) = 2;
       }},
      {"and not who waits for the one before", "nothing orders them",
       [](const CUtensorMap&) {
         make_barrier(129);
         if (multiplies()) own_word(thread_in_block()) = 1, arrive(barrier());
         if (!multiplies()) wait(barrier(), 1), own_word(thread_in_block() - 128) = 2;
       }},
      {"a __syncwarp passes on what a lane has learnt", nullptr,
       [](const CUtensorMap&) {
         make_barrier(128);
         if (multiplies()) own_word(thread_in_block()) = 1, arrive(barrier());
         if (multiplies()) return;
         if (threadIdx.x % 32 == 0) wait(barrier(), 0);
         __syncwarp();
         own_word(thread_in_block() - 128) = 2;
       }},
      {"a tile is read, and then loaded", nullptr,
       [](const CUtensorMap& map) { read_then_load(map, [] { publish_to_copies(); }); }},
      {"a tile is read without a fence, and then loaded", "read and has not published since",
       [](const CUtensorMap& map) { read_then_load(map, [] {}); }},
      {"a tile is loaded while others may read it", "a load (",
       [](const CUtensorMap& map) {
         make_barrier(1);
         own_word(thread_in_block()) = 1;
         publish_to_copies();
         if (threadIdx.x == 0) load_tile(map), wait(barrier(), 0);
       }},
  };
  return cases;
}

}  // namespace tapeformer
