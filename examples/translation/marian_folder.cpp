#include <tapeformer/autograd/config/yaml.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/data/tokenizers/marian.h>
#include <tapeformer/examples/translation/marian_folder.h>
#include <tapeformer/nn/formats/marian_npz.h>
#include <tapeformer/nn/formats/strict_json.h>

#include <filesystem>

namespace tapeformer {
namespace {

/// The path of decoder.yml, or of the name that Marian gives it; empty if there is neither.
std::string decoder_file(const std::string& folder) {
  for (const char* name : {"/decoder.yml", "/model.npz.decoder.yml"})
    if (std::filesystem::exists(folder + name)) return folder + name;
  return {};
}

/// The settings in a decoder.yml.
struct MarianDecoder {
  std::string model, source, target;
  SearchConfig search;
  bool writes_unknown = false;
};

MarianDecoder read_decoder(const std::string& folder) {
  const std::string path = decoder_file(folder);
  Json json = parse_yaml(path, read_file<CheckpointError>(path));
  return naming(path, [&] {
    if (json.value("normalize", Json()) == 0) json.erase("normalize");
    JsonFields fields(std::move(json), "");
    // The folder may have been moved since its paths were written.
    const auto file = [&](const std::filesystem::path& name) {
      const std::filesystem::path here = folder / name;
      return (std::filesystem::exists(here) ? here : folder / name.filename()).string();
    };
    const std::vector<std::string> models = fields.texts("models"), vocabularies = fields.texts("vocabs");
    if (models.size() != 1) fields.fail("models", "must name one model; ensembles are not supported");
    if (vocabularies.size() != 2) fields.fail("vocabs", "must name the vocabularies of source and target");
    MarianDecoder decoder{file(models[0]), file(vocabularies[0]), file(vocabularies[1]), {}};
    decoder.search.beam = fields.size("beam-size", 12);
    decoder.search.length_penalty = fields.number("normalize", 0);
    decoder.search.length_factor = fields.number("max-length-factor", 3);
    decoder.search.renormalize = true;  // over all tokens except padding
    decoder.search.transformers = TransformersRules{EarlyStopping::yes, false};
    decoder.writes_unknown = fields.flag("allow-unk", false);
    fields.demand("word-penalty", 0);
    fields.demand("n-best", false);
    fields.ignore({"relative-paths", "mini-batch", "mini-batch-words", "maxi-batch", "maxi-batch-sort",
                   "workspace", "devices", "num-devices", "cpu-threads", "quiet", "quiet-translation", "seed",
                   "skip-cost", "max-length", "max-length-crop", "alignment", "log", "log-level", "version"});
    fields.finish();
    return decoder;
  });
}

}  // namespace

bool is_marian_folder(const std::string& folder) { return !decoder_file(folder).empty(); }

EncoderDecoderConfig marian_folder_config(const std::string& folder) {
  return marian_npz_config(read_decoder(folder).model);
}

TranslationRun load_marian_folder(const std::string& folder, const SentenceOptions& sentences) {
  const MarianDecoder decoder = read_decoder(folder);
  const auto [source, target] = load_marian_vocabularies(decoder.source, decoder.target);
  TranslationRun run{load_marian_npz(decoder.model), {source, target, sentences}, {}, decoder.search};
  const EncoderDecoderConfig& model = run.model.config();
  for (const auto& [path, words, wanted] : {std::tuple(decoder.source, source, model.source_vocabulary),
                                            {decoder.target, target, model.target_vocabulary}})
    if (words->vocabulary_size() != wanted)
      throw CheckpointError(format("{}: must have {}, as the model has; got {}", path,
                                   number_of(wanted - 1, "piece"), words->vocabulary_size() - 1));
  run.words.set_frame(run.search);
  if (!decoder.writes_unknown) run.search.never.push_back(target->encode("<unk>").at(0));
  return run;
}

std::string marian_decoder_yml(const std::vector<std::string>& vocabularies) {
  std::string text = "relative-paths: true\nmodels:\n  - model.npz\nvocabs:\n";
  for (const std::string& vocabulary : vocabularies) text += "  - " + vocabulary + "\n";
  return text + "beam-size: 6\nnormalize: 1\nword-penalty: 0\n";
}

}  // namespace tapeformer
