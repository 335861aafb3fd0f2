#include <tapeformer/autograd/ops/attention.h>
#include <tapeformer/tests/autograd/ops/op_case.h>
#include <tapeformer/tests/reference/text.h>

using namespace tapeformer;

namespace {

const Shape kQuery{2, 3, 4, 5}, kKey{2, 6, 2, 5};

template <class E = ShapeError>
std::string says(const AttentionOptions& options, const Shape& query = kQuery, const Shape& key = kKey,
                 const Shape& value = kKey) {
  return message_of<E>([&] {
    scaled_dot_product_attention(Tensor::zeros(query), Tensor::zeros(key), Tensor::zeros(value), options);
  });
}

/// Options that `set` changes are refused with `part` of a message.
template <class E = ShapeError, class F>
void refuses(const std::string& part, const F& set, const Shape& query = kQuery, const Shape& key = kKey) {
  AttentionOptions options;
  set(options);
  CHECK(has(says<E>(options, query, key, key), part));
}

template <class E = ShapeError, class C, class T, class Value>
void refuses_value(const std::string& part, T C::*option, const Value& value, const Shape& query = kQuery,
                   const Shape& key = kKey) {
  const auto set = [&](AttentionOptions& o) { o.*option = value; };
  refuses<E>(part, set, query, key);
}

}  // namespace

TEST_CASE("shapes that do not fit are refused with the rule, all shapes and a remedy") {
  CHECK(says({}, {2, 3, 5}) ==
        "[scaled_dot_product_attention] query must be [B, T, H, D], key [B, S, G, D], value [B, S, G, E]; "
        "got query=f32[2,3,5], key=f32[2,6,2,5], value=f32[2,6,2,5]; try reshape with one head, "
        "[B, T, 1, D]");
  CHECK(has(says({}, kQuery, {2, 6, 2, 7}), "query and key must agree in B and D; got"));
  CHECK(has(says({}, {1, 3, 4, 5}), "query and key must agree in B and D; got"));
  CHECK(has(says({}, kQuery, kKey, {2, 7, 2, 5}), "key and value must agree in B, S and G; got"));
  for (const Index heads : {3, 0}) {
    const Shape query{2, 3, heads, 5};
    CHECK(has(says({}, query), "H must be a multiple of G, and both positive; got query=f32" + query.text()));
  }
  CHECK(has(says({}, kQuery, {2, 6, 0, 5}, {2, 6, 0, 5}), "H must be a multiple of G, and both positive"));
  CHECK(has(
      message_of<ShapeError>([] {
        composed_attention(Tensor::zeros(kQuery), Tensor::zeros({2, 6, 3, 5}), Tensor::zeros({2, 6, 3, 5}));
      }),
      "[composed_attention] H must be a multiple of G"));
  AttentionOptions blocks;
  blocks.block_size = 2;
  CHECK(has(message_of<ShapeError>([&] {
              composed_attention(Tensor::zeros(kQuery), Tensor::zeros(kKey), Tensor::zeros(kKey), blocks);
            }),
            "[composed_attention] the choice of blocks is not composed; got block_size=2; try scaled_"));
}

TEST_CASE("packed projections that do not fit are refused") {
  const auto says_packed = [](const Shape& packed, const PackedHeads& heads) {
    return message_of<ShapeError>([&] { packed_attention(Tensor::zeros(packed), heads); });
  };
  CHECK(says_packed({2, 3, 40}, {4, 2, 5, 6}) ==
        "[packed_attention] packed must be [B, T, H D + G D + G E]; got packed=f32[2,3,40], heads=4, "
        "groups=2, key_width=5, value_width=6; try a projection of PackedHeads::width() outputs");
  CHECK(has(says_packed({2, 42}, {4, 2, 5, 6}), "packed must be"));
  CHECK(has(says_packed({2, 3, 42}, {4, 3, 5, 6}), "heads must be a multiple of groups"));
  for (const PackedHeads& heads : {PackedHeads{4, 0, 5, 6}, {0, 2, 5, 6}, {-2, 2, 5, 6}, {4, 2, -5, 6}}) {
    CHECK(has(says_packed({2, 3, 42}, heads),
              "heads must be a multiple of groups, both positive, and no width negative"));
  }
}

TEST_CASE("masks of other shapes or types are refused") {
  refuses_value("key_mask must be [B, S] and query_mask [B, T]; got key_mask=bool[1,3], query=",
                &AttentionOptions::key_mask, booleans({1, 1, 1}, {1, 3}));
  refuses_value("got query_mask=bool[2,6]", &AttentionOptions::query_mask,
                Tensor::full({2, 6}, 1, DType::boolean));
  refuses_value<DTypeError>("must be bool; got key_mask=f32[2,6]", &AttentionOptions::key_mask,
                            Tensor::zeros({2, 6}));
  for (const Shape& shape : {Shape{9, 1, 1, 1, 6}, {1, 1, 1, 1, 6}, {5}, {3, 3, 6}}) {
    refuses_value("the mask must broadcast to [B, H, T, S]; got mask=f32" + shape.text(),
                  &AttentionOptions::mask, Tensor::zeros(shape));
  }
  refuses_value<DTypeError>("the mask must be bool or of the query's type; got mask=f64[3,6]",
                            &AttentionOptions::mask, Tensor::zeros({3, 6}, DType::f64));
}

TEST_CASE("modifiers of the scores that do not fit are refused") {
  refuses_value(
      "[scaled_dot_product_attention] sinks must be [H]; got sinks=f32[3], query=f32[2,3,4,5], "
      "key=f32[2,6,2,5], value=f32[2,6,2,5]; try one number for each head of the query",
      &AttentionOptions::sinks, Tensor::zeros({3}));
  refuses_value<DTypeError>(
      "score_parameter, relative_bias and sinks must have the wide type; got sinks=f64[4]",
      &AttentionOptions::sinks, Tensor::zeros({4}, DType::f64));
  for (const Shape& shape : {Shape{4, 9}, {2, 11}, {4, 12}, {11}}) {
    refuses_value(
        "relative_bias must be [H, 2 R + 1] or [1, 2 R + 1] with R at least max(T, S) - 1; got "
        "relative_bias=f32" +
            shape.text(),
        &AttentionOptions::relative_bias, Tensor::zeros(shape));
  }
  const auto of_softcap = [](auto& o) { o.score_function = ScoreFunction::softcap; };
  const char* const both = "score_function and score_parameter must be given together; got query=";
  refuses(both, of_softcap);
  refuses(both, [](auto& o) { o.score_parameter = Tensor::zeros({1}); });
  refuses("score_parameter must be [1] or [H]; got score_parameter=f32[2]",
          [&](auto& o) { of_softcap(o), o.score_parameter = Tensor::zeros({2}); });
  refuses("sinks belong to softmax; with sigmoid weights there is no sum for them to join",
          [](auto& o) { o.sinks = Tensor::zeros({4}), o.weighting = AttentionWeighting::sigmoid; });
}

TEST_CASE("lengths out of range are refused") {
  refuses_value("key_lengths must be i32 and at most the number of keys; got 7 at [1] of key_lengths=i32[2]",
                &AttentionOptions::key_lengths, integers({6, 7}, {2}));
  refuses_value("got -1 at [0]", &AttentionOptions::key_lengths, integers({-1, 2}, {2}));
  refuses_value("got key_lengths=i32[1]", &AttentionOptions::key_lengths, integers({2}, {1}));
  refuses_value<DTypeError>("got key_lengths=f32[2]", &AttentionOptions::key_lengths, Tensor::zeros({2}));
  refuses_value("prefix_lengths must be i32 and not negative; got -2 at [1] of prefix_lengths=i32[2]",
                &AttentionOptions::prefix_lengths, integers({0, -2}, {2}));
  refuses("got 3 at [1] of key_lengths=i32[2]",
          [](auto& o) {
            o.query_starts = integers({0, 1, 3}, {3}), o.key_starts = integers({0, 4, 6}, {3});
            o.key_lengths = integers({4, 3}, {2});
          },
          {1, 3, 4, 5}, {1, 6, 2, 5});
}

TEST_CASE("packed sequences must rise from 0 to the end, in one batch entry") {
  const Shape query{1, 6, 4, 5}, key{1, 6, 2, 5};
  for (const std::vector<std::int32_t>& starts :
       {std::vector<std::int32_t>{1, 6}, {0, 5}, {0, 4, 3, 6}, {0}}) {
    refuses_value("query_starts must rise from 0 to T, and key_starts from 0 to S",
                  &AttentionOptions::query_starts, Tensor::from(starts), query, key);
  }
  refuses_value("packed sequences must have B = 1; got query_starts=i32[2]", &AttentionOptions::query_starts,
                integers({0, 3}, {2}));
  refuses_value("key_starts may be left out only with as many keys as queries",
                &AttentionOptions::query_starts, integers({0, 3}, {2}), {1, 3, 4, 5}, key);
  refuses(
      "query_starts and key_starts must name the same number of sequences",
      [](auto& o) {
        o.query_starts = integers({0, 6}, {2}), o.key_starts = integers({0, 3, 6}, {3});
      },
      query, key);
  refuses_value("key_starts need query_starts", &AttentionOptions::key_starts, integers({0, 6}, {2}), query,
                key);
  refuses_value<DTypeError>("must be i32; got query_starts=f32[2]", &AttentionOptions::query_starts,
                            Tensor::zeros({2}), query, key);
  refuses_value("must be [N + 1]; got query_starts=i32[1,2]", &AttentionOptions::query_starts,
                integers({0, 6}, {1, 2}), query, key);
}

TEST_CASE("numbers out of range are refused") {
  refuses_value("window_before and window_after must not be negative; got window_before=-2, window_after=-1",
                &AttentionOptions::window_before, -2);
  refuses_value("window_after=-2", &AttentionOptions::window_after, -2);
  for (const double dropout : {-0.1, 1.0, kNan}) {
    refuses_value("dropout must be in [0, 1); got dropout=", &AttentionOptions::dropout, dropout);
  }
  for (const double scale : {kInfinity, kNan}) {
    refuses_value("scale must be finite; got scale=", &AttentionOptions::scale, scale);
  }
}
