#include <cuda_emulator.h>
#include <tapeformer/tests/emulator/race_kernels.h>

namespace tapeformer {
namespace {

constexpr unsigned kAll = 0xffffffffu;

/// More than fits into a register.
struct Numbers {
  float values[20];
};

float* shared() { return kernels::dynamic_shared<float>(); }
int thread() { return static_cast<int>(threadIdx.x); }
int everywhere() { return static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); }
/// Zeros in shared memory that everybody sees.
void clear_shared() {
  shared()[thread()] = 0;
  __syncthreads();
}

}  // namespace

bool accesses_are_seen() {
#if defined(__SANITIZE_THREAD__)
  return true;
#else
  return false;
#endif
}

const std::vector<RaceCase>& race_cases() {
  static const std::vector<RaceCase> cases = {
      {"a neighbour's value behind a barrier", nullptr,
       [](float* global, std::int16_t*) {
         __shared__ float values[64];
         values[thread()] = 1;
         __syncthreads();
         global[everywhere()] = values[63 - thread()];
       }},
      {"a neighbour's value without a barrier",
       "and nothing orders them; got 4 bytes at dynamic shared memory",
       [](float* global, std::int16_t*) {
         clear_shared();
         shared()[thread()] = 1;
         global[everywhere()] = shared()[63 - thread()];
       }},
      {"static shared memory is reused without a barrier", "static shared memory",
       [](float* global, std::int16_t*) {
         __shared__ float values[64];
         for (int round = 0; round < 2; ++round) {
           values[thread()] = 1;
           __syncthreads();
           global[everywhere()] = values[63 - thread()];
         }
       }},
      {"a neighbour's structure behind a barrier", nullptr,
       [](float* global, std::int16_t*) {
         __shared__ Numbers numbers[64];
         numbers[thread()] = Numbers{};
         __syncthreads();
         const Numbers other = numbers[63 - thread()];
         __syncthreads();
         numbers[thread()] = other;
         global[everywhere()] = numbers[thread()].values[4];
       }},
      {"a structure is copied without a barrier", "and nothing orders them",
       [](float*, std::int16_t*) {
         __shared__ Numbers numbers[64];
         numbers[thread()] = Numbers{};
         __syncthreads();
         numbers[thread()] = numbers[63 - thread()];
       }},
      {"all write one element of shared memory", "of block (0,0,0) writes what thread",
       [](float*, std::int16_t*) { shared()[3] = 1; }},
      {"one writes what all have read", "thread 63 of block (0,0,0) writes what thread",
       [](float* global, std::int16_t*) {
         clear_shared();
         global[everywhere()] = shared()[0];
         if (thread() == 63) shared()[0] = 1;
       }},
      {"one writes what it and one other have read", "writes what thread 9 of block (0,0,0) read",
       [](float* global, std::int16_t*) {
         clear_shared();
         if (thread() == 9 || thread() == 63) global[everywhere()] = shared()[0];
         if (thread() == 63) shared()[0] = 1;
       }},
      {"lanes exchange behind a __syncwarp", nullptr,
       [](float* global, std::int16_t*) {
         shared()[thread()] = 1;
         __syncwarp();
         const float other = shared()[thread() ^ 31];
         __syncwarp();
         shared()[thread()] = other;
         __syncwarp();
         global[everywhere()] = shared()[thread() ^ 31];
       }},
      {"lanes write again before all have read", "nothing orders them",
       [](float*, std::int16_t*) {
         shared()[thread()] = 1;
         __syncwarp();
         shared()[thread()] += shared()[thread() ^ 31];
       }},
      {"a shuffle orders no memory", "reads what thread",
       [](float* global, std::int16_t*) {
         clear_shared();
         shared()[thread()] = 1;
         __shfl_xor_sync(kAll, 1, 1);
         global[everywhere()] = shared()[thread() ^ 1];
       }},
      {"a __syncwarp orders its warp alone", "thread 63 of block (0,0,0)",
       [](float* global, std::int16_t*) {
         clear_shared();
         shared()[thread()] = 1;
         __syncwarp();
         if (thread() == 0) global[everywhere()] = shared()[63];
       }},
      {"a __syncwarp orders the lanes of its mask alone", "what thread 31 of block (0,0,0) wrote",
       [](float* global, std::int16_t*) {
         clear_shared();
         shared()[thread()] = 1;
         if (thread() % 32 < 16)
           __syncwarp(0xffffu);
         else
           __syncwarp(0xffff0000u);
         if (thread() == 0) global[everywhere()] = shared()[31];
       }},
      {"what a lane knows from one it tells the next", nullptr,
       [](float* global, std::int16_t*) {
         clear_shared();
         if (thread() < 3) {
           if (thread() == 0) shared()[0] = 5;
           if (thread() < 2) __syncwarp(0x3u);
           if (thread() > 0) __syncwarp(0x6u);
           if (thread() == 2) global[everywhere()] = shared()[0];
         }
       }},
      {"halves of a word are two places", nullptr,
       [](float*, std::int16_t* halves) { halves[everywhere()] = 1; }},
      {"two threads write one half of a word", "got 2 bytes at global memory",
       [](float*, std::int16_t* halves) { halves[static_cast<int>(blockIdx.x) * 64 + thread() / 2] = 1; }},
      {"a vector overlaps a neighbour's element", "got 4 bytes at global memory",
       [](float* global, std::int16_t*) {
         float* row = global + 64 * blockIdx.x;
         if (thread() == 0) *reinterpret_cast<uint4*>(row) = make_uint4(1, 2, 3, 4);
         if (thread() == 3) row[3] = 0;
       }},
      {"blocks write one element of global memory",
       "block (1,0,0) writes what thread 0 of block (0,0,0) wrote",
       [](float* global, std::int16_t*) {
         if (thread() == 0) global[0] = 1;
       }},
      {"a block reads what another wrote",
       "thread 5 of block (1,0,0) reads what thread 0 of block (0,0,0) wrote",
       [](float* global, std::int16_t*) {
         if (everywhere() == 0) global[0] = 1;
         __syncthreads();
         if (everywhere() == 64 + 5) global[1] = global[0];
       }},
      {"a block writes what another read", "thread 0 of block (2,0,0) writes what thread 0 of block",
       [](float* global, std::int16_t*) {
         if (thread() == 0 && blockIdx.x < 2) global[1 + blockIdx.x] = global[0];
         if (thread() == 0 && blockIdx.x == 2) global[0] = 1;
       }},
      {"a block reads what another wrote and then read", "of block (0,0,0) wrote",
       [](float* global, std::int16_t*) {
         if (everywhere() == 0) global[0] = 1;
         __syncthreads();
         if (everywhere() == 0) global[1] = global[0];
         if (everywhere() == 64) global[2] = global[0];
       }},
      {"a half of a word, after the other half", "thread 0 of block (0,0,0) wrote",
       [](float*, std::int16_t* halves) {
         if (everywhere() == 0) halves[0] = 1;
         __syncthreads();
         if (everywhere() == 0) halves[1] = 1;
         if (everywhere() == 64) halves[0] = 1;
       }},
      {"all add to one counter", nullptr,
       [](float* global, std::int16_t*) { atomicAdd(reinterpret_cast<int*>(global), 1); }},
      {"one reads a counter while others add", "changed atomically",
       [](float* global, std::int16_t*) {
         int* counter = reinterpret_cast<int*>(global);
         atomicAdd(counter, 1);
         if (thread() == 40) counter[1 + blockIdx.x] = counter[0];
       }},
      {"shared memory nobody has written", "what no thread of its block has written yet",
       [](float* global, std::int16_t*) {
         __shared__ float sum;
         if (everywhere() == 0) sum = global[0];  // and not in the other blocks
         __syncthreads();
         global[everywhere()] = sum;
       }},
      {"an index behind the dynamic shared memory",
       "leaves the dynamic shared memory; got 4 bytes at dynamic shared memory + 256",
       [](float* global, std::int16_t*) {
         clear_shared();
         global[everywhere()] = shared()[thread() + 1];
       }},
      {"arrays of one thread's own", nullptr,
       [](float* global, std::int16_t*) {
         float own[8];
         for (int i = 0; i < 8; ++i) own[i] = static_cast<float>(thread() + i);
         __syncthreads();
         global[everywhere()] = own[thread() % 8];
       }},
  };
  return cases;
}

}  // namespace tapeformer
