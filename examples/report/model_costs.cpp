#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/tape.h>
#include <tapeformer/autograd/text/number_of.h>
#include <tapeformer/examples/report/model_costs.h>
#include <tapeformer/examples/shared/progress.h>
#include <tapeformer/nn/attention/cost.h>
#include <tapeformer/nn/profile_part.h>

#include <functional>

namespace tapeformer {
namespace {

std::string line(const std::string& name, const std::string& flops, const std::string& bytes) {
  const std::string text = format("%-44s", name) + format(" %15s", flops);
  return text + (bytes.empty() ? "" : format(" %18s", bytes)) + "\n";
}

/// Of one token in the caches of `layers` layers, as a line; empty where nobody knows.
std::string cache_line(const char* name, const AttentionConfig& attention, Index layers, DType type) {
  AttentionCall call;
  call.type = type;
  try {
    const Index bytes = layers * attention_cost(attention, call).cache_bytes_per_token;
    return line(name, "", bytes_text(static_cast<double>(bytes)));
  } catch (const Error&) {
    return "";
  }
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
  return costs_of(model, "a row of " + number_of(config.context, "token"),
                  [&] { return model.loss(ids, ids); }) +
         cache_line("a token in the caches", config.attention_config(), config.layers,
                    model.parameters().front().value().dtype());
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
