#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/autograd/profile_part.h>
#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/examples/report/model_costs.h>
#include <tapeformer/examples/shared/progress.h>
#include <tapeformer/nn/attention/cost.h>

#include <functional>

namespace tapeformer {
namespace {

std::string line(const std::string& name, const std::string& flops, const std::string& bytes) {
  const std::string text = format("{:-44}", name) + format(" {:15}", flops);
  return text + (bytes.empty() ? "" : format(" {:18}", bytes)) + "\n";
}

/// The costs of a layer, in a call of no matter what sizes; zeros where nobody knows.
AttentionCost cost_of(const AttentionConfig& attention, DType type) {
  AttentionCall call;
  call.type = type;
  return attention_kind(attention.kind).cost ? attention_cost(attention, call) : AttentionCost();
}

/// Bytes in caches as a line; empty where there are none, or nobody knows.
std::string cache_line(const char* name, double bytes) {
  return bytes > 0 ? line(name, "", bytes_text(bytes)) : "";
}
std::string cache_line(const char* name, const AttentionConfig& attention, Index layers, DType type) {
  return cache_line(name, static_cast<double>(layers * cost_of(attention, type).cache_bytes_per_token));
}

std::string costs_of(Module& model, const std::string& row, const std::function<Tensor()>& loss) {
  model.train();
  const Profile profile(false, true);
  Tape tape;
  const Tensor value = loss();
  const TapeMemory memory = tape.memory();
  tape.backward(value);
  model.clear_gradients();
  std::string text = line(row, "forward FLOPs", "bytes for backward");
  for (const ProfiledPart& part : profile.parts()) {
    text += line(part.name, count_text(static_cast<double>(part.flops)),
                 bytes_text(static_cast<double>(part.saved_bytes)));
  }
  text += line("total", count_text(static_cast<double>(profile.flops(false))),
               bytes_text(static_cast<double>(memory.saved_bytes - memory.parameter_bytes)));
  return text + line("backward", count_text(static_cast<double>(profile.flops(true))), "");
}

Tensor zero_ids(Index length, Device device) { return Tensor::zeros({1, length}, DType::i32, device); }

}  // namespace

std::string costs_text(DecoderOnly& model) {
  const DecoderOnlyConfig& config = model.config();
  const Tensor ids = zero_ids(config.context, model.device());
  double of_token = 0, of_row = 0;
  for_each_attention(config, [&](const AttentionConfig& attention) {
    const AttentionCost cost = cost_of(attention, model.parameters().front().value().dtype());
    of_token += static_cast<double>(cost.cache_bytes_per_token);
    of_row += static_cast<double>(cost.cache_bytes_per_row);
  });
  return costs_of(model, "a row of " + number_of(config.context, "token"),
                  [&] { return model.loss(ids, ids); }) +
         cache_line("a token in the caches", of_token) + cache_line("a row's states in the caches", of_row);
}

std::string costs_text(EncoderDecoder& model) {
  const EncoderDecoderConfig& config = model.config();
  const DType type = model.parameters().front().value().dtype();
  const Tensor ids = zero_ids(config.max_length, model.device());
  return costs_of(model, "a pair of " + number_of(config.max_length, "token") + " each",
                  [&] { return model.loss(ids, {}, ids, ids); }) +
         cache_line("a target's token in the caches", config.layer.attention_config(false),
                    config.decoder_layers, type) +
         cache_line("a source's token in the caches", config.layer.attention_config(true),
                    config.decoder_layers, type);
}

}  // namespace tapeformer
