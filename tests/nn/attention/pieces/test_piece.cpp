#include <tapeformer/tests/nn/attention/multi_head_case.h>

using namespace tapeformer;

namespace {

AttentionConfig with_piece(const PieceCase& one) { return layer_config(one.kind, one.choose); }

/// Packed and apart, at once and through a cache.
void check_ways(AttentionConfig config, Index length) {
  MultiHeadAttention layer = random_module<MultiHeadAttention>(config);
  const LayerInputs in(config, length);
  const Tensor whole = layer(in.x, in.x, in.context());
  CHECK_BELOW(relative_error(decoded(layer, in, CacheKind::contiguous), whole), 1e-12);
  if (config.kind != "mha") return;
  const MultiHeadAttention apart = taken_apart(config, layer);
  CHECK_BELOW(relative_error(apart(in.x, in.x, in.context()), whole), 1e-13);
  CHECK_BELOW(relative_error(decoded(apart, in, CacheKind::contiguous), whole), 1e-12);
}

}  // namespace

TEST_CASE("a layer with any two pieces gives the same packed and apart, at once and through a cache") {
  const SingleThread guard;
  const std::vector<PieceCase> cases = AttentionPieces::cases();
  for (const PieceCase& first : cases) {
    for (const PieceCase& second : cases) {
      CAPTURE(std::string(first.name));
      CAPTURE(std::string(second.name));
      AttentionConfig config = with_piece(first);
      second.choose(config);
      if (message_of<Error>([&] { config.check(); }) != "nothing was thrown") continue;
      check_ways(config, 9);
    }
  }
}

TEST_CASE("every piece computes the same through a cache as at once, over 200 tokens") {
  const SingleThread guard;
  for (const PieceCase& one : AttentionPieces::cases()) {
    CAPTURE(std::string(one.name));
    const AttentionConfig config = with_piece(one);
    MultiHeadAttention layer = random_module<MultiHeadAttention>(config);
    const LayerInputs in(config, cached_tokens(), 1);
    const Tensor whole = layer(in.x, in.x, in.context());
    for (const CacheKind kind : {CacheKind::contiguous, CacheKind::paged})
      CHECK_BELOW(relative_error(decoded(layer, in, kind), whole), 1e-12);
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
