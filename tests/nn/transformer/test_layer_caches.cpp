#include <tapeformer/autograd/ops/embedding.h>
#include <tapeformer/nn/transformer/layer_caches.h>
#include <tapeformer/tests/nn/generation/decoding_case.h>
#include <tapeformer/tests/nn/generation/language_case.h>
#include <tapeformer/tests/nn/transformer/decoder_only_case.h>

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

EncoderDecoder translator_of() { return decoding_model(decoder_kinds()[0], 20, DType::f64, 0); }

const Tensor& state_source() {
  static const Tensor ids = ids_of({4, 6, 3, 0, 0, 5, 4, 6, 9, 3, 8, 3, 0, 0, 0}, {3, 5});
  return ids;
}
const Tensor& state_source_mask() {
  static const Tensor mask = real_tokens({3, 5, 2}, 5);
  return mask;
}

}  // namespace

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
        CHECK(caches.layer(0).rows() == 0);
        for (const Index portion : portions) {
          const Index first = caches.length();
          const Tensor states = model.states(columns(cached_ids(), first, portion), caches);
          CHECK_BELOW(relative_error(states, slice(expected, 1, first, portion)), 1e-13);
          CHECK(caches.layer(0).length() == first + portion);
          CHECK(caches.layer(1).length() == first + portion);
        }
        CHECK(caches.length() == 6);
        CHECK(caches.layer(0).rows() == 3);
        caches.clear();
        CHECK(caches.bytes() == 0);
      }
    }
  }
}

TEST_CASE_FIXTURE(SingleThread, "a length of 0 starts over in the same memory, convolutions too") {
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

TEST_CASE_FIXTURE(SingleThread, "bytes are those of the tokens in every layer") {
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

TEST_CASE("rows take their tokens, their memory and its mask along, before the first token and after") {
  const SingleThread guard;
  const EncoderDecoder model = translator_of();
  const Tensor memory = model.encode(state_source(), state_source_mask());
  const std::vector<std::int32_t> order = {2, 0, 0, 1};
  const Tensor rows = picked_rows(cached_ids(), order);
  const Tensor expected =
      model.decode(rows, picked_rows(memory, order), picked_rows(state_source_mask(), order));
  for (const CacheKind kind : {CacheKind::contiguous, CacheKind::paged}) {
    DecoderState early = model.start(memory, state_source_mask(), {kind, 0, 2});
    early.reorder(order);
    CHECK_BELOW(relative_error(model.decode(rows, early), expected), 1e-13);
    DecoderState late = model.start(memory, state_source_mask(), {kind, 0, 2});
    model.decode(columns(cached_ids(), 0, 3), late);
    late.reorder(order);
    CHECK_BELOW(relative_error(model.decode(columns(rows, 3, 3), late), slice(expected, 1, 3, 3)), 1e-13);
    late.reorder({0, 2, 1, 3});  // rows 1 and 2 read the same memory
    late.tokens().clear();
    CHECK(late.length() == 0);
    CHECK_BELOW(relative_error(model.decode(rows, late), expected), 1e-13);
    CHECK_THROWS_WITH_AS(late.reorder({0, 4}), "[decoder_state] reorder takes existing rows; got row 4 of 4",
                         ShapeError);
  }
}

TEST_CASE("a decoder's bytes are those of its tokens and of the memory, in every layer") {
  const SingleThread guard;
  const EncoderDecoder model = translator_of();
  DecoderState state = model.start(model.encode(state_source(), state_source_mask()), state_source_mask());
  CHECK(state.bytes() == 0);
  model.decode(cached_ids(), state);
  CHECK(state.bytes() == 2 * 3 * (6 + 5) * (16 + 16) * 8);  // layers, rows, tokens, key and value, double
  state.tokens().clear();
  CHECK(state.bytes() == 2 * 3 * 5 * (16 + 16) * 8);
}
