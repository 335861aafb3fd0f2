#include <tapeformer/autograd/format.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

namespace tapeformer {
TEST_CASE("format() puts values in the place of braces") {
  const std::string name = "loss";
  CHECK(format("{} of {}: {}, {}", 3, name, true, "{}") == "3 of loss: true, {}");
  CHECK(format("{} {} {}", std::size_t{1} << 40, -1e-9, 2.5f) == "1099511627776 -1e-09 2.5");
  CHECK(format("{} {:x}", ~std::uint64_t{0}, ~std::uint64_t{0}) == "18446744073709551615 ffffffffffffffff");
  CHECK(format("[{:-6}|{:6}|{:02}|{:x}|{:.2f} %]", "a", name, 5u, 255, 0.125) ==
        "[a     |  loss|05|ff|0.12 %]");
}
TEST_CASE("joined() separates texts, numbers, and a function's results for each") {
  CHECK(joined(std::vector<std::string>{"a", "", "b"}, ", ") == "a, , b");
  CHECK(joined(std::vector<int>{}, ", ").empty());
  CHECK(joined(std::vector<double>{1, 0.5}, " ", [](double x) { return format("{:.1f}", 2 * x); }) ==
        "2.0 1.0");
  CHECK(joined(std::vector<std::string>{"a", "bc"}, "+", &std::string::size) == "1+2");
}
TEST_CASE("alternatives() and number_of() make words") {
  CHECK(alternatives(std::vector<std::string>{"none", "head", "element"}) == "none, head or element");
  CHECK(number_of(1, "batch", "batches") + number_of(2, "batch", "batches") + number_of(0, "row") ==
        "1 batch2 batches0 rows");
}

}  // namespace tapeformer
