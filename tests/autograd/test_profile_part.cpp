#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/matmul.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/autograd/profile_part.h>
#include <tapeformer/autograd/tape/activation_checkpointing.h>
#include <tapeformer/autograd/tape/tape.h>

#include <doctest/doctest.h>

using namespace tapeformer;

TEST_CASE("parts of a model have the products and the saved bytes of their forward passes") {
  const Tensor x = Tensor::full({3, 5}, 0.5), weight = Tensor::full({7, 5}, 0.25);
  const Profile profile(false, true);
  Tape tape;
  tape.watch(weight);
  Tensor loss;
  {
    const ProfilePart whole("whole");
    Tensor y;
    for (const Index i : {0, 1, 0}) {
      const ProfilePart part("layers", i);
      y = linear(x, weight);  // saves x, once, and the weight
    }
    loss = sum(tanh(y));  // saves a result of 3 * 7
  }
  tape.gradients(loss, {weight});
  REQUIRE(profile.parts().size() == 3);
  CHECK(profile.parts()[0].name == "whole");
  CHECK(profile.parts()[0].flops == 3 * 210);
  CHECK(profile.parts()[0].saved_bytes == tape.memory().saved_bytes);
  CHECK(profile.parts()[1].name == "whole.layers.0");
  CHECK(profile.parts()[1].flops == 2 * 210);
  CHECK(profile.parts()[1].saved_bytes >= 4 * 15);
  CHECK(profile.parts()[2].name == "whole.layers.1");
  CHECK(profile.parts()[2].flops == 210);
  CHECK(profile.parts()[2].saved_bytes == 0);
}

TEST_CASE("parts are measured on request, and not again where the backward pass recomputes them") {
  const Tensor x = Tensor::full({3, 5}, 0.5);
  const Parameter weight(Tensor::full({5, 5}, 0.25));
  const auto layer = [&] {
    const ProfilePart part("layer");
    return linear(x, weight);
  };
  const Profile without;
  layer();
  CHECK(without.parts().empty());
  const Profile profile(false, true);
  Tape tape;
  Tensor y;
  {
    const ProfilePart whole("whole");
    y = checkpoint({x}, layer);
  }
  tape.backward(sum(y));
  REQUIRE(profile.parts().size() == 2);
  CHECK(profile.parts()[1].name == "whole.layer");
  CHECK(profile.parts()[1].flops == 150);
  CHECK(profile.parts()[1].saved_bytes == 0);
}
