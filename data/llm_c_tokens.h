#pragma once

#include <tapeformer/data/prepared_tokens.h>

#include <functional>
#include <string>
#include <vector>

namespace tapeformer {

/// Passes on the ids of a .bin file of llm.c, piece by piece. Format: 256 numbers of 4 bytes, which are
/// 20240520, 1, the number of ids, and zeros; then the ids, 2 bytes each. Llama 3's files begin with 20240801
/// and 7, and have 4 bytes for an id. All is little-endian.
/// Throws:  DataError naming the file and what is wrong with it
/// Source:  Karpathy's llm.c, dev/data/data_common.py
void read_llm_c_tokens(const std::string& path,
                       const std::function<void(const std::vector<std::int32_t>& ids)>& take);

/// Writes such a file, with 2 bytes an id if the vocabulary has at most 65,536, else Llama 3's.
/// Throws:  DataError if it cannot be written, or there are more than 2^31 - 1 ids
void write_llm_c_tokens(const TokenFile& tokens, const std::string& path);

/// Makes a prepared folder of such files, in the order given, whose ids are the tokenizer's.
/// Throws:  DataError naming a file with an id that the tokenizer lacks, or as prepare_tokens
PreparedTokens prepare_llm_c_tokens(const std::vector<std::string>& train,
                                    const std::vector<std::string>& validation,
                                    const TextTokenizer& tokenizer, const std::string& folder);

}  // namespace tapeformer
