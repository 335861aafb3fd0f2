#include <doctest/doctest.h>
#include <tapeformer/data/tokenizers/marian.h>
#include <tapeformer/examples/translation/marian_folder.h>
#include <tapeformer/nn/formats/marian_npz.h>
#include <tapeformer/tests/data/tokenizers/pieces_of_text.h>
#include <tapeformer/tests/nn/formats/temporary_folder.h>
#include <tapeformer/tests/reference/support.h>

#include <algorithm>

using namespace tapeformer;

namespace {

/// A folder with the model of a golden file, which has 28 pieces, and vocabularies.
struct MarianFolderCase : TemporaryFolder {
  MarianFolderCase() {
    const auto words = marian_pieces().train(text_in({"the cat", "a dog sees the cat"}), 25);
    const Index size = words->vocabulary_size();
    auto [names, files] = marian_vocabulary_files(*words, *words);
    for (const auto& [name, content] : files) write_bytes(file(name), content);
    EncoderDecoderConfig config =
        load_marian_npz(TAPEFORMER_SOURCE_DIR "/tests/golden/marian_post.npz").config();
    config.source_vocabulary = config.target_vocabulary = size;
    Generator random(test_seed(1));
    EncoderDecoder model(config, random);
    Tensor table = model.parameters()[0].value();
    std::fill_n(table.data<float>() + (size - 1) * config.layer.width, config.layer.width, 0.0f);
    save_marian_npz(file("model.npz"), model);
    decoder = marian_decoder_yml(names);
  }
  TranslationRun load(const std::string& text, const char* name = "decoder.yml") const {
    write_bytes(file(name), text);
    return load_marian_folder(path());
  }
  std::string path() const { return std::filesystem::path(file("x")).parent_path(); }
  std::string decoder;
};

}  // namespace

TEST_CASE("a folder that was written is read, with the search of its decoder.yml") {
  const MarianFolderCase folder;
  CHECK_FALSE(is_marian_folder(folder.path()));
  const TranslationRun run = folder.load(folder.decoder);
  CHECK(is_marian_folder(folder.path()));
  CHECK(marian_folder_config(folder.path()).to_json() == run.model.config().to_json());
  const auto last = static_cast<std::int32_t>(run.model.config().target_vocabulary - 1);
  CHECK(run.search.begin == last);
  CHECK(run.search.end == 0);
  CHECK(run.search.never == TokenIds{last, 1});
  CHECK(run.search.beam == 6);
  CHECK(run.search.length_penalty == 1);
  CHECK(run.search.length_factor == 3);
  CHECK(run.search.renormalize);
  CHECK(run.search.transformers->early_stopping == EarlyStopping::yes);
  CHECK_FALSE(run.search.transformers->forced_end);
  CHECK(run.words.source->piece(1) == "<unk>");
}

TEST_CASE("a decoder.yml as Marian leaves it has Marian's defaults, and paths from before a move") {
  const MarianFolderCase folder;
  const TranslationRun run = folder.load(
      "models: [/gone/model.npz]\nvocabs: [/gone/vocab.yml, /gone/target.spm]\nnormalize: 0\n"
      "allow-unk: true\nmax-length-factor: 1.5\nmini-batch: 32\n",
      "model.npz.decoder.yml");
  CHECK(run.search.beam == 12);
  CHECK(run.search.length_penalty == 0);
  CHECK(run.search.length_factor == 1.5);
  CHECK(run.search.never.size() == 1);
}

TEST_CASE("what is not supported is refused by name") {
  const MarianFolderCase folder;
  const auto refusal = [&](const std::string& from, const std::string& to) {
    std::string text = folder.decoder;
    text.replace(text.find(from), from.size(), to);
    const std::string said = message_of<Error>([&] { folder.load(text); });
    return said.substr(folder.path().size() + 1);
  };
  CHECK(refusal("  - model.npz", "  - model.npz\n  - b.npz") ==
        "decoder.yml: models must name one model; ensembles are not supported");
  CHECK(refusal("  - target.spm\n", "") ==
        "decoder.yml: vocabs must name the vocabularies of source and target");
  CHECK(refusal("word-penalty: 0", "word-penalty: 1") ==
        "decoder.yml: word-penalty = 1 changes the arithmetic and is not implemented");
  CHECK(refusal("word-penalty", "sampling") ==
        "decoder.yml: sampling is unknown here and may change the arithmetic; if it does not, remove it");
  CHECK(refusal("normalize: 1", "normalize: x") ==
        "decoder.yml: normalize must be a positive number; got \"x\"");
  CHECK(refusal("model.npz", "gone.npz").find("gone.npz: cannot be") == 0);
  write_bytes(folder.file("small.yml"), "</s>: 0\n<unk>: 1\n");
  CHECK(refusal("source.spm", "small.yml").find("small.yml: must have ") == 0);
  write_bytes(folder.file("model.npz"), read_bytes(folder.file("model.npz")).substr(0, 5000));
  CHECK(refusal("models", "models") == "model.npz: is not a whole archive");
}
