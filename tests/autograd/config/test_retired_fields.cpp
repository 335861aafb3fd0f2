#include <tapeformer/autograd/config/retired_fields.h>
#include <tapeformer/tests/reference/config_case.h>

using namespace tapeformer;

namespace {

struct Empty {
  void describe(const FieldVisitor&) {}
};

}  // namespace

TEST_CASE("a retired field is left out where it has its default, and otherwise refused by name") {
  CHECK(read_message<Empty>({{"fix_norm", false}}) == "nothing was thrown");
  CHECK(read_message<Empty>({{"fix_norm", true}}) ==
        "fix_norm was retired in the course of version 0.1.0 and must be false; got true; "
        "try the program that wrote it");
  CHECK(is_retired_field("value_embeddings", "none"));
  CHECK(is_retired_field("stochastic_depth", 0.0));
  CHECK_FALSE(is_retired_field("colour", "red"));
}
