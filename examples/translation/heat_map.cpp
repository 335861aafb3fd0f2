#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/autograd/system/file.h>
#include <tapeformer/data/tokenizers/utf8.h>
#include <tapeformer/examples/shared/command_line.h>
#include <tapeformer/examples/translation/attention_svg.h>
#include <tapeformer/examples/translation/heat_map.h>

#include <algorithm>
#include <filesystem>

namespace tapeformer {
namespace {

Tensor row_of(const TokenIds& ids, Device device) {
  return Tensor::from(ids, {1, static_cast<Index>(ids.size())}).to(device);
}

/// The number of a head, or -1 if `text` is not one.
Index head_number(const std::string& text) {
  const bool is_number =
      !text.empty() && text.size() < 10 && text.find_first_not_of("0123456789") == text.npos;
  return is_number ? std::stoi(text) : -1;
}

}  // namespace

std::vector<std::string> pieces_of(const Tokenizer& tokenizer, const TokenIds& ids) {
  std::vector<std::string> pieces;
  for (const std::int32_t id : ids) pieces.push_back(with_spaces(tokenizer.piece(id)));
  return pieces;
}

std::vector<Tensor> cross_attention_weights(const EncoderDecoder& model, const TokenIds& source,
                                            TokenIds target, std::int32_t begin) {
  target.insert(target.begin(), begin);
  target.resize(std::min(target.size() - 1, static_cast<std::size_t>(model.config().max_length)));
  std::vector<Tensor> weights;
  const Device device = model.device();
  model.decode(row_of(target, device), model.encode(row_of(source, device), {}), {}, &weights);
  return weights;
}

void TranslationHeatMap::add_to(const Command& command) {
  const CommandOption wanted =
      command
          .option("--heatmap", file,
                  "draw what the decoder attends to in line 1 into this SVG file, in line n into FILE-n.svg")
          .not_empty();
  command.option("--heatmap-layer", layer, "decoder layer, from 0; -1 for the last").needs(wanted);
  command.option("--heatmap-head", head, "a head, from 0; averaged; or all, a panel each").needs(wanted);
}

void TranslationHeatMap::check(const EncoderDecoderConfig& model) const {
  if (file.empty()) return;
  if (layer < -1 || layer >= model.decoder_layers)
    throw Error(format("--heatmap-layer must be a decoder layer, 0 to {}, or -1 for the last; got {}",
                       model.decoder_layers - 1, layer));
  if (model.layer.attention.kind == "differential")
    throw Error("--heatmap cannot show negative weights, which differential attention may have; omit it");
  const Index number = head_number(head), heads = model.decoder_layer().attention.heads;
  if (head == "averaged" || head == "all" || (number >= 0 && number < heads)) return check_writable(file);
  throw Error(format("--heatmap-head must be 0 to {}, averaged or all; got {}", heads - 1, head));
}

std::string TranslationHeatMap::path(Index line) const {
  if (line == 1) return file;
  const std::filesystem::path whole(file);
  return whole.parent_path() /
         (whole.stem().string() + "-" + std::to_string(line) + whole.extension().string());
}

void TranslationHeatMap::write(const EncoderDecoder& model, const Vocabularies& words, const TokenIds& source,
                               const TokenIds& target, Index line) const {
  if (file.empty()) return;
  const Index shown = layer < 0 ? model.config().decoder_layers - 1 : layer;
  const TokenIds read = words.frame.source(source);
  TokenIds written = target;
  written.push_back(words.frame.end);
  const Tensor of_heads =
      cross_attention_weights(model, read, written, words.frame.begin).at(static_cast<std::size_t>(shown));
  Tensor weights = of_heads.alias({of_heads.size(1), of_heads.size(2), of_heads.size(3)});
  written.resize(static_cast<std::size_t>(weights.size(1)));
  const Index number = head_number(head);
  if (number >= 0) weights = slice(weights, 0, number, 1);
  const std::string of = number >= 0 ? ", head " + head : head == "all" ? "" : ", heads averaged";
  write_heat_map(path(line), weights, pieces_of(*words.target, written), pieces_of(*words.source, read),
                 {head != "all", format("decoder layer {}{}: {} → {}", shown, of,
                                        words.source->decode(source), words.target->decode(target))});
}

}  // namespace tapeformer
