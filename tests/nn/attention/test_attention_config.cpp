#include <tapeformer/nn/attention/attention_kind.h>
#include <tapeformer/tests/reference/config_case.h>

using namespace tapeformer;

TEST_CASE("a config resolved has every size, and cross-attention is neither rotary nor packed") {
  AttentionConfig config;
  config.width = 48, config.heads = 6, config.rotary = true;
  for (const char* kind : {"mha", "gqa", "mqa", "mla"}) {
    CAPTURE(std::string(kind));
    config.kind = kind;
    const Index groups = config.kind == "gqa" ? 3 : config.kind == "mqa" ? 1 : 6;
    const bool is_latent = config.kind == "mla";
    for (const bool cross : {false, true}) {
      config.cross = cross;
      const AttentionConfig full = config.resolved();
      const std::vector<Index> sizes{full.key_heads(), full.memory_width, full.output_width,
                                     full.key_width,   full.value_width,  full.rotary_width};
      CHECK(sizes == std::vector<Index>{groups, 48, 48, 8, 8, is_latent && !cross ? 4 : 0});
      CHECK(full.rotary == (!is_latent && !cross));
      CHECK(full.packed == (!is_latent && !cross));
    }
  }
  config.kind = "additive", config.cross = false;
  CHECK(message_of<Error>([&] { config.check(); }).find("[attention] additive attention cannot rotate") == 0);
}

TEST_CASE("every field survives the way through JSON") { check_every_field(AttentionConfig()); }

TEST_CASE("sizes that do not fit are refused by their names") {
  const auto refused = [](const std::function<void(AttentionConfig&)>& change) {
    AttentionConfig config;
    config.width = 12, config.heads = 4;
    change(config);
    return message_of<Error>([&] { config.check(); });
  };
  CHECK(refused([](auto&) {}) == "nothing was thrown");
  CHECK(refused([](auto& c) { c.groups = 2; }) ==
        "[attention] groups is for gqa, differential, nsa; got attention=mha, groups=2; try groups=0");
  CHECK(refused([](auto& c) { c.add_positions(PositionKind::alibi); }) == "nothing was thrown");
  for (const char* kind : {"mla", "differential", "additive"}) {
    AttentionConfig config;
    config.kind = kind;
    CHECK(message_of<Error>([&] { config.add_positions(PositionKind::buckets); }) ==
          std::string("[attention] positions=buckets are for mha, gqa, mqa; got attention=") + kind +
              "; try positions=learned");
  }
  CHECK(refused([](auto& c) { c.latent_width = 8; }) ==
        "[attention] latent_width is for mla; got attention=mha, latent_width=8; try latent_width=0");
  CHECK(refused([](auto& c) { c.rotary_width = 8; }).find("[attention] rotary_width is for mla; got") == 0);
  CHECK(refused([](auto& c) { c.kind = "additive", c.rotary = true; }) ==
        "[attention] additive attention cannot rotate queries and keys by rotary positions; got "
        "attention=additive, rotary positions; try sinusoidal or learned ones");
  CHECK(refused([](auto& c) { c.rotary = true; }) ==
        "[attention] rotary positions rotate pairs of a head's components; got attention=mha, components=3; "
        "try an even width of the heads");
  const auto turned = [&](const std::function<void(AttentionConfig&)>& change) {
    return refused([&](auto& c) { c.heads = 2, c.rotary = true, change(c); });
  };
  const auto wider = [](const char* kind, Index width, Index most) {
    return "[attention] rotary_components must be at most the " + std::to_string(most) +
           " that there are to rotate; got attention=" + kind + ", components=" + std::to_string(width) +
           "; try rotary_components=0";
  };
  CHECK(turned([](auto& c) { c.rotations.width = 6; }) == "nothing was thrown");
  CHECK(turned([](auto& c) { c.rotations.width = 8; }) == wider("mha", 8, 6));
  CHECK(turned([](auto& c) { c.rotations.width = 8, c.rotary = false; }) == "nothing was thrown");
  CHECK(turned([](auto& c) { c.kind = "mla", c.rotary_width = 4, c.rotations.width = 6; }) ==
        wider("mla", 6, 4));
  CHECK(turned([](auto& c) { c.kind = "differential", c.key_width = 8, c.rotations.width = 6; }) ==
        wider("differential", 6, 4));
  CHECK(turned([](auto& c) { c.kind = "differential"; }) == "nothing was thrown");  // two of three
  CHECK(turned([](auto& c) {
          c.rotations.original_context = 8, c.rotations.low_frequency = 5;
        }).find("[rotary] low_frequency must be below high_frequency") == 0);
  CHECK(refused([](auto& c) { c.form = LatentForm::naive; }) ==
        "[attention] form is for mla; got attention=mha, form=naive; try form=automatic");
  CHECK(refused([](auto& c) { c.own["colour"] = 3; }) ==
        "[attention] colour is for no known kind; got attention=mha, colour=3; try leaving it out");
  CHECK(refused([](auto& c) { c.heads = 6, c.rotary = true; }) == "nothing was thrown");
  CHECK(refused([](auto& c) { c.kind = "mla", c.rotary = true; }) == "nothing was thrown");
}
