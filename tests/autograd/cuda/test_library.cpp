#include <doctest/doctest.h>
#include <tapeformer/autograd/cuda/library.h>
#include <tapeformer/tests/reference/support.h>

#include <string>

using namespace tapeformer;

TEST_CASE("functions of a loaded library can be called") {
  const cuda::Library library("[test] roots", "libm.so.6", {});
  double (*const root)(double) = library.find("sqrt");
  CHECK(root(9) == 3);
}

TEST_CASE("missing libraries and functions are named with a remedy") {
  const std::string missing =
      message_of<DeviceError>([] { cuda::Library("[test] roots", "libnone.so.1", {"/nowhere"}); });
  CHECK(missing.find("[test] roots need libnone.so.1, which cannot be loaded: /nowhere/libnone.so.1") == 0);
  CHECK(missing.find("; try LD_LIBRARY_PATH=(the folder that has it)") != std::string::npos);
  CHECK(message_of<DeviceError>([] { cuda::Library("[test] roots", "libm.so.6", {}).find("cuberoot"); }) ==
        "[test] roots need cuberoot, which libm.so.6 lacks; try a newer one");
}
