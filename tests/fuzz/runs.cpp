#include <tapeformer/autograd/random.h>
#include <tapeformer/examples/language/run.h>
#include <tapeformer/examples/shared/option_table.h>
#include <tapeformer/examples/shared/run_folder.h>
#include <tapeformer/examples/translation/options.h>
#include <tapeformer/nn/transformer/encoder_decoder.h>
#include <tapeformer/tests/fuzz/parsers.h>

#include <nlohmann/json.hpp>

namespace tapeformer {
namespace {

constexpr const char* kRuns = TAPEFORMER_SOURCE_DIR "/tests/golden/runs/";
constexpr const char *kLanguageRuns[] = {"language_mha", "language_gqa", "language_mla"},
                     *kTranslationRuns[] = {"translation_mha", "translation_mla", "translation_additive"};

std::string in_run(const char* run, const char* file) { return content_of(kRuns + std::string(run) + file); }

/// A copy of a run in which the input replaces the file of that name.
std::string run_with(const std::string& run, const char* file, const std::string& input) {
  const std::string from = "runs/" + run + "/";
  std::vector<std::string> files{from + "config.json", from + "weights.safetensors", from + "tokenizer"};
  if (run[0] == 't') files.back() = from + "source.vocabulary", files.push_back(from + "target.vocabulary");
  const std::string folder = golden_copy(run, files);
  put_input(run + file, input);
  return folder;
}

/// Without the checksum, so that a fuzzer's changes to the tensors are read.
std::string without_checksum(std::string checkpoint) {
  const std::size_t found = checkpoint.find("\"checksum\"");
  if (found != std::string::npos) checkpoint[found + 1] = 'C';
  return checkpoint;
}

Seeds checkpoint_seeds() {
  const std::string whole = in_run("language_mha", "/checkpoint.safetensors");
  return {without_checksum(whole), whole};
}

void read_checkpoint(const std::string& input) {
  const RunFolder folder(run_with("language_mha", "/checkpoint.safetensors", input));
  const Json state = folder.checkpoint_state();
  static const LanguageOptions options = options_of<LanguageOptions>(folder);
  Generator random(0);
  static DecoderOnly model(DecoderOnlyConfig::from_json(content_of(folder.file("config.json"))), random);
  static const auto optimizer = options.training.optimizer.make(model.parameters());
  folder.load_checkpoint(model, [&](OptimizerVisitor& visitor) { optimizer->visit_state(visitor); });
}

void read_metrics(const std::string& input) {
  const RunFolder folder(run_with("language_mha", "/metrics.jsonl", input));
  folder.has_ending(20);
  folder.cut_metrics(20);
}

Seeds config_seeds() {
  Seeds seeds;
  for (const char* run : kLanguageRuns) seeds.push_back(in_run(run, "/config.json"));
  for (const char* run : kTranslationRuns) seeds.push_back(in_run(run, "/config.json"));
  return seeds;
}

void read_config(const std::string& input) {
  const bool translates = input.find("encoder_decoder") != std::string::npos;
  const bool latent = input.find("\"mla\"") != std::string::npos,
             grouped = input.find("\"gqa\"") != std::string::npos,
             additive = input.find("\"additive\"") != std::string::npos;
  if (translates) {
    const std::string folder = run_with(kTranslationRuns[latent     ? 1
                                                         : additive ? 2
                                                                    : 0],
                                        "/config.json", input);
    EncoderDecoder::load(folder);
    options_of<TranslationOptions>(RunFolder(folder));
  } else {
    const std::string folder = run_with(kLanguageRuns[grouped ? 1 : latent ? 2 : 0], "/config.json", input);
    LanguageRun::load(folder, 0, "");
    training_in(folder);
  }
}

}  // namespace

std::vector<Parser> run_parsers() {
  return {{"checkpoint", checkpoint_seeds, read_checkpoint},
          {"metrics", [] { return Seeds{in_run("language_mha", "/metrics.jsonl")}; }, read_metrics},
          {"config", config_seeds, read_config}};
}

}  // namespace tapeformer
