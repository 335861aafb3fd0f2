#include <tapeformer/autograd/error.h>
#include <tapeformer/tests/nn/attention/multi_head_case.h>

#include <doctest/doctest.h>

using namespace tapeformer;

namespace {

std::string layer_refusal(const char* kind, const ChooseOptions& choose) {
  return message_of<Error>([&] { layer_config(kind, choose).check(); });
}

}  // namespace

TEST_SUITE("nn/attention/multi_head_config") {
  TEST_CASE("gqa has half as many heads of keys by default, or the next divisor, and mqa has one") {
    const auto groups = [](const char* kind, Index heads) {
      AttentionConfig config(kind, heads);
      config.width = 30 * heads;
      return config.resolved().key_heads();
    };
    CHECK(groups("gqa", 8) == 4);
    CHECK(groups("gqa", 9) == 3);
    CHECK(groups("gqa", 7) == 1);
    CHECK(groups("mqa", 8) == 1);
    CHECK(groups("mha", 8) == 8);
  }

  TEST_CASE("sizes that do not fit are refused by name") {
    CHECK(layer_refusal("gqa", [](auto& c) { c.groups = 3; }) ==
          "[attention] heads must be a multiple of groups; got attention=gqa, heads=4, groups=3");
    CHECK(layer_refusal("mha", [](auto& c) { c.heads = 0; }) ==
          "[attention] heads must be from 1 to 2147483647; got 0");
    CHECK(
        layer_refusal("mha", [](auto& c) { c.value_width = 0; }) ==
        "[attention] width must be divisible by heads; got attention=mha, width=6, heads=4; try a width that "
        "is a multiple of the heads");
    CHECK(layer_refusal("mha", [](auto& c) { c.value_width = 0, c.output_width = 7; }) ==
          "[attention] output_width must be divisible by heads; got attention=mha, output_width=7, heads=4; "
          "try "
          "a width that is a multiple of the heads");
    CHECK(layer_refusal("gqa", [](auto& c) { c.memory_width = 5; }) ==
          "[attention] a packed projection needs inputs of one width; got attention=gqa, width=6, "
          "memory_width=5, value_memory_width=5; try cross=true");
    CHECK(layer_refusal("mha", [](auto& c) { c.value_memory_width = 7; }) ==
          "[attention] a packed projection needs inputs of one width; got attention=mha, width=6, "
          "memory_width=6, value_memory_width=7; try packed=false");
    CHECK(layer_refusal("gqa", [](auto& c) { c.shared_keys = c.cross = true; }) ==
          "[attention] a layer with shared_keys has no values of its own; got attention=gqa, "
          "shared_keys=true, cross=true; try cross=false");
  }
}
