#pragma once

#include <tapeformer/data/prepared_tokens.h>

#include <functional>
#include <string>
#include <vector>

namespace tapeformer {

/// Passes on the ids of a .bin file of llm.c, piece by piece. Format: 256 numbers of 4 bytes, which are
/// 20240520, 1, the number of ids, and zeros; then the ids, 2 bytes each. Llama 3's files begin with 20240801
/// and 7, and have 4 bytes per id. All numbers are little-endian.
/// Throws:  DataError naming the file and what is wrong with it
/// Source:  Karpathy's llm.c, dev/data/data_common.py
void read_llm_c_tokens(const std::string& path,
                       const std::function<void(const std::vector<std::int32_t>& ids)>& take);

/// Makes a prepared folder of such files, in the order given, whose ids are the tokenizer's.
/// Throws:  DataError naming a file with an id outside the vocabulary; as write_prepared_tokens
PreparedTokens prepare_llm_c_tokens(const std::vector<std::string>& train,
                                    const std::vector<std::string>& validation, const Tokenizer& tokenizer,
                                    const std::string& folder);

}  // namespace tapeformer
