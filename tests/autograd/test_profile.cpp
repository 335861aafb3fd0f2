#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/matmul.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/autograd/profile.h>
#include <tapeformer/autograd/tape/tape.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

using namespace tapeformer;

TEST_CASE("a profile counts each operation's kernels, forward and backward apart") {
  const Tensor x = Tensor::full({64}, 0.5);
  const Profile profile;
  Tape tape;
  tape.watch(x);
  tape.gradients(sum(tanh(tanh(x))), {x});
  Index forward = 0, backward = 0;
  for (const ProfileLine& line : profile.lines()) {
    if (line.op != "tanh") continue;
    (line.backward ? backward : forward) += line.calls;
    CHECK(line.seconds > 0);
  }
  CHECK(forward == 2);
  CHECK(backward == 2);
}

TEST_CASE("only the innermost profile counts, and none after its end") {
  const Tensor x = Tensor::full({8}, 1);
  const Profile outer;
  {
    const Profile inner;
    tanh(x);
    CHECK(inner.lines().size() == 1);
  }
  CHECK(outer.lines().empty());
  tanh(x);
  CHECK(outer.lines().size() == 1);
}

TEST_CASE("a multiply-add counts as 2, and each gradient is a product of its own") {
  const Tensor x = Tensor::full({2, 3, 5}, 0.5), weight = Tensor::full({7, 5}, 0.25);
  const Tensor stack = Tensor::full({2, 7, 4}, 1), shared = Tensor::full({1, 7, 4}, 1);
  const Profile profile;
  Tape tape;
  for (const Tensor& leaf : {x, weight, shared}) tape.watch(leaf);
  const Tensor y = linear(x, weight);  // 2 * 6 * 7 * 5
  CHECK(profile.flops(false) == 420);
  const Tensor z = matmul(y, stack);  // 2 * 2 * 3 * 7 * 4: two products of [3, 7] and [7, 4]
  CHECK(profile.flops(false) == 420 + 336);
  const Tensor w = matmul(y, shared);
  CHECK(profile.flops(false) == 420 + 2 * 336);
  CHECK(profile.flops(true) == 0);
  tape.gradients(sum(z) + sum(w), {x, weight, shared});
  CHECK(profile.flops(false) == 420 + 2 * 336);
  // z gives only dy, as the gradient of `stack` is not wanted; w gives two, linear gives two.
  CHECK(profile.flops(true) == 336 + 2 * 336 + 2 * 420);
  for (const ProfileLine& line : profile.lines()) {
    if (line.op == "linear" && line.backward) CHECK(line.flops == 840);
    if (line.op == "sum") CHECK(line.flops == 0);
  }
}

TEST_CASE("operands' bytes are counted once per call") {
  const Tensor x = Tensor::full({2, 3}, 0.5);
  const Profile profile(true);
  Tape tape;
  tape.watch(x);
  tape.gradients(sum(tanh(x)), {x});
  std::vector<std::string> calls;
  for (const ProfileCall& call : profile.calls()) {
    CHECK(call.seconds >= 0);
    CHECK(call.started >= 0);
    if (call.op == "tanh") CHECK(call.bytes == (call.backward ? 3 : 2) * x.bytes());
    calls.push_back(call.op + (call.backward ? " backward" : ""));
  }
  CHECK(calls.front() == "tanh");
  for (const ProfileLine& line : profile.lines())
    CHECK(std::count(calls.begin(), calls.end(), line.op + (line.backward ? " backward" : "")) == line.calls);
}
