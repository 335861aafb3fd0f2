#pragma once

#include <tapeformer/data/parallel_corpus.h>

#include <string>
#include <string_view>

namespace tapeformer {

/// The content of data/built_in/english-french.tsv. The build puts it into the library, so that programs have
/// it wherever they are installed.
std::string_view built_in_pairs();

/// The parts of the built-in corpus, in the order of its lines: 15,000 English sentences with a French
/// translation for training, 1,000 for validation and 1,000 for tests, all different.
CorpusSplit built_in_corpus();

/// The built-in text for language models: the last 12,000 training pairs, each sentence with its translation
/// on the next line and an empty line after it. It is the same in every version.
std::string built_in_text();

}  // namespace tapeformer
