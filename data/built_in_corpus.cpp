#include <tapeformer/data/built_in_corpus.h>

namespace tapeformer {

CorpusSplit built_in_corpus() {
  constexpr std::size_t kTrain = 15000, kValidation = 1000;
  CorpusSplit corpus;
  for (std::string_view rest = built_in_pairs(); !rest.empty();) {
    const std::size_t tab = rest.find('\t'), end = rest.find('\n');
    auto& part = corpus.train.size() < kTrain             ? corpus.train
                 : corpus.validation.size() < kValidation ? corpus.validation
                                                          : corpus.test;
    part.push_back({std::string(rest.substr(0, tab)), std::string(rest.substr(tab + 1, end - tab - 1))});
    rest.remove_prefix(end + 1);
  }
  return corpus;
}

std::string built_in_text() {
  constexpr std::ptrdiff_t kPairs = 12000;
  const std::vector<TextPair> pairs = built_in_corpus().train;
  std::string text;
  for (auto pair = pairs.end() - kPairs; pair != pairs.end(); ++pair)
    text += pair->source + "\n" + pair->target + "\n\n";
  return text;
}

}  // namespace tapeformer
