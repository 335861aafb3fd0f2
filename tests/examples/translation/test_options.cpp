#include <tapeformer/examples/translation/data.h>
#include <tapeformer/tests/examples/arguments.h>
#include <tapeformer/tests/nn/formats/temporary_folder.h>

#include <nlohmann/json.hpp>

#include <fstream>

using namespace tapeformer;

namespace {

std::string refusal(const std::vector<std::string>& arguments) {
  return message_of<Error>([&] { parsed_with_preset<TranslationOptions>(arguments).check(); });
}

}  // namespace

TEST_CASE("every preset is accepted as it stands, and options override it") {
  for (const Preset& preset : translation_presets()) {
    CHECK_NOTHROW(TranslationOptions(preset.name).check());
    CHECK(has(presets_text(translation_presets()), std::string("\n  ") + preset.name + ": "));
  }
  CHECK(TranslationOptions().preset == "built-in");
  const TranslationOptions tiny =
      parsed_with_preset<TranslationOptions>({"--preset", "translation-tiny", "--width", "64"});
  CHECK(tiny.model.tie_embeddings);
  CHECK(tiny.model.layer.width == 64);
  CHECK(tiny.training.time_budget > 0);
  const nlohmann::ordered_json json = tiny;
  CHECK(json.get<TranslationOptions>().preset == "translation-tiny");
  CHECK(json.get<TranslationOptions>().model.tie_embeddings);
  CHECK_FALSE(
      parsed_with_preset<TranslationOptions>({"--preset", "translation-tiny", "--shared-vocabulary=false"})
          .model.tie_embeddings);
  CHECK(
      refusal({"--preset", "huge"}).find("--preset must be one of built-in, quickstart, translation-tiny") ==
      0);
}

TEST_CASE("a preset chooses by the number of pairs to train on, and all its choices are accepted") {
  const TemporaryFolder folder;
  std::ofstream text(folder.file("pairs.tsv"));
  for (int i = 0; i < 40; ++i) text << i << " cats\t" << i << " chats\n";
  text.close();
  TranslationOptions options("translation-tiny");
  options.text.pairs = folder.file("pairs.tsv");
  const CommandLine line;
  options.add_to(line);
  CHECK(choose_by_size(options, line).find("--dropout ") == 0);
  CHECK(options.model.layer.dropout > TranslationOptions("translation-tiny").model.layer.dropout);
  TranslationOptions built_in;
  CHECK(choose_by_size(built_in, line).empty());
  for (const Preset& preset : translation_presets())
    for (const SizeDefaults& row : preset.by_size) {
      TranslationOptions chosen(preset.name);
      read_options(nlohmann::ordered_json::parse(row.options), fields_of(chosen));
      CHECK_NOTHROW(chosen.check());
    }
}

TEST_CASE("options that contradict each other are refused by name") {
  check_refused(
      {{"--groups 2", "[attention] groups is for gqa"},
       {"--pairs p --validation-pairs v --test-source s --test-target t", "nothing was thrown"},
       {"--pairs p --validation-source v", "--validation-source and --validation-target go together"},
       {"--pairs p --source s --target t", "--pairs excludes --source and --target"},
       {"--validation-pairs v", "validation files of your own need a text"},
       {"--pairs p --test-pairs t", "test files need validation files"},
       {"--source s --target t --swap", "--swap needs --pairs"},
       {"--pairs -", "a run reads its text again when it resumes"},
       {"--pairs p --validation-source - --validation-target t", "a run reads its text again"},
       {"--held-out 0", "nothing was thrown"},
       {"--held-out 1", "--held-out must be at least 2"},
       {"--held-out -1", "--held-out must be at least 2"}},
      refusal);
  CHECK(refusal({"--pairs", ""}) == "--pairs must not be empty");
}

TEST_CASE("an option that would change nothing is refused by its name") {
  check_refused(
      {{"--max-words 9", "--max-words has no effect on the built-in corpus"},
       {"--rotary-base 500", "--rotary-base has no effect without --positions rotary or --attention mla"},
       {"--rotary-base 500 --attention mla", "nothing was thrown"},
       {"--bias-buckets 8", "--bias-buckets has no effect without --positions buckets"},
       {"--pairs p --grammar-pairs 9", "--grammar-pairs has no effect with a text of your own"},
       {"--pairs p --validation-pairs v --held-out 9",
        "--held-out has no effect with validation files, which are held out instead"},
       {"--source-model m --target-model m --tokenizer bpe",
        "--tokenizer has no effect with models or vocabularies of your own"},
       {"--source-model m --target-model m --shared-vocabulary --vocabulary 300",
        "--vocabulary has no effect with models or vocabularies of your own"},
       {"--source-model m --vocabulary 300", "nothing was thrown"},
       {"--schedule constant --minimum-learning-rate 0",
        "--minimum-learning-rate has no effect with --schedule constant"},
       {"--pairs p --max-words 9 --held-out 9 --vocabulary 300", "nothing was thrown"}},
      refusal_of_ignored<TranslationOptions>);
}

TEST_CASE("2000 sentences are held out, or a tenth where that is less, unless a number is given") {
  const TranslationOptions asked = parsed<TranslationOptions>({"--held-out", "50"}),
                           unasked = parsed<TranslationOptions>({});
  CHECK(asked.sentences_held_out(100) == 50);
  CHECK(unasked.sentences_held_out(1'000'000) == 2000);
  CHECK(unasked.sentences_held_out(20'000) == 2000);
  CHECK(unasked.sentences_held_out(3000) == 300);
  CHECK(unasked.sentences_held_out(5) == 2);
}

TEST_CASE("fine-tuning takes the run's model and vocabularies, and refuses contradicting options") {
  const TranslationOptions trained = parsed<TranslationOptions>(
      words_of("--width 48 --heads 3 --attention gqa --groups 1 --tokenizer character "
               "--vocabulary 77 --max-length 33 --dropout 0.4 --steps 9 --pairs old.tsv --learning-rate 0.5 "
               "--source-language fr --target-language de"));
  const auto tuned = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--from", "runs/old"});
    const CommandLine line;
    TranslationOptions options = parsed<TranslationOptions>(arguments, line);
    take_fine_tuned(options, trained, line);
    return options;
  };
  const TranslationOptions options = tuned({"--pairs", "new.tsv", "--width", "48", "--dropout", "0.2"});
  CHECK(options.from == "runs/old");
  CHECK(options.model.layer.width == 48);
  CHECK(options.model.layer.attention.heads == 3);
  CHECK(options.model.layer.attention.groups == 1);
  CHECK(options.model.layer.attention.kind == "gqa");
  CHECK(options.tokenizer == "character");
  CHECK(options.vocabulary == 77);
  const Languages languages = tuned({"--target-language", "es"}).sentences.languages;
  CHECK(languages.source == "fr");
  CHECK(languages.target == "es");
  CHECK(options.model.max_length == 33);
  CHECK(options.model.layer.dropout == 0.2);
  CHECK(tuned({}).model.layer.dropout == 0.1);
  CHECK(options.text.pairs == "new.tsv");
  CHECK(options.training.steps == TranslationOptions().training.steps);
  CHECK(options.training.learning_rate == TranslationOptions().training.learning_rate);
  CHECK_NOTHROW(options.check());
  CHECK_THROWS_WITH_AS(tuned({"--width", "64"}),
                       "--width 64 contradicts --from runs/old, which has 48; leave it out", Error);
  CHECK(message_of<Error>([&] {
          tuned({"--tokenizer", "bpe"});
        }) == "--tokenizer bpe contradicts --from runs/old, which has character; leave it out");
  CHECK(message_of<Error>([&] { tuned({"--post-norm"}); }) ==
        "--post-norm true contradicts --from runs/old, which has false; leave it out");
}
