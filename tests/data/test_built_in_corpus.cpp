#include <doctest/doctest.h>
#include <tapeformer/data/built_in_corpus.h>
#include <tapeformer/data/hash.h>
#include <tapeformer/tests/data/temporary_file.h>

#include <set>

using namespace tapeformer;

TEST_CASE("its parts are those of a file of pairs, and share no sentence") {
  const CorpusSplit corpus = built_in_corpus();
  CHECK(corpus.train.size() == 15000);
  CHECK(corpus.validation.size() == 1000);
  CHECK(corpus.test.size() == 1000);
  const TemporaryFile file{std::string(built_in_pairs())};
  std::vector<TextPair> pairs = corpus.train;
  pairs.insert(pairs.end(), corpus.validation.begin(), corpus.validation.end());
  pairs.insert(pairs.end(), corpus.test.begin(), corpus.test.end());
  CHECK(pairs == read_tab_separated(file.path()));
  std::set<std::string> sources;
  for (const TextPair& pair : pairs) sources.insert(pair.source);
  CHECK(sources.size() == pairs.size());
  CHECK(pairs[0].source == "How will she lose his old apples?");
  CHECK(pairs[0].target == "Comment perdra-t-elle ses vieilles pommes ?");
}

TEST_CASE("the built-in text is the same in every version") {
  const std::string text = built_in_text();
  CHECK(text.size() == 1128624);
  CHECK(hash_text(text) == 1686088585458596054u);
}
