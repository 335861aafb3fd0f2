#include <tapeformer/examples/language/options.h>
#include <tapeformer/tests/examples/arguments.h>

#include <nlohmann/json.hpp>

using namespace tapeformer;

namespace {

/// The arguments as the program reads them: the preset is found before the defaults are shown.
LanguageOptions parsed_options(const std::vector<std::string>& arguments,
                               const DecoderOnlyConfig* tuned = nullptr) {
  const CommandLine line;
  LanguageOptions options = parsed_with_preset<LanguageOptions>(arguments, line);
  adapt_preset(options, line);
  if (tuned != nullptr) take_fine_tuned(options, *tuned, line);
  return options;
}

std::string refusal(const std::vector<std::string>& arguments) {
  return message_of<Error>([&] { parsed_options(arguments).check(); });
}

/// The parameters of a preset's model, counted in one of a single layer and a few tokens.
Index parameters(const std::string& preset, Index vocabulary) {
  constexpr Index kTokens = 3;  // a size that nothing else has
  const LanguageOptions options(preset);
  Generator random(test_seed(1));
  DecoderOnlyConfig config = options.model_config(kTokens);
  config.layers = 1;
  DecoderOnly model(config, random);
  Index count = 0;
  for (const auto& [name, parameter] : model.named_parameters()) {
    const Index times = name.find("layers.") == 0 ? options.model.layers : 1,
                rows = parameter.value().size(0);
    count += times * (rows == kTokens ? vocabulary : rows) * (parameter.value().elements() / rows);
  }
  return count;
}

}  // namespace

TEST_CASE("the presets are nanoGPT's and llama2.c's models, to the parameter") {
  // Two tables, 4 x (12 x 128^2 + 2 x 128) in the layers, a last norm of 128, a tied head.
  CHECK(parameters("shakespeare-char-cpu", 65) == 65 * 128 + 64 * 128 + 4 * (12 * 128 * 128 + 256) + 128);
  CHECK(parameters("shakespeare-char", 65) == 65 * 384 + 256 * 384 + 6 * (12 * 384 * 384 + 768) + 384);
  // No table of positions; gains of queries and keys.
  CHECK(parameters("shakespeare-char-3-minutes", 65) ==
        65 * 128 + 4 * (12 * 128 * 128 + 2 * 128 + 2 * 32) + 128);
  // Eight convolutions of 4 tokens.
  CHECK(parameters("shakespeare-char-10-minutes", 65) ==
        parameters("shakespeare-char-3-minutes", 65) + 8 * 4 * 128);
  CHECK(parameters("wikitext-2", 4096) ==
        4096 * 256 + 4 * (12 * 256 * 256 + 2 * 256 + 2 * 64 + 2 * 4 * 256) + 256);
  CHECK(parameters("gpt2-124m", 50257) == 124439808);
  CHECK(parameters("stories-260k", 512) == 260032);
}

TEST_CASE("batch schedules are checked, and survive config.json") {
  const LanguageOptions options =
      parsed_options({"--context-schedule", "0:32,0.5:64", "--batch-schedule", "0.5:24"});
  options.check();
  CHECK(nlohmann::ordered_json(options).get<LanguageOptions>().batch_shapes().size() == 2);
  CHECK(refusal({"--context-schedule", "0:32,0.5:128"}) ==
        "--context-schedule: goes up to 128, and --context is 64");
  CHECK(refusal({"--batch-schedule", "0.5"}).find("--batch-schedule: a schedule is written as") == 0);
  CHECK(refusal({"--batch-schedule", "0.5:8", "--order", "sequential"}) ==
        "--batch-schedule needs --order random");
}

TEST_CASE("a given number of steps replaces a time budget") {
  CHECK(parsed_options({"--time-budget", "3"}).training.time_budget == 3);
  CHECK(refusal({"--time-budget", "600", "--warmup", "9000"}) == "nothing was thrown");
  CHECK(refusal({"--time-budget", "3", "--steps", "10"}) ==
        "--time-budget has no effect with --steps; leave it out");
}

TEST_CASE("every preset is accepted as it stands") {
  for (const Preset& preset : language_presets()) {
    CHECK_NOTHROW(LanguageOptions(preset.name).check());
    CHECK(parsed_options({"--preset", preset.name}).training.warmup ==
          LanguageOptions(preset.name).training.warmup);
    CHECK(has(presets_text(language_presets()), std::string("\n  ") + preset.name + ": "));
  }
}

TEST_CASE("a preset sets defaults wherever it is given, and every option overrides it") {
  for (const auto& arguments :
       {std::vector<std::string>{"--layers", "3", "--preset", "gpt2-124m", "--bias=false"},
        std::vector<std::string>{"--preset=gpt2-124m", "--bias=false", "--layers=3"}}) {
    const LanguageOptions options = parsed_options(arguments);
    CHECK(options.preset == "gpt2-124m");
    CHECK(options.model.layers == 3);
    CHECK_FALSE(options.model.feed_forward_bias);
    CHECK(options.model.width == 768);
    CHECK(options.data.vocabulary == 50257);
  }
  CHECK(parsed_options({"--preset", "stories-260k", "--groups", "2", "--beta2", "0.95"})
            .training.optimizer.option("beta2") == 0.95);
  CHECK(message_of<Error>([] { parsed_options({"--preset", ""}); }).find("--preset must be one of ") == 0);
  CHECK(message_of<Error>([] { LanguageOptions("gpt3"); }) ==
        "--preset must be one of shakespeare-char-cpu, shakespeare-char-3-minutes, "
        "shakespeare-char-10-minutes, shakespeare-char, wikitext-2, gpt2-124m, stories-260k; got gpt3");
}

TEST_CASE("another attention drops the preset's groups, unless groups are given") {
  CHECK(parsed_options({"--preset", "stories-260k", "--attention", "mha"}).model.attention.groups == 0);
  CHECK(parsed_options({"--preset", "stories-260k", "--attention", "differential"}).model.attention.groups ==
        0);
  CHECK(parsed_options({"--preset", "stories-260k", "--attention", "gqa"}).model.attention.groups == 4);
  CHECK(refusal({"--preset", "stories-260k", "--attention", "mla", "--latent-width", "24"}) ==
        "nothing was thrown");
  CHECK(parsed_options({"--attention", "mla", "--latent-width", "24", "--rotary-width", "4",
                        "--query-latent-width", "12", "--positions", "rotary"})
            .model_config(65)
            .attention.latent_width == 24);
  CHECK(refusal({"--preset", "stories-260k", "--attention", "mha", "--groups", "4"}) ==
        "[attention] groups is for gqa, differential, nsa; got attention=mha, groups=4; try groups=0");
}

TEST_CASE("options that contradict each other are refused by name") {
  check_refused(
      {{"--groups 2", "[attention] groups is for gqa"},
       {"--tokenizer word", "--tokenizer must be character, byte, bpe or sentencepiece; got word"},
       {"--tokenizer bpe --vocabulary 256", "--vocabulary must be at least 257"},
       {"--tokens t --corpus c", "--tokens is a corpus already prepared"},
       {"--tokens t --tokenizer-model c", "--tokens has a tokenizer"},
       {"--validation-fraction 1", "--validation-fraction must be above 0"},
       {"--batch 0", "--batch must be from 1 to 2147483647; got 0"},
       {"--documents apart --objective prefix", "--documents apart needs a model without --objective prefix"},
       {"--objective next-word",
        "--objective: the objective must be one of next, prefix, masked; got next-word"},
       {"--objective masked --corpus c --loss-on answers",
        "--objective masked chooses the tokens that count"},
       {"--documents apart --short-convolution 3", "--documents apart needs a model without --short-conv"},
       {"--documents apart --attention gla",
        "--documents apart needs a model without attention that reaches"},
       {"--documents apart --attention nsa",
        "--documents apart needs a model without attention that reaches"},
       {"--head-chunk 8", "--head-chunk needs --fused-head"},
       {"--validation-kind none", "--validation-kind must be auto, exact, estimate or both; got none"},
       {"--order backwards", "--order must be random or sequential; got backwards"},
       {"--documents some", "--documents must be joined or apart; got some"},
       {"--loss-on some", "--loss-on must be all or answers; got some"},
       {"--feed-forward-kind sine", "--feed-forward-kind: the feed-forward network must be one of gelu, "},
       {"--swiglu-limit 7",
        "[feed_forward] swiglu_limit bounds gated silu; got swiglu_limit=7, activation=gelu, gated=false; "
        "try swiglu_limit=0"},
       {"--steps 50 --warmup 50", "the cosine schedule needs more --steps than --warmup; got 50 and 50"}},
      refusal);
  CHECK(refusal({"--corpus", ""}) == "--corpus must not be empty");
}

TEST_CASE("an option that would change nothing is refused by its name") {
  check_refused(
      {{"--tokens t --tokenizer character --vocabulary 50", "--tokenizer has no effect with --tokens; leave"},
       {"--tokens t --vocabulary 50", "--vocabulary has no effect with --tokens"},
       {"--tokens t --validation-fraction 0.5", "--validation-fraction has no effect with --tokens"},
       {"--validation v --validation-fraction 0.5", "--validation-fraction has no effect with --validation"},
       {"--tokenizer-model m --tokenizer bpe", "--tokenizer has no effect with --tokenizer-model"},
       {"--tokenizer-model m --vocabulary 300", "--vocabulary has no effect with --tokenizer-model"},
       {"--tokenizer byte --vocabulary 300", "--vocabulary has no effect with --tokenizer byte"},
       {"--rotary-base 500", "--rotary-base has no effect without --positions rotary or --attention mla"},
       {"--rotary-base 500 --positions rotary --window 8 --window-rotary-base 100",
        "--rotary-base has no effect with --window-rotary-base and a window in all layers"},
       {"--rotary-base 500 --positions rotary --window 8 --window-rotary-base 100 --windows SL",
        "nothing was thrown"},
       {"--schedule constant --minimum-learning-rate 0",
        "--minimum-learning-rate has no effect with --schedule constant"},
       {"--positions rotary --rotary-base 500 --tokenizer bpe --vocabulary 300 --validation-fraction 0.2",
        "nothing was thrown"},
       {"--attention mla --rotary-base 500", "nothing was thrown"},
       {"--swiglu-alpha 1.5", "--swiglu-alpha has no effect without --swiglu-limit"},
       {"--swiglu-alpha 1.5 --swiglu-limit 7 --feed-forward-kind swiglu --bias --experts 4",
        "nothing was thrown"},
       {"--attention gla --positions rotary",
        "--positions has no effect on a state, which knows the order of tokens by itself"},
       {"--attention kda --attention-dropout 0.1",
        "--attention-dropout has no effect on a state, which has no weights to drop"},
       {"--full-attention gqa", "--full-attention has no effect without an F that a layer has"}},
      refusal_of_ignored<LanguageOptions>);
  CHECK(parsed_options(words_of("--preset shakespeare-char-10-minutes --attention gla")).model.positions ==
        PositionKind::none);
}

TEST_CASE("fine-tuning has its model's sizes; other sizes are refused, except a shorter context") {
  const DecoderOnlyConfig tuned = LanguageOptions("stories-260k").model_config(512);
  const LanguageOptions options =
      parsed_options({"--from", "folder", "--steps", "300", "--heads", "8"}, &tuned);
  CHECK(options.model.layers == 5);
  CHECK(options.model.attention.kind == "gqa");
  CHECK(options.model.gated);
  CHECK(options.model.norm == NormKind::rms);
  CHECK(options.model.context == 512);
  CHECK(options.training.steps == 300);
  CHECK(options.batch == 12);
  // The options describe the same model, as far as they can.
  CHECK(options.model_config(512).to_json() == tuned.to_json());
  CHECK(parsed_options({"--from", "folder", "--context", "100"}, &tuned).model.context == 100);
  DecoderOnlyConfig shorter = tuned;
  shorter.context = 64;
  CHECK(parsed_options({"--from", "folder", "--preset", "shakespeare-char-3-minutes"}, &shorter)
            .context_schedule.empty());
  CHECK(parsed_options({"--from", "folder", "--dropout", "0.2"}, &tuned).model.residual_dropout == 0.2);
  const auto refused = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"--from", "folder"});
    return message_of<Error>([&] { parsed_options(more, &tuned); });
  };
  CHECK(refused({"--width", "128"}) == "--width 128 contradicts --from folder, which has 64; leave it out");
  CHECK(refused({"--norm", "layer"}) ==
        "--norm layer contradicts --from folder, which has rms; leave it out");
  CHECK(refused({"--context", "513"}) ==
        "--context 513 contradicts --from folder, which has 512; leave it out");
  CHECK(refused({"--tokenizer", "byte"}) ==
        "--tokenizer contradicts --from, whose model keeps its tokenizer");
  CHECK(refused({"--bias"}).find("--bias true contradicts") == 0);
}

TEST_CASE("options override a preset's values: small rates, contexts, an order") {
  for (const Preset& preset : language_presets()) {
    for (const std::vector<std::string>& given : std::vector<std::vector<std::string>>{
             {"--learning-rate", "1e-6"},
             {"--learning-rate", "3e-5", "--schedule", "constant"},
             {"--learning-rate", "3e-5", "--schedule", "inverse_square_root"},
             {"--context", "32"},
             {"--order", "sequential"}}) {
      std::vector<std::string> arguments{"--preset", preset.name};
      arguments.insert(arguments.end(), given.begin(), given.end());
      CAPTURE(arguments);
      CHECK(refusal(arguments) == "nothing was thrown");
    }
  }
  CHECK(parsed_options({"--preset", "wikitext-2", "--batch", "32"}).batch_schedule.empty());
  CHECK(
      refusal({"--context", "32", "--context-schedule", "0:64"}).find("--context-schedule: goes up to 64") ==
      0);
}
