#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/autograd/profile.h>
#include <tapeformer/autograd/tape.h>

#include <doctest/doctest.h>

using namespace tapeformer;

TEST_SUITE("autograd/profile") {
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
    CHECK(profile.text(1).find("outside kernels") != std::string::npos);
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
}
