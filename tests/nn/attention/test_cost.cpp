#include <tapeformer/autograd/profile.h>
#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/nn/attention/attention_kind.h>
#include <tapeformer/tests/reference/native_sparse.h>

#include <doctest/doctest.h>

using namespace tapeformer;

namespace {

/// The cost as measured by tape, profile, module and cache.
AttentionCost measured_cost(Attention& layer, const AttentionConfig& config, const AttentionCall& call,
                            const std::function<void(AttentionContext&)>& change) {
  const auto or_width = [&](Index given) { return given > 0 ? given : config.width; };
  Generator random(test_seed(3));
  layer.to(call.type);
  layer.train();
  const Tensor query = random_normal({call.batch, call.queries, config.width}, random, call.type);
  const bool cross = call.keys > 0;
  const Shape of_memory{call.batch, call.keys, or_width(config.memory_width)};
  const Tensor memory = cross ? random_normal(of_memory, random, call.type) : query;
  AttentionCost cost;
  cost.parameters = layer.parameter_count();
  {
    const Profile profile;
    Tape tape;
    tape.watch(query);
    tape.watch(memory);
    AttentionContext context;
    context.causal = call.causal;
    if (call.window > 0) context.window_before = call.window - 1;
    change(context);
    const Tensor y = layer(query, memory, context);
    CHECK(y.shape() == Shape{call.batch, call.queries, or_width(config.output_width)});
    const TapeMemory kept = tape.memory();
    cost.activation_bytes = kept.saved_bytes - kept.parameter_bytes;
    tape.backward(y, Tensor::full(y.shape(), 1, call.type));
    cost.forward_flops = profile.flops(false);
    cost.backward_flops = profile.flops(true);
  }
  const CacheWidths widths = layer.cache_widths();
  if (widths.key == 0 && widths.state == 0) return cost;  // it attends to the keys of another layer
  for (const CacheKind kind : {CacheKind::contiguous, CacheKind::paged}) {
    const std::unique_ptr<KvCache> cache = make_cache({kind, 0, 1}, layer.cache_widths());
    AttentionContext context;
    context.cache = cache.get();
    context.causal = call.causal && !cross;
    change(context);
    layer(query, memory, context);
    const Index tokens = cache->rows() * cache->length(), has_state = layer.cache_widths().state > 0;
    REQUIRE(tokens == call.batch * (cross ? call.keys : call.queries));
    const Index parts = has_state ? call.batch : tokens;
    CHECK(cache->bytes() % parts == 0);
    (has_state ? cost.cache_bytes_per_row : cost.cache_bytes_per_token) = cache->bytes() / parts;
  }
  return cost;
}

void check_equal(const AttentionCost& formula, const AttentionCost& measured) {
  CHECK(formula.parameters == measured.parameters);
  CHECK(formula.forward_flops == measured.forward_flops);
  CHECK(formula.backward_flops == measured.backward_flops);
  CHECK(formula.activation_bytes == measured.activation_bytes);
  CHECK(formula.cache_bytes_per_token == measured.cache_bytes_per_token);
  CHECK(formula.cache_bytes_per_row == measured.cache_bytes_per_row);
}

void check_config(const AttentionConfig& config, const AttentionCall& call) {
  INFO(config.kind, ", width ", config.width, ", bias ", config.bias, ", rotary ", config.rotary, ", batch ",
       call.batch, ", queries ", call.queries, ", keys ", call.keys, ", causal ", call.causal, ", window ",
       call.window);
  Generator random(test_seed(1));
  const std::unique_ptr<Attention> layer = make_attention(config, random);
  const auto give = [&](AttentionContext& context) {
    const AttentionConfig full = config.resolved();
    const auto heads = [&](Index width) {
      const Tensor x = random_normal({call.batch, call.queries, full.key_heads(), width}, random, call.type);
      if (Tape* tape = Tape::current()) tape->watch(x);
      return x;
    };
    const Tensor value = heads(full.value_width);
    context.first_values = value;
    if (full.shared_keys) context.shared = {heads(full.key_width), value};
  };
  check_equal(attention_cost(config, call), measured_cost(*layer, config, call, give));
}

AttentionConfig config_of(const std::string& kind, Index width, Index heads) {
  AttentionConfig config(kind, heads);
  config.width = width;
  return config;
}

std::vector<AttentionCall> self_calls() {
  std::vector<AttentionCall> calls(4);
  calls[0].queries = 1;
  calls[1].batch = 2, calls[1].queries = 7;
  calls[2].batch = 3, calls[2].queries = 33, calls[2].causal = true;
  calls[3].batch = 1, calls[3].queries = default_device().is_cuda() ? 70 : 130, calls[3].causal = true,
  calls[3].type = DType::f64;
  return calls;
}

std::vector<AttentionCall> cross_calls() {
  std::vector<AttentionCall> calls(3);
  calls[0].batch = 2, calls[0].queries = 5, calls[0].keys = 9;
  calls[1].batch = 1, calls[1].queries = 4, calls[1].keys = 11, calls[1].causal = true;
  calls[2].batch = 2, calls[2].queries = 9, calls[2].keys = 4, calls[2].causal = true;
  calls[2].type = DType::f64;
  return calls;
}

}  // namespace

TEST_CASE("causal pairs, of which a window leaves each query as many keys at most") {
  struct Case {
    Index queries, keys, window, pairs;
  };
  for (const Case& c :
       {Case{4, 0, 0, 1 + 2 + 3 + 4}, Case{4, 6, 0, 3 + 4 + 5 + 6}, Case{4, 2, 0, 0 + 0 + 1 + 2},
        Case{5, 0, 3, 1 + 2 + 3 + 3 + 3}, Case{5, 7, 3, 5 * 3}, Case{5, 7, 5, 3 + 4 + 5 + 5 + 5},
        Case{5, 7, 100, 3 + 4 + 5 + 6 + 7}, Case{5, 2, 1, 0 + 0 + 0 + 1 + 1}}) {
    AttentionCall call;
    call.queries = c.queries, call.keys = c.keys, call.window = c.window;
    CHECK(visible_pair_count(call) == c.queries * (c.keys > 0 ? c.keys : c.queries));
    call.causal = true;
    CHECK(visible_pair_count(call) == c.pairs);
  }
}

TEST_CASE("every piece, any two of them, shared keys and windows cost what formulas say") {
  const std::vector<PieceCase> cases = AttentionPieces::cases();
  const auto check = [](const AttentionConfig& config, AttentionCall call) {
    if (message_of<Error>([&] { config.check(); }) != "nothing was thrown") return;
    check_config(config, call);
    if (!call.causal) return;
    call.window = 9;
    check_config(config, call);
  };
  const std::vector<AttentionCall> calls = self_calls();
  for (const PieceCase& one : cases) {
    for (const char* const kind : {"mha", "gqa", "mqa"}) {
      for (const bool packed : {true, false}) {
        for (const bool shared_keys : {true, false}) {
          if (!packed && kind != std::string("mha")) continue;
          INFO(std::string(one.name), ", packed ", packed, ", shared keys ", shared_keys);
          AttentionConfig config = config_of(kind, 24, 4);
          config.packed = packed, config.key_width = 6, config.value_width = 5;
          config.shared_keys = shared_keys;
          one.choose(config);
          for (std::size_t i = 1; i < calls.size(); ++i) check(config, calls[i]);  // one bias may be a view
        }
      }
    }
    for (const PieceCase& other : cases) {
      INFO(std::string(one.name), " and ", std::string(other.name));
      AttentionConfig config = config_of("gqa", 24, 4);
      config.key_width = 6, config.value_width = 5;
      one.choose(config), other.choose(config);
      check(config, calls[1]);
    }
  }
}

TEST_CASE("every formula says what module, profile, tape and cache measure") {
  for (const AttentionKind& kind : attention_kinds()) {
    if (!kind.add_cost) continue;
    for (AttentionCall call : self_calls()) {
      if (kind.can & kOnlyCausal) call.causal = true;
      check_config(config_of(kind.name, 24, 4), call);
      AttentionConfig config = config_of(kind.name, 10, 6);
      config.key_width = 6, config.value_width = 5, config.output_width = 13, config.bias = false;
      config.rotary = kind.can & kCanRotate;
      if (kind.uses("groups")) config.groups = 3;
      if (kind.uses("latent_width")) {
        config.latent_width = 7, config.rotary_width = 2, config.query_latent_width = 9;
      }
      if (kind.uses("convolution_taps")) config.own["convolution_taps"] = 0;
      config = with_small_blocks(config);
      if (kind.uses("decay_rank")) config.own["decay_rank"] = 3;
      check_config(config, call);
      if (!kind.uses("state_heads")) continue;
      config.own["state_heads"] = 4, config.own["state_key_heads"] = 2, config.own["state_key_width"] = 3;
      if (kind.uses("beta_scale")) config.own["beta_scale"] = 2;
      check_config(config, call);
    }
    for (const AttentionCall& call : cross_calls()) {
      if (kind.can & kOnlyCausal) break;
      AttentionConfig config = config_of(kind.name, 12, 3);
      config.cross = true;
      config.memory_width = 14, config.output_width = 9, config.key_width = 4;
      check_config(config, call);
    }
  }
  AttentionConfig unpacked = config_of("mha", 24, 4);
  unpacked.packed = false;
  for (const AttentionCall& call : self_calls()) check_config(unpacked, call);
}

TEST_CASE("rotary positions of a few components keep as few cosines and sines") {
  for (const AttentionKind& kind : attention_kinds()) {
    if (!(kind.can & kCanRotate)) continue;
    AttentionConfig config = with_small_blocks(config_of(kind.name, 24, 2));
    config.rotary = true, config.rotations.width = 2;
    if (kind.uses("rotary_width")) config.rotary_width = 4;
    check_config(config, self_calls()[2]);
  }
}

TEST_CASE("next to bf16 the sums of rows and the cosines and sines of positions are kept in f32") {
  AttentionConfig config = config_of("mha", 24, 4);
  config.rotary = true;
  AttentionCall call;
  call.batch = 2, call.queries = 7;
  const Index in_f32 = attention_cost(config, call).activation_bytes;
  call.type = DType::bf16;
  CHECK(2 * attention_cost(config, call).activation_bytes - in_f32 == 4 * (2 * 7 * 4 + 7 * 6));
}

TEST_CASE("latent attention, naive and absorbed, with query latents and norms or without") {
  for (const LatentForm form : {LatentForm::naive, LatentForm::absorbed}) {
    for (const Index query_latents : {0, 9}) {
      for (const bool norm : {true, false}) {
        for (const Index rotary : {0, 4}) {
          AttentionConfig config;
          config.kind = "mla", config.cross = rotary == 0;
          config.width = 10, config.heads = 3, config.key_width = 6, config.value_width = 5;
          config.latent_width = 8, config.query_latent_width = query_latents;
          config.rotary_width = rotary, config.norm = norm, config.form = form;
          config.shared_key_rotation = norm || query_latents > 0;
          INFO("absorbed ", form == LatentForm::absorbed, ", query latents ", query_latents, ", norm ", norm,
               ", rotary ", rotary);
          for (const AttentionCall& call : self_calls()) check_config(config, call);
          if (rotary > 0) continue;
          for (const AttentionCall& call : cross_calls()) check_config(config, call);
        }
      }
    }
  }
}

TEST_CASE("latent attention to the keys that an indexer chooses") {
  for (const Index top_k : {2, 3, 100}) {
    for (const Index query_latents : {0, 9}) {
      AttentionConfig config("mla", 3);
      config.width = 10, config.key_width = 6, config.value_width = 5, config.latent_width = 8;
      config.query_latent_width = query_latents, config.rotary_width = 4;
      config.index_top_k = top_k, config.index_heads = 2, config.index_width = 7;
      INFO("top_k ", top_k, ", query latents ", query_latents);
      for (const AttentionCall& call : self_calls()) check_config(config, call);
    }
  }
}

TEST_CASE("decoding: the FLOPs of tokens that come after those in a cache") {
  const Index width = 24;
  AttentionCall call;
  call.batch = 2, call.queries = 3, call.cached = 5, call.causal = true;
  const auto check_decoding = [&](Attention& layer, const AttentionCost& formula) {
    Generator random(test_seed(4));
    layer.eval();
    CacheConfig config;
    config.capacity = call.cached + call.queries;  // no unused tokens for the naive form to project
    const std::unique_ptr<KvCache> cache = make_cache(config, layer.cache_widths());
    AttentionContext context;
    context.cache = cache.get(), context.causal = true;
    const Tensor before = random_normal({call.batch, call.cached, width}, random, DType::f32);
    layer(before, before, context);
    const Tensor fresh = random_normal({call.batch, call.queries, width}, random, DType::f32);
    const Profile profile;
    layer(fresh, fresh, context);
    CHECK(profile.flops(false) == formula.forward_flops);
  };
  Generator random(test_seed(1));
  for (const AttentionKind& kind : attention_kinds()) {
    if (!kind.add_cost) continue;
    CAPTURE(kind.name);
    const AttentionConfig config = with_small_blocks(config_of(kind.name, width, 4));
    check_decoding(*make_attention(config, random), attention_cost(config, call));
  }
  for (const LatentForm form : {LatentForm::naive, LatentForm::absorbed, LatentForm::automatic}) {
    for (const Index top_k : {0, 3}) {
      INFO("form ", static_cast<int>(form), ", top_k ", top_k);
      AttentionConfig config = config_of("mla", width, 4);
      config.latent_width = 7, config.rotary_width = 2, config.form = form, config.index_top_k = top_k;
      check_decoding(*make_attention(config, random), attention_cost(config, call));
    }
  }
}
