#include <doctest/doctest.h>
#include <tapeformer/optim/sgd.h>
#include <tapeformer/tests/optim/optim_case.h>
#include <tapeformer/tests/reference/check_below.h>

using namespace tapeformer;

TEST_SUITE("optim/sgd") {
  TEST_CASE("two steps by hand") {
    const Parameter x(Tensor::from<double>({1.0}));
    Sgd optimizer({x}, {0.5, 0.25});
    set_gradient(x, Tensor::from<double>({2.0}));
    optimizer.step(0.1);  // velocity 2 + 0.25 = 2.25
    CHECK(x.value().at(0) == doctest::Approx(0.775));
    optimizer.step(0.1);  // velocity 1.125 + 2 + 0.19375 = 3.31875
    CHECK(x.value().at(0) == doctest::Approx(0.443125));
  }

  TEST_CASE("five steps agree with torch.optim.SGD, a missing gradient among them") {
    for (const DType type : {DType::f32, DType::f64}) {
      const double tolerance = type == DType::f64 ? 1e-13 : 1e-6;
      OptimCase plain(type), momentum(type);
      Sgd first(plain.parameters()), second(momentum.parameters(), {0.9, 0.01});
      plain.run(first, 0, 5);
      momentum.run(second, 0, 5);
      CHECK_BELOW(distance(plain.weight, {0.528515371824946, -1.48993274616898, 2.09242810959764,
                                          0.835395006385369, -0.371177806436908, 1.3607859292976}),
                  tolerance);
      CHECK_BELOW(distance(plain.bias, {0.17288832092312, -0.361871173452122, 0.335522028015433}), tolerance);
      CHECK_BELOW(distance(momentum.weight, {0.154891636094569, -1.48589627257807, 2.02246532914587,
                                             0.907458381713591, -0.1930618270008, 1.65915805271183}),
                  tolerance);
      CHECK_BELOW(distance(momentum.bias, {-0.144783379798324, -0.311655909391734, 0.368337739459062}),
                  tolerance);
    }
  }
}
