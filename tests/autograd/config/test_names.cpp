#include <tapeformer/autograd/config/names.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/tests/reference/support.h>

#include <doctest/doctest.h>

namespace tapeformer {
namespace {
enum class Sail { none, jib, main };
}
template <>
inline constexpr EnumNames kNames<Sail>{"the sail", {"none", "jib", "main"}};
}  // namespace tapeformer

using namespace tapeformer;

TEST_CASE("a value has its name, and a name its value") {
  CHECK(all_names(kNames<Sail>) == std::vector<std::string>{"none", "jib", "main"});
  for (const Sail sail : {Sail::none, Sail::jib, Sail::main}) CHECK(kind_named<Sail>(name_of(sail)) == sail);
  CHECK(std::string(name_of(Sail::main)) == "main");
  CHECK_THROWS_WITH_AS(kind_named<Sail>("keel"), "the sail must be none, jib or main; got keel", Error);
}
