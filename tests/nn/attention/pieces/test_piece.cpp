#include <tapeformer/tests/nn/attention/multi_head_case.h>

using namespace tapeformer;

TEST_CASE("a layer with any two pieces gives the same packed and apart, at once and through a cache") {
  const SingleThread guard;
  const std::vector<PieceCase> cases = AttentionPieces::cases();
  for (const PieceCase& first : cases) {
    for (const PieceCase& second : cases) {
      if (default_device().is_cuda() && &second < &first) continue;  // half of them in an emulator
      CAPTURE(std::string(first.name));
      CAPTURE(std::string(second.name));
      const bool is_one = &first == &second;  // which is tried over many tokens, in both caches
      const AttentionConfig config = layer_config(first.kind, [&](AttentionConfig& c) {
        first.choose(c);
        if (!is_one) second.choose(c);
      });
      if (message_of<Error>([&] { config.check(); }) != "nothing was thrown") continue;
      MultiHeadAttention layer = random_module<MultiHeadAttention>(config);
      const LayerInputs in(config, is_one ? cached_tokens() : 9);
      const Tensor whole = layer(in.x, in.x, in.context());
      CHECK_BELOW(relative_error(decoded(layer, in, CacheKind::contiguous), whole), 1e-12);
      if (is_one) CHECK_BELOW(relative_error(decoded(layer, in, CacheKind::paged), whole), 1e-12);
      if (config.kind != "mha") continue;
      const MultiHeadAttention apart = taken_apart(config, layer);
      CHECK_BELOW(relative_error(apart(in.x, in.x, in.context()), whole), 1e-13);
      CHECK_BELOW(relative_error(decoded(apart, in, CacheKind::contiguous), whole), 1e-12);
    }
  }
}

TEST_CASE("a layer that shares keys attends to another layer's, cached or not") {
  for (const PieceCase& one : AttentionPieces::cases()) {
    CAPTURE(std::string(one.name));
    const AttentionConfig config = layer_config("gqa", one.choose);
    AttentionConfig shares = config;
    shares.shared_keys = true;
    if (message_of<Error>([&] { shares.check(); }) != "nothing was thrown") continue;
    MultiHeadAttention maker = random_module<MultiHeadAttention>(config),
                       reader = random_module<MultiHeadAttention>(shares);
    const std::map<std::string, Tensor> p = parameters_of(maker);
    for (auto& [name, parameter] : reader.named_parameters()) {
      const bool is_query = name == "query.weight" || name == "query.bias";
      const Tensor& whole = p.at(is_query ? "query_key_value" + name.substr(5) : name);
      parameter.set_value(is_query ? slice(whole, 0, 0, config.heads * config.key_width) : whole);
    }
    CHECK(reader.cache_widths().key == 0);
    const LayerInputs in(config, 8);
    KeyValueHeads made;
    AttentionContext making = in.context(), reading = making;
    making.new_kv = &made;
    const Tensor whole = maker(in.x, in.x, making);
    reading.shared = made;
    CHECK_BELOW(relative_error(reader(in.x, in.x, reading), whole), 1e-13);
    const auto cache = make_cache({}, maker.cache_widths());
    for (Index t = 0; t < 8; t += 2) {
      AttentionContext step = in.context(t, 2);
      step.cache = cache.get(), step.new_kv = &made;
      const Tensor piece = slice(in.x, 1, t, 2);
      AttentionContext read = step;
      read.angles = maker.angles(piece, step);  // before the cache grows
      const Tensor expected = maker(piece, piece, step);
      read.new_kv = nullptr, read.shared = made;
      CHECK_BELOW(relative_error(reader(piece, piece, read), expected), 1e-13);
      CHECK_BELOW(relative_error(expected, slice(whole, 1, t, 2)), 1e-13);
    }
  }
}
