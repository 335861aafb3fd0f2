#include <tapeformer/autograd/ops/loss.h>
#include <tapeformer/nn/attention/attention_kind.h>
#include <tapeformer/nn/embedding.h>
#include <tapeformer/nn/linear.h>
#include <tapeformer/tests/autograd/graph_course.h>

#include <cmath>
#include <memory>
#include <string>

using namespace tapeformer;

// Only the GPU knows the starts and lengths of sequences: steps of batches that differ in them share a graph,
// and an error in them is reported later, with the CPU's message.

namespace {

constexpr Index kPackedTokens = 40;

using Ids = std::vector<std::int32_t>;

Tensor id_tensor(const Ids& ids) { return Tensor::from(ids).to(Device::cpu()); }

/// Steps as graphs give the same losses and weights as plain ones, and all batches share one graph: the first
/// step has no memory for gradients yet, the third is captured.
void check_one_graph(GraphCourse& plain, GraphCourse& graphs, const std::vector<Batch>& batches) {
  CHECK(plain.steps(batches) == graphs.steps(batches));
  check_same_state(plain, graphs);
  CHECK(graphs.replay->refusal() == "");
  check_counts(*graphs.replay, 2, 1, static_cast<Index>(batches.size()) - 3);
}

/// Attention of one kind over packed sequences.
class PackedModel : public Module {
 public:
  PackedModel(const std::string& kind, bool cross) : PackedModel(kind, cross, Generator(test_seed(3))) {}

  /// Batch: ids and targets [1, T], where sequences start, how many of their keys are there, positions; with
  /// a memory, its ids and starts.
  Tensor loss(const Batch& batch) const {
    AttentionContext context;
    context.causal = !cross_;
    context.query_starts = batch[2], context.key_lengths = batch[3];
    if (!cross_) context.positions = batch[4];
    if (cross_) context.key_starts = batch[5];
    const Tensor x = embedding_(batch[0]), memory = cross_ ? embedding_(batch[4]) : x;
    return cross_entropy(head_((*attention_)(x, memory, context)), batch[1]);
  }
  void visit(ParameterVisitor& visitor) override {
    visitor.child("embedding", embedding_);
    visitor.child("attention", *attention_);
    visitor.child("head", head_);
  }

 private:
  PackedModel(const std::string& kind, bool cross, Generator random)
      : cross_(cross),
        embedding_({kCourseVocabulary, 32, 1}, random),
        attention_(make_attention(config(kind, cross), random)),
        head_({32, kCourseVocabulary, true, {}}, random) {}
  static AttentionConfig config(const std::string& kind, bool cross) {
    AttentionConfig result;
    result.kind = kind, result.width = 32, result.heads = 2, result.cross = cross, result.dropout = 0.25;
    result.rotary = !cross && (attention_kind(kind).can & kCanRotate);
    return result;
  }

  bool cross_;
  Embedding embedding_;
  std::unique_ptr<Attention> attention_;
  Linear head_;
};

/// Starts of four sequences, as many as there are and empty ones after them.
const Ids kStarts[] = {{0, 10, 25, 33, 40}, {0, 40, 40, 40, 40}, {0, 1, 2, 3, 40},
                       {0, 0, 17, 17, 40},  {0, 20, 40, 40, 40}, {0, 7, 8, 39, 40}};

Batch packed_batch(const Ids& starts, bool cross, Generator& random) {
  Ids lengths, positions;
  for (std::size_t i = 0; i + 1 < starts.size(); ++i) {
    const std::int32_t tokens = starts[i + 1] - starts[i];
    lengths.push_back(tokens - tokens / 3);
    for (std::int32_t t = 0; t < tokens; ++t) positions.push_back(t);
  }
  Batch batch{random_ids({1, kPackedTokens}, kCourseVocabulary, random),
              random_ids({1, kPackedTokens}, kCourseVocabulary, random), id_tensor(starts),
              id_tensor(lengths)};
  if (!cross) batch.push_back(id_tensor(positions));
  if (cross)
    batch.push_back(random_ids({1, kPackedTokens}, kCourseVocabulary, random)),
        batch.push_back(id_tensor(starts));
  return batch;
}

struct Kind {
  std::string kind;
  bool cross;
};
const Kind kKinds[] = {{"mha", false},      {"gqa", false}, {"mla", false},
                       {"additive", false}, {"mha", true},  {"additive", true}};

DecoderOnly prefix_model() {
  return course_model([](DecoderOnlyConfig& config) { config.prefix = true; });
}

Batch prefix_batch(const Ids& lengths, Generator& random) {
  const Shape shape{static_cast<Index>(lengths.size()), 9};
  return {random_ids(shape, kCourseVocabulary, random), random_ids(shape, kCourseVocabulary, random),
          id_tensor(lengths)};
}

GraphCourse::Loss loss_of(const DecoderOnly& model) {
  return [&model](const Batch& x) { return model.loss(x[0], x[1], x[2]); };
}
GraphCourse::Loss loss_of(const PackedModel& model) {
  return [&model](const Batch& x) { return model.loss(x); };
}

}  // namespace

TEST_CASE("packed sequences that start elsewhere each time, some empty, are one graph, to the same bits") {
  for (const Kind& kind : kKinds) {
    CAPTURE(kind.kind);
    CAPTURE(kind.cross);
    PackedModel plain_model(kind.kind, kind.cross), model(kind.kind, kind.cross);
    GraphCourse plain(plain_model, loss_of(plain_model), 0), graphs(model, loss_of(model), 8);
    Generator random(test_seed(7));
    std::vector<Batch> batches;
    for (const Ids& starts : kStarts) batches.push_back(packed_batch(starts, kind.cross, random));
    check_one_graph(plain, graphs, batches);
  }
}

TEST_CASE("prefixes of other lengths are one graph, to the same bits") {
  DecoderOnly plain_model = prefix_model(), model = prefix_model();
  GraphCourse plain(plain_model, loss_of(plain_model), 0), graphs(model, loss_of(model), 8);
  Generator random(test_seed(7));
  std::vector<Batch> batches;
  for (const Ids& lengths : {Ids{1, 4}, {0, 9}, {5, 5}, {8, 0}, {2, 7}})
    batches.push_back(prefix_batch(lengths, random));
  check_one_graph(plain, graphs, batches);
}

TEST_CASE("errors in starts and lengths are reported later with the CPU's message, graphs or not") {
  PackedModel model("mha", true), plain_model("mha", true);
  PackedModel here_model("mha", true);
  here_model.to(Device::cpu());
  GraphCourse graphs(model, loss_of(model), 8, DType::f32);
  GraphCourse plain(plain_model, loss_of(plain_model), 0, DType::f32);
  GraphCourse here(here_model, loss_of(here_model), 0, DType::f32, Device::cpu());
  Generator random(test_seed(7));
  const Batch right = packed_batch(kStarts[0], true, random);
  for (GraphCourse* course : {&graphs, &plain})
    for (Index i = 0; i < 4; ++i) course->step(right);
  CHECK(graphs.replay->counts().replayed == 1);

  const auto check = [&](std::size_t which, const Ids& wrong, const std::string& says) {
    CAPTURE(which);
    Batch batch = right;
    batch[which] = id_tensor(wrong);
    const auto refused = [&](GraphCourse& course) {
      return message_of<ShapeError>([&] { course.step(batch); });
    };
    const std::string expected = refused(here);
    CHECK(expected.find(says) != std::string::npos);
    for (GraphCourse* course : {&plain, &graphs}) {
      CHECK(refused(*course) == expected);
      CHECK(std::isfinite(course->step(right)));
    }
  };
  for (const std::size_t which : {std::size_t{2}, std::size_t{5}}) {
    const std::string name = which == 2 ? "query_starts=i32[5]" : "key_starts=i32[5]";
    for (const Ids& starts : {Ids{1, 10, 25, 33, 40},
                              {0, 10, 25, 33, 39},
                              {0, 10, 25, 33, 41},
                              {0, 25, 10, 33, 40},
                              {0, -2000000000, 2000000000, 33, 40}})
      check(which, starts, " of " + name);
  }
  const std::string most = "key_lengths must be i32 and at most the number of keys; got ";
  check(3, {10, 15, 9, 7}, most + "9 at [2] of key_lengths=i32[4]");
  check(3, {10, -1, 8, 7}, most + "-1 at [1] of key_lengths=i32[4]");
  CHECK(graphs.replay->counts().captured == 1);
}
