#include <tapeformer/data/tokenizers/byte_pair.h>
#include <tapeformer/data/tokenizers/byte_tokenizer.h>
#include <tapeformer/data/tokenizers/sentencepiece_text.h>
#include <tapeformer/examples/language/export.h>
#include <tapeformer/examples/language/gguf_tokenizer.h>
#include <tapeformer/examples/language/run.h>
#include <tapeformer/examples/shared/option_table.h>
#include <tapeformer/tests/examples/arguments.h>
#include <tapeformer/tests/examples/language/language_case.h>
#include <tapeformer/tests/nn/formats/file_size_limit.h>
#include <tapeformer/tests/nn/formats/gguf_reader.h>
#include <tapeformer/tests/reference/sanitized.h>

#include <algorithm>
#include <sstream>

using namespace tapeformer;

namespace {

ExportOptions exported(const TemporaryFolder& temporary) {
  ExportOptions options;
  options.run = temporary.file("run");
  options.output = temporary.file("exported");
  return options;
}

/// Writes an untrained run of these options, with a small model; returns the line on its exports.
std::string saved_run(const TemporaryFolder& temporary, const std::vector<std::string>& arguments) {
  const CommandLine line;
  LanguageOptions options = parsed_with_preset<LanguageOptions>(arguments, line);
  adapt_preset(options, line);
  options.model.layers = 2, options.model.width = 48, options.model.context = 8;
  options.data.corpus = tiny_options(temporary).data.corpus;
  const RunFolder folder(temporary.file("run"));
  folder.create();
  Progress progress(false);
  const LanguageData data = make_language_data(options, folder, nullptr, progress);
  DecoderOnly model = initial_model(options, data.train.vocabulary());
  describe_language_run(folder, options, model.config(), data);
  folder.save_best_weights(model);
  return exports_text(model.config(), data.tokenizer.get());
}

/// The message if the export is refused, or nothing.
std::string export_refusal(const TemporaryFolder& temporary, const std::string& format) {
  const CapturedLog output(stdout);
  ExportOptions options = exported(temporary);
  options.format = format;
  const std::string said = message_of<CheckpointError>([&] { export_model(options); });
  return said == "nothing was thrown" ? "" : said;
}

}  // namespace

TEST_CASE("an exported model comes back with its weights and its tokenizer, of every kind") {
  const CapturedLog log;
  for (const std::string kind : {"character", "byte", "bpe", "sentencepiece"}) {
    const TemporaryFolder temporary;
    saved_run(temporary, {"--tokenizer", kind, "--vocabulary", "270"});
    CHECK(export_refusal(temporary, "transformers") == "");
    const LanguageRun before = LanguageRun::load(temporary.file("run")),
                      after = LanguageRun::load(temporary.file("exported"));
    const std::string text = walk(60, 3);
    const Ids ids = before.tokenizer->encode(text);
    CHECK(after.tokenizer->encode(text) == ids);
    CHECK(after.tokenizer->vocabulary_size() == before.tokenizer->vocabulary_size());
    const Tensor inputs = Tensor::empty({1, 8}, DType::i32);
    std::copy_n(ids.begin(), 8, inputs.data<std::int32_t>());
    CHECK_BELOW(absolute_error(after.model(inputs), before.model(inputs)), 1e-5);
  }
}

TEST_CASE("a GGUF file has the model and the tokenizer") {
  const CapturedLog log, output(stdout);
  const TemporaryFolder temporary;
  saved_run(temporary, {"--feed-forward-kind", "gelu_tanh", "--bias"});
  ExportOptions asked = exported(temporary);
  asked.format = "gguf";
  CHECK(export_model(asked) == kExitSuccess);
  const GgufReader file(read_bytes(asked.output));
  CHECK(file.lists.at("tokenizer.ggml.tokens") ==
        std::vector<std::string>{"a", "b", "c", "d", "e", "f", "\u00c3\u00a9"});
  CHECK(file.lists.at("tokenizer.ggml.merges") == std::vector<std::string>{"\u00c3 \u00a9"});
  CHECK(file.tensors.at("blk.0.attn_qkv.weight").type == 1);
  CHECK(has(message_of<DataError>([&] { export_model(asked); }), "already exists"));
}

TEST_CASE("tokenizers of every kind as GGUF's metadata") {
  const auto found = [](const GgufMetadata& metadata, const char* key, auto missing) {
    for (const auto& [name, value] : metadata)
      if (name == std::string("tokenizer.ggml.") + key) return std::get<decltype(missing)>(value);
    return missing;
  };
  using Texts = std::vector<std::string>;
  const TextSource source = [](const auto& reader) { reader("ab ab ab\nabc abc\n"); };
  const GgufMetadata bytes = gguf_tokenizer(*make_byte_tokenizer(), 256);
  CHECK(found(bytes, "model", std::string()) == "gpt2");
  CHECK(found(bytes, "tokens", Texts()).at(32) == "\u0120");
  CHECK(found(bytes, "merges", Texts()).empty());
  CHECK(found(bytes, "eos_token_id", ~0u) == 255);

  const auto byte_pair = train_byte_pair_tokenizer(source, 259);
  const GgufMetadata bpe = gguf_tokenizer(*byte_pair, 261);
  const auto tokens = found(bpe, "tokens", Texts());
  REQUIRE(tokens.size() == 261);
  CHECK(tokens[258] == "<|endoftext|>");
  CHECK(tokens[260] == "[PAD260]");
  CHECK(found(bpe, "merges", Texts()) == Texts{"a b", "\u0120 ab"});
  const auto types = found(bpe, "token_type", Ids());
  CHECK(types[257] == 1);
  CHECK(types[258] == 3);
  CHECK(types[260] == 5);
  CHECK(found(bpe, "eos_token_id", ~0u) == 258);

  const GgufMetadata pieces = gguf_tokenizer(*train_sentencepiece_tokenizer(source, 265), 270);
  CHECK(found(pieces, "model", std::string()) == "llama");
  CHECK(found(pieces, "bos_token_id", ~0u) == 1);
  CHECK(found(pieces, "eos_token_id", ~0u) == 2);
  CHECK(found(pieces, "unknown_token_id", ~0u) == 0);
  const auto kinds = found(pieces, "token_type", Ids());
  CHECK(Ids(kinds.begin(), kinds.begin() + 4) == Ids{2, 3, 3, 6});
  const auto scores = found(pieces, "scores", std::vector<float>());
  CHECK(scores.size() == 270);
  CHECK(scores.at(260) == -1);  // merges count down
}

TEST_CASE_FIXTURE(Logged, "a file that cannot be written is named with its path") {
  saved_run(temporary, {});
  const FileSizeLimit limit(1 << 10);
  CHECK(export_refusal(temporary, "transformers") ==
        temporary.file("exported/model.safetensors: cannot be written: File too large"));
}

TEST_CASE("statements and advice on a model's exports are true, for every preset and kind") {
  const CapturedLog log, output(stdout);
  std::vector<std::vector<std::string>> models = {
      {"--objective", "prefix", "--bias"},
      {"--objective", "masked", "--bias"},
      {"--attention", "mla", "--positions", "sinusoidal"},
      {"--attention", "gla", "--attention-pattern", "DF", "--norm", "rms"},
      {"--norm", "rms", "--positions", "rotary", "--feed-forward-kind", "reglu", "--window", "3", "--bias"}};
  for (const Preset& preset : language_presets()) models.push_back({"--preset", preset.name});
  for (std::size_t i = 0; i < models.size(); ++i) {
    if (!is_tried(i)) continue;
    const std::vector<std::string>& arguments = models[i];
    CAPTURE(arguments.back());
    for (const std::string format : {"transformers", "gguf"}) {
      const TemporaryFolder temporary;
      const std::string said = saved_run(temporary, arguments), refused = export_refusal(temporary, format);
      const std::size_t from = said.find(format), only = said.find(" only with ", from);
      // "transformers and gguf ..." says it of both.
      const bool is_expressed = only == std::string::npos || said.find(';', from) < only;
      CHECK(is_expressed == refused.empty());
      if (refused.empty()) continue;
      const std::size_t advised = refused.find(" trained with ");
      REQUIRE(advised != std::string::npos);
      CHECK(refused.find("[export] " + format + " has no such model; ") == 0);
      CHECK_FALSE(has(refused, temporary.file("")));
      const std::string options = refused.substr(advised + std::string(" trained with ").size());
      CHECK(has(said, " only with " + options));
      std::vector<std::string> followed = arguments;
      std::istringstream words(options);
      for (std::string word; words >> word;) followed.push_back(word == "''" ? "" : word);
      const TemporaryFolder other;
      saved_run(other, followed);
      CHECK(export_refusal(other, format) == "");
    }
  }
}

TEST_CASE("options make a model of each family") {
  const std::string llama = "--norm rms --positions rotary --feed-forward-kind swiglu ";
  const auto exports = [](const std::string& arguments) {
    const CapturedLog log;
    const TemporaryFolder temporary;
    const std::string said = saved_run(temporary, words_of(arguments));
    CHECK(export_refusal(temporary, "transformers") == "");
    return said.substr(0, said.find(';'));
  };
  CHECK(exports("") == "transformers (GPT-2)");
  CHECK(exports("--feed-forward-kind gelu_tanh --bias") == "transformers and gguf (GPT-2)");
  CHECK(exports(llama) == "transformers and gguf (Llama)");
  CHECK(exports(llama + "--bias --attention gqa") == "transformers and gguf (Llama)");
  CHECK(exports(llama + "--feed-forward-kind reglu") == "transformers (Llama)");
  CHECK(exports(llama + "--window 3") == "transformers (Mistral)");
  CHECK(exports(llama + "--window 3 --windows SL") == "transformers (SmolLM3)");
  CHECK(exports(llama + "--qk-norm rms --epsilon 1e-6 --window 3 --windows SL") == "transformers (Qwen 3)");
  const std::string olmo = llama + "--qk-norm joint --epsilon 1e-6 --sublayer-norms output";
  CHECK(exports(olmo) == "transformers (OLMo 2)");
  CHECK(exports(olmo + " --window 3") == "transformers (OLMo 3)");
  CHECK(exports(llama + "--attention gated_deltanet --attention-pattern DF --qk-norm joint --epsilon 1e-6 "
                        "--sublayer-norms mixed --state-norm-epsilon 1e-5") == "transformers (OLMo Hybrid)");
  CHECK(exports(llama +
                "--positions none --attention kda --attention-pattern DF --full-attention mla "
                "--shared-key-rotation=false --untied-head --experts 4 --shared-expert 64 --expert-width 32 "
                "--router sigmoid --balance bias --state-norm-epsilon 1e-5") == "transformers (Kimi Linear)");
  CHECK(exports(llama + "--bias --experts 4 --sinks --swiglu-limit 7") == "transformers (gpt-oss)");
}

TEST_CASE_FIXTURE(Logged, "obstacles to an export are named by their options") {
  CHECK(saved_run(temporary, {"--preset", "shakespeare-char-10-minutes"}) ==
        "transformers only with --epsilon 1e-06 --feed-forward-kind swiglu --short-convolution 0 (Qwen 3); "
        "gguf only with --qk-norm none --feed-forward-kind swiglu --short-convolution 0 (Llama)");
  CHECK(export_refusal(temporary, "transformers") ==
        "[export] transformers has no such model; Qwen 3 differs least; got --epsilon 1e-05, "
        "--feed-forward-kind relu_squared, --short-convolution 4; try a model trained with --epsilon 1e-06 "
        "--feed-forward-kind swiglu --short-convolution 0");
  const TemporaryFolder other;
  CHECK(saved_run(other, {"--norm", "rms", "--positions", "rotary", "--feed-forward-kind", "swiglu",
                          "--window", "3", "--bias"}) ==
        "transformers (SmolLM3); gguf only with --window 0 (Llama)");
  DecoderOnlyConfig gemma = LanguageOptions("stories-260k").model_config(60);
  gemma.sublayer_norms = SublayerNorms::both, gemma.embedding_scale = 0;  // no options but the first
  CHECK(exports_text(gemma) ==
        "transformers only with score_scale=0.353553 (Gemma 2); gguf only with --sublayer-norms input "
        "embedding_scale=1 (Llama)");
}
