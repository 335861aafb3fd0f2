#include <cuda_emulator.h>
#include <tapeformer/tests/emulator/in_order.h>
#include <tapeformer/tests/reference/sanitized.h>
#include <tapeformer/tests/reference/support.h>

#include <doctest/doctest.h>

using namespace tapeformer;
using emulator::Fault;
using emulator::launch;

namespace {

constexpr unsigned kAllLanes = 0xffffffffu;

/// The message of a kernel's fault, the folders of this file left out; a right kernel must run after it.
template <class F>
std::string fault_of(unsigned threads, F&& kernel, std::size_t shared_bytes = 0, std::uint64_t seed = 0) {
  const InOrder order(seed);
  std::string text =
      message_of<Fault>([&] { launch("broken", dim3(2), dim3(threads), shared_bytes, kernel); });
  int runs = 0;
  launch("right", 2, 64, 0, [&] {
    runs += __shfl_sync(kAllLanes, 1, 0);
    __syncthreads();
  });
  CHECK(runs == 128);
  const std::string file = __FILE__;
  for (std::size_t at = 0; (at = text.find(file, at)) != std::string::npos;)
    text.replace(at, file.size(), "FILE");
  return text;
}

bool contains(const std::string& text, const std::string& part) {
  INFO(text);
  CHECK(text.find(part) != std::string::npos);
  return true;
}

template <class F>
std::string refusal(dim3 grid, dim3 block, std::size_t shared_bytes, F&& kernel) {
  return message_of<std::runtime_error>([&] { launch("broken", grid, block, shared_bytes, kernel); });
}

}  // namespace

TEST_CASE("a barrier that some threads never reach") {
  for (const std::uint64_t seed : {0, 1, 2}) {
    const int line = __LINE__ + 4;
    const std::string text = fault_of(
        96,
        [] {
          if (threadIdx.x < 40 && blockIdx.x == 0) __syncthreads();
        },
        0, seed);
    CHECK(text ==
          "[broken] threads wait for others that returned or wait elsewhere; got threads 0-39 at "
          "__syncthreads (FILE:" +
              std::to_string(line) +
              "), threads 40-95 returned; block (0,0,0) of (2,1,1), block size (96,1,1)");
  }
}

TEST_CASE("threads that meet at different barriers") {
  const std::string places = fault_of(64, [] {
    if (threadIdx.x < 32)
      __syncthreads();
    else
      __syncthreads();
  });
  contains(places,
           "[broken] threads of a block meet at different barriers; got threads 0-31 at __syncthreads");
  contains(places, "thread 32 at __syncthreads");
  contains(places, "threads 33-63 not begun");
  contains(fault_of(64, [] { threadIdx.x < 32 ? void(__syncthreads_or(1)) : __syncthreads(); }),
           "different barriers");
}

TEST_CASE("some threads at a barrier and others at a warp operation wait for each other") {
  const std::string text = fault_of(32, [] {
    if (threadIdx.x == 5) __syncthreads();
    __shfl_sync(kAllLanes, 1, 0);
  });
  contains(text, "threads 0-4 at __shfl_sync of mask 0xffffffff (FILE:");
  contains(text, "thread 5 at __syncthreads (FILE:");
}

TEST_CASE("a mask that names a lane that returned") {
  const std::string text = fault_of(64, [] {
    if (threadIdx.x % 32 != 7) __ballot_sync(kAllLanes, 1);
  });
  contains(text, "threads 0-6 at a vote of mask 0xffffffff");
  contains(text, "thread 7 returned");
}

TEST_CASE("a mask that names a lane that waits with others") {
  const std::string text = fault_of(32, [] {
    if (threadIdx.x < 2)
      __syncwarp(0x3u);
    else if (threadIdx.x == 2)
      __syncwarp(0x7u);
    else
      __syncwarp(0xfffffff8u);
  });
  contains(text, "threads 0-1 returned, thread 2 at __syncwarp of mask 0x7 ");
}

TEST_CASE("lanes of one mask at different operations") {
  const std::string text = fault_of(32, [] {
    if (threadIdx.x < 16)
      __shfl_sync(kAllLanes, 1, 1);
    else
      __shfl_xor_sync(kAllLanes, 1, 1);
  });
  contains(text, "lanes of one mask meet at different operations; got threads 0-15 at __shfl_sync");
  contains(text, "threads 16-31 at __shfl_xor_sync");
}

TEST_CASE("a caller outside its own mask, a mask with lanes outside the block, an odd width") {
  contains(fault_of(32, [] { __syncwarp(0xfffffffeu); }),
           "the mask of a warp operation names its caller; got thread 0 at __syncwarp of mask 0xfffffffe");
  contains(fault_of(40, [] { __syncwarp(); }),
           "the mask of a warp operation names lanes the block has; got threads 0-31 ");
  for (const int width : {0, 3, 64})
    contains(fault_of(32, [&] { __shfl_sync(kAllLanes, 1, 0, width); }),
             "a shuffle's width is 1, 2, 4, 8, 16 or 32; got " + std::to_string(width));
}

TEST_CASE("a write beyond the dynamic shared memory") {
  if (is_sanitized()) return;  // a sanitizer stops the program itself, and names the line that wrote
  contains(fault_of(
               8, [] { kernels::dynamic_shared<int>()[threadIdx.x + 1] = 0; }, 32),
           "a thread wrote behind the dynamic shared memory; got byte 32 of 32");
}

TEST_CASE("launches that a device would refuse") {
  const auto nothing = [] {};
  CHECK(refusal(1, dim3(32, 32, 2), 0, nothing) ==
        "[broken] a block has 1 to 1024 threads, at most 64 along z; got block=(32,32,2)");
  contains(refusal(1, dim3(1, 1, 65), 0, nothing), "got block=(1,1,65)");
  contains(refusal(1, dim3(0), 0, nothing), "got block=(0,1,1)");
  CHECK(refusal(dim3(1, 65536), 1, 0, nothing) ==
        "[broken] a grid has 1 to 2^31-1 blocks along x, 1 to 65535 along y and z; got grid=(1,65536,1)");
  contains(refusal(dim3(4, 0), 1, 0, nothing), "got grid=(4,0,1)");
  CHECK(refusal(1, 1, 227 * 1024 + 1, nothing) ==
        "[broken] a block has at most 232448 bytes of shared memory; got 232449");
  launch("largest", 1, 1024, 227 * 1024, nothing);
}

TEST_CASE("device functions on the host, and a launch by a kernel") {
  CHECK_THROWS_WITH_AS(__syncthreads(), "[emulator] device functions need a launched kernel",
                       std::logic_error);
  CHECK_THROWS_WITH_AS(kernels::dynamic_shared<int>(), "[emulator] device functions need a launched kernel",
                       std::logic_error);
  CHECK_THROWS_WITH_AS(launch("outer", 1, 1, 0, [] { launch("inner", 1, 1, 0, [] {}); }),
                       "[inner] a kernel cannot launch another; launch from the host", std::logic_error);
  launch("after", 1, 1, 0, [] { __syncthreads(); });
}
