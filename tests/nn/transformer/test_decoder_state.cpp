#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/ops/picked_rows.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/tests/nn/generation/decoding_case.h>

#include <doctest/doctest.h>

using namespace tapeformer;

namespace {

EncoderDecoder model_of() { return decoding_model(decoder_kinds()[0], 20, DType::f64, 0); }

const Tensor& state_source() {
  static const Tensor ids = ids_of({4, 6, 3, 0, 0, 5, 4, 6, 9, 3, 8, 3, 0, 0, 0}, {3, 5});
  return ids;
}
const Tensor& state_source_mask() {
  static const Tensor mask = real_tokens({3, 5, 2}, 5);
  return mask;
}
const Tensor& state_target() {
  static const Tensor ids = ids_of({2, 4, 7, 5, 6, 8, 2, 5, 5, 9, 1, 4, 2, 8, 6, 6, 7, 10}, {3, 6});
  return ids;
}

}  // namespace

TEST_SUITE("nn/transformer/decoder_state") {
  TEST_CASE("tokens taken in any portions give what they give at once") {
    const SingleThread guard;
    const EncoderDecoder model = model_of();
    const Tensor memory = model.encode(state_source(), state_source_mask());
    const Tensor expected = model.decode(state_target(), memory, state_source_mask());
    for (const CacheKind kind : {CacheKind::contiguous, CacheKind::paged}) {
      for (const std::vector<Index>& portions :
           std::vector<std::vector<Index>>{{6}, {1, 5}, {4, 2}, {2, 1, 3}}) {
        DecoderState state = model.start(memory, state_source_mask(), {kind, 0, 2});
        for (const Index portion : portions) {
          const Index first = state.length();
          const Tensor states = model.decode(columns(state_target(), first, portion), state);
          CHECK_BELOW(relative_error(states, slice(expected, 1, first, portion)), 1e-13);
        }
        CHECK(state.length() == 6);
      }
    }
  }

  TEST_CASE("rows take their tokens, their memory and its mask along, before the first token and after") {
    const SingleThread guard;
    const EncoderDecoder model = model_of();
    const Tensor memory = model.encode(state_source(), state_source_mask());
    const std::vector<std::int32_t> order = {2, 0, 0, 1};
    const Tensor rows = picked_rows(state_target(), order);
    const Tensor expected =
        model.decode(rows, picked_rows(memory, order), picked_rows(state_source_mask(), order));
    for (const CacheKind kind : {CacheKind::contiguous, CacheKind::paged}) {
      DecoderState early = model.start(memory, state_source_mask(), {kind, 0, 2});
      early.reorder(order);
      CHECK_BELOW(relative_error(model.decode(rows, early), expected), 1e-13);
      DecoderState late = model.start(memory, state_source_mask(), {kind, 0, 2});
      model.decode(columns(state_target(), 0, 3), late);
      late.reorder(order);
      CHECK_BELOW(relative_error(model.decode(columns(rows, 3, 3), late), slice(expected, 1, 3, 3)), 1e-13);
      late.reorder({0, 2, 1, 3});  // rows 1 and 2 read the same memory
      late.tokens().clear();
      CHECK(late.length() == 0);
      CHECK_BELOW(relative_error(model.decode(rows, late), expected), 1e-13);
      CHECK(message_of<ShapeError>([&] {
              late.reorder({0, 4});
            }) == "[decoder_state] reorder takes rows that are there; got row 4 of 4");
    }
  }

  TEST_CASE("bytes are those of the tokens and of the memory, in every layer") {
    const SingleThread guard;
    const EncoderDecoder model = model_of();
    DecoderState state = model.start(model.encode(state_source(), state_source_mask()), state_source_mask());
    CHECK(state.bytes() == 0);
    model.decode(state_target(), state);
    CHECK(state.bytes() == 2 * 3 * (6 + 5) * (16 + 16) * 8);  // layers, rows, tokens, key and value, double
    state.tokens().clear();
    CHECK(state.bytes() == 2 * 3 * 5 * (16 + 16) * 8);
  }
}
