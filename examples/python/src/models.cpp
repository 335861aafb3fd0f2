#include <tapeformer/examples/python/src/arrays.h>
#include <tapeformer/examples/python/src/bindings.h>
#include <tapeformer/nn/formats/family.h>
#include <tapeformer/nn/formats/hugging_face.h>
#include <tapeformer/nn/generation/generate.h>
#include <tapeformer/nn/generation/generate_text.h>
#include <tapeformer/nn/transformer/decoder_only.h>
#include <tapeformer/nn/transformer/encoder_decoder.h>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

namespace nb = nanobind;
using namespace nb::literals;

namespace tapeformer::python {
namespace {

/// Lets Ctrl-C end what has let go of the interpreter's lock.
void heed_signals() {
  const nb::gil_scoped_acquire acquire;
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

std::vector<TokenIds> generated(const DecoderOnly& model, const TokenIds& ids, Index max_tokens,
                                Index samples, std::optional<std::int32_t> end,
                                const SamplingConfig& sampling) {
  TextGenerationConfig config;
  config.sampling = sampling;
  config.max_tokens = max_tokens;
  config.samples = samples;
  if (end) config.ends = {*end};
  sampling.check();
  std::vector<TokenIds> tokens(static_cast<std::size_t>(samples > 0 ? samples : 0));
  const nb::gil_scoped_release release;
  generate_text(model, ids, config, [&](Index sample, std::int32_t token) {
    tokens[static_cast<std::size_t>(sample)].push_back(token);
    heed_signals();
    return true;
  });
  return tokens;
}

std::vector<TokenIds> translated(const EncoderDecoder& model, const std::vector<TokenIds>& sources,
                                 const SearchConfig& search, const std::optional<SamplingConfig>& sampling) {
  SearchConfig config = search;
  config.progress = [](Index) { heed_signals(); };
  const nb::gil_scoped_release release;
  std::vector<TokenIds> outputs;
  for (Hypothesis& found :
       sampling ? sample(model, sources, *sampling, config) : beam_search(model, sources, config))
    outputs.push_back(std::move(found.tokens));
  return outputs;
}

/// The model of a run folder or of a checkpoint of transformers.
nb::object load_checkpoint(const std::string& folder) {
  const bool is_foreign = is_hugging_face(folder);
  const nb::object text =
      nb::module_::import_("pathlib").attr("Path")(folder + "/config.json").attr("read_text")();
  const nb::object fields = nb::module_::import_("json").attr("loads")(text);
  if (is_foreign) {
    const nb::object translates = fields.attr("get")("is_encoder_decoder");
    return translates.is(nb::bool_(true)) ? nb::cast(load_hugging_face<EncoderDecoder>(folder))
                                          : nb::cast(load_hugging_face(folder));
  }
  const nb::object model = fields.attr("get")("model");
  return model.equal(nb::str("encoder_decoder")) ? nb::cast(EncoderDecoder::load(folder))
                                                 : nb::cast(DecoderOnly::load(folder));
}

}  // namespace

void bind_models(nb::module_& module) {
  constexpr const char* kLoadHelp = "A trained model from a run folder, as after eval().";
  nb::class_<DecoderOnly, Module>(module, "DecoderOnly", "A trained decoder-only language model.")
      .def_static("load", &DecoderOnly::load, "folder"_a, Unlocked(), kLoadHelp)
      .def(
          "__call__",
          [](const DecoderOnly& self, const Input& ids, const Input& prefix) { return self(ids, prefix); },
          "ids"_a, "prefix_lengths"_a = nb::none(), Unlocked(), "The logits [B, T, V] of every next token.")
      .def(
          "generate",
          [](const DecoderOnly& self, const TokenIds& ids, Index max_tokens, Index samples,
             std::optional<std::int32_t> end, double temperature, Index top_k, double top_p, double min_p,
             double repetition_penalty, std::uint64_t seed) {
            return generated(self, ids, max_tokens, samples, end,
                             {temperature, top_k, top_p, min_p, repetition_penalty, seed, 0});
          },
          "ids"_a, "max_tokens"_a = 256, "samples"_a = 1, "end"_a = nb::none(), "temperature"_a = 1.0,
          "top_k"_a = 0, "top_p"_a = 1.0, "min_p"_a = 0.0, "repetition_penalty"_a = 1.0, "seed"_a = 0,
          "Continuations of the prompt `ids`, one per sample. Temperature 0 takes the likeliest token.");
  const SearchConfig search;
  nb::class_<EncoderDecoder, Module>(module, "EncoderDecoder", "A trained translation model.")
      .def_static("load", &EncoderDecoder::load, "folder"_a, Unlocked(), kLoadHelp)
      .def(
          "__call__",
          [](const EncoderDecoder& self, const Input& source, const Input& mask, const Input& target) {
            return self(source, mask, target);
          },
          "source"_a, "source_mask"_a.none(), "target"_a, Unlocked(),
          "The logits [B, T, V] of every next target token. The mask, bool [B, S], is True for tokens.")
      .def(
          "generate",
          [](const EncoderDecoder& self, const std::vector<TokenIds>& ids, Index beam, double length_penalty,
             Index max_tokens, std::int32_t padding, std::int32_t begin, std::int32_t end,
             std::optional<double> temperature, std::uint64_t seed) {
            SearchConfig config;
            config.beam = beam;
            config.length_penalty = length_penalty;
            config.max_tokens = max_tokens;
            config.padding = padding, config.begin = begin, config.end = end;
            std::optional<SamplingConfig> sampling;
            if (temperature) {
              sampling = SamplingConfig();
              sampling->temperature = *temperature;
              sampling->seed = seed;
            }
            return translated(self, ids, config, sampling);
          },
          "ids"_a, "beam"_a = search.beam, "length_penalty"_a = search.length_penalty,
          "max_tokens"_a = search.max_tokens, "padding"_a = search.padding, "begin"_a = search.begin,
          "end"_a = search.end, "temperature"_a = nb::none(), "seed"_a = 0,
          "The best output for every source by beam search; with a temperature, one that is drawn.");
  module.def("load_checkpoint", &load_checkpoint, "folder"_a,
             nb::sig("def load_checkpoint(folder: str) -> DecoderOnly | EncoderDecoder"),
             ("A trained model from a run folder of ours, or a checkpoint of transformers: " +
              family_titles() + "; to translate: " + family_titles<EncoderDecoderConfig>() + ".")
                 .c_str());
}

}  // namespace tapeformer::python
