#include <tapeformer/data/parallel_corpus.h>
#include <tapeformer/data/prepared_tokens.h>
#include <tapeformer/data/text_corpus.h>
#include <tapeformer/data/tokenizers/byte_pair.h>
#include <tapeformer/data/tokenizers/character_tokenizer.h>
#include <tapeformer/tests/fuzz/parsers.h>

#include <filesystem>

namespace tapeformer {
namespace {

/// Uses pairs as a program does after reading them.
void use(std::vector<TextPair> pairs) {
  filter_by_words(pairs, 4, "pairs");
  split_by_source(pairs, count_sources(pairs) / 2, 1, "pairs");
}

Seeds tab_separated_seeds() {
  return {"a cat\tun chat\na dog\tun chien\r\nthe d\xc3\xb6g\tle chien\tfrom 12\n",
          "\xef\xbb\xbf\x61\xc2\xa0\x62\tc\n\xe2\x96\x81\td\n"};
}

void read_tab_separated_pairs(const std::string& input) {
  const std::string path = put_input("pairs.tsv", input);
  use(read_tab_separated(path));
  use(read_tab_separated(path, true));
}

Seeds line_aligned_seeds() {
  return {joined({"a cat\na dog\nthe\td\xc3\xb6g\n", "un chat\nun chien\nle chien\n"})};
}

void read_line_aligned_pairs(const std::string& input) {
  const std::vector<std::string> files = separated(input, 2);
  use(read_line_aligned(put_input("pairs.en", files[0]), put_input("pairs.fr", files[1])));
}

Seeds corpus_seeds() { return {"She sees the cat.\n\nThe d\xc3\xb6g \xf0\x9f\x90\x88 doesn't see 12.\n"}; }

void read_corpus(const std::string& input) {
  const TextCorpus corpus = TextCorpus::open({put_input("corpus.txt", input)});
  corpus.description();
  const TextSplit split = corpus.split(0.2);
  const std::string folder = input_path("tokens");
  std::filesystem::remove_all(folder);
  prepare_tokens(split, *train_byte_pair_tokenizer(corpus.source(), 260), folder);
  corpus.check_text();
  train_character_tokenizer(corpus.source());
}

}  // namespace

std::vector<Parser> text_parsers() {
  return {{"tab_separated", tab_separated_seeds, read_tab_separated_pairs},
          {"line_aligned", line_aligned_seeds, read_line_aligned_pairs},
          {"corpus", corpus_seeds, read_corpus}};
}

}  // namespace tapeformer
