#include <tapeformer/autograd/error.h>
#include <tapeformer/nn/transformer/layer_caches.h>
#include <tapeformer/tests/nn/generation/language_case.h>

#include <doctest/doctest.h>

using namespace tapeformer;

namespace {

DecoderOnly model_of(const std::string& attention, Index convolution = 0) {
  DecoderOnlyConfig config = language_config({attention, PositionKind::learned}, 20);
  config.short_convolution = convolution;
  return language_model(config);
}

const Tensor& cached_ids() {
  static const Tensor all = ids_of({2, 4, 7, 5, 6, 8, 2, 5, 5, 9, 1, 4, 2, 8, 6, 6, 7, 10}, {3, 6});
  return all;
}

}  // namespace

TEST_SUITE("nn/transformer/layer_caches") {
  TEST_CASE("tokens taken in any portions give what they give at once, and are forgotten all at once") {
    const SingleThread guard;
    for (const auto& [attention, convolution] :
         {std::pair("mha", 0), std::pair("mha", 4), std::pair("mla", 1), std::pair("mla", 9)}) {
      const DecoderOnly model = model_of(attention, convolution);
      const Tensor expected = model.states(cached_ids());
      for (const CacheKind kind : {CacheKind::contiguous, CacheKind::paged}) {
        LayerCaches caches = model.start({kind, 0, 2});
        for (const std::vector<Index>& portions :
             std::vector<std::vector<Index>>{{6}, {1, 5}, {4, 2}, {2, 1, 3}}) {
          CHECK(caches.length() == 0);
          CHECK(caches.rows() == 0);
          for (const Index portion : portions) {
            const Index first = caches.length();
            const Tensor states = model.states(columns(cached_ids(), first, portion), caches);
            CHECK_BELOW(relative_error(states, slice(expected, 1, first, portion)), 1e-13);
            CHECK(caches.layer(0).length() == first + portion);
            CHECK(caches.layer(1).length() == first + portion);
          }
          CHECK(caches.length() == 6);
          CHECK(caches.rows() == 3);
          caches.clear();
          CHECK(caches.bytes() == 0);
        }
      }
    }
  }

  TEST_CASE("rows take their tokens along, in every layer") {
    const SingleThread guard;
    const DecoderOnly model = model_of("mqa", 3);
    const std::vector<std::int32_t> order = {2, 0, 0, 1};
    std::vector<std::int32_t> picked;
    for (const std::int32_t row : order)
      picked.insert(picked.end(), cached_ids().data<std::int32_t>() + 6 * row,
                    cached_ids().data<std::int32_t>() + 6 * row + 6);
    const Tensor rows = ids_of(picked, {4, 6});
    const Tensor expected = model.states(rows);
    for (const CacheKind kind : {CacheKind::contiguous, CacheKind::paged}) {
      LayerCaches caches = model.start({kind, 0, 2});
      caches.reorder(order);  // of nothing
      model.states(columns(cached_ids(), 0, 3), caches);
      caches.reorder(order);
      CHECK(caches.rows() == 4);
      CHECK_BELOW(relative_error(model.states(columns(rows, 3, 3), caches), slice(expected, 1, 3, 3)), 1e-13);
      CHECK(message_of<ShapeError>([&] {
              caches.reorder({0, 4});
            }) == "[kv_cache] reorder takes rows that are there; got row 4 of 4");
      CHECK(caches.rows() == 4);
    }
  }

  TEST_CASE("a length of none starts over in the same memory, convolutions too") {
    const SingleThread guard;
    const DecoderOnly model = model_of("mha", 4);
    const Tensor expected = model.states(cached_ids());
    LayerCaches caches = model.start();
    model.states(columns(cached_ids(), 0, 3), caches);
    caches.set_length(0);
    for (const Index first : {0, 2, 4}) {
      const Tensor states = model.states(columns(cached_ids(), first, 2), caches);
      CHECK_BELOW(relative_error(states, slice(expected, 1, first, 2)), 1e-13);
    }
  }

  TEST_CASE("bytes are those of the tokens in every layer") {
    const SingleThread guard;
    const DecoderOnly model = model_of("mha");
    LayerCaches caches = model.start();
    CHECK(caches.bytes() == 0);
    model.states(cached_ids(), caches);
    const Index held = 2 * 3 * 6 * (16 + 16) * 8;  // layers, rows, tokens, key and value, double
    CHECK(caches.bytes() == held);
    const DecoderOnly convolving = model_of("mha", 4);
    LayerCaches more = convolving.start();
    convolving.states(cached_ids(), more);
    CHECK(more.bytes() == held + 2 * 2 * 3 * 3 * 16 * 8);  // layers, sublayers, rows, tokens, width
  }
}
