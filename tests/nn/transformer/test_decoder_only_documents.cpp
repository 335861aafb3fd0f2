#include <tapeformer/tests/nn/generation/language_case.h>
#include <tapeformer/tests/nn/transformer/config_variants.h>
#include <tapeformer/tests/nn/transformer/decoder_only_case.h>

#include <algorithm>

using namespace tapeformer;

namespace {

constexpr Index kLengths[] = {3, 1, 5};

/// The losses of documents in rows of their own, weighted by their targets.
Tensor mean_of_documents(const DecoderOnly& model, const Tensor& ids, const Tensor& targets) {
  Tensor sum;
  Index first = 0;
  for (const Index length : kLengths) {
    const Tensor loss = model.loss(columns(ids, first, length), columns(targets, first, length));
    const Tensor part = loss * (static_cast<double>(length) / static_cast<double>(ids.elements()));
    sum = sum.defined() ? sum + part : part;
    first += length;
  }
  return sum;
}

/// The largest error of the packed loss and its gradients relative to the largest value of separate
/// documents: some gradients are zero in theory.
double packed_deviation(const DecoderOnlyConfig& config) {
  DecoderOnly model = language_model(config);
  const Tensor ids = ids_of(random_tokens(9, 3), {1, 9}), targets = ids_of(random_tokens(9, 4), {1, 9});
  // The empty document after the others makes all batches alike.
  const PackedDocuments documents{ids_of({0, 3, 4, 9, 9}, {5}), ids_of({0, 1, 2, 0, 0, 1, 2, 3, 4}, {1, 9})};
  const auto packed =
      output_and_gradients(model, {}, [&] { return model.loss(ids, targets, {}, {}, documents); });
  const auto alone = output_and_gradients(model, {}, [&] { return mean_of_documents(model, ids, targets); });
  double error = 0, size = 0;
  for (std::size_t i = 0; i < packed.size(); ++i) {
    const Tensor& expected = alone[i].second;
    error = larger(error, absolute_error(packed[i].second, expected));
    size = std::max(size, absolute_error(expected, Tensor::zeros(expected.shape(), expected.dtype())));
  }
  return error / size;
}

bool can_pack(const DecoderOnlyConfig& config) {
  for (Index layer = 0; layer < config.layers; ++layer)
    if (attention_kind(config.attention_config(layer).kind).can & kOnlyCausal) return false;
  if (config.attention.moba_block > 0) return false;
  const Index most = config.attention.rotations.max_positions;
  return config.short_convolution == 0 && (most == 0 || most >= 5);
}

void check_packed(const DecoderOnlyConfig& config) {
  if (can_pack(config))
    CHECK_BELOW(packed_deviation(config), 1e-12);
  else
    CHECK(message_of<Error>([&] { packed_deviation(config); }).find("; try ") != std::string::npos);
}

}  // namespace

TEST_CASE("packed documents have the mean loss, and its gradients, of documents in rows of their own") {
  for (const LanguageKind& kind : language_kinds()) {
    CAPTURE(kind.name());
    check_packed(language_config(kind, 5));
  }
}

TEST_CASE("packed documents have the same loss under each option of a model, or are refused") {
  const auto variants = variants_of(language_config({"gqa", PositionKind::rotary}, 5));
  for (std::size_t i = 0; i < variants.size();
       i += default_device().is_cuda() ? 3 : 1) {  // slow in an emulator
    const auto& variant = variants[i];
    CAPTURE(variant.name);
    check_packed(variant.config);
  }
  DecoderOnlyConfig limited = language_config({"gqa", PositionKind::rotary}, 5);
  limited.attention.rotations.max_positions = 5;  // which positions in the row would exceed
  check_packed(limited);
}
