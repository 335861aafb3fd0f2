#pragma once

#include <tapeformer/examples/translation/data.h>
#include <tapeformer/nn/generation/search.h>

#include <optional>
#include <string>

namespace tapeformer {

/// The token from which decoders of a folder of transformers start: decoder_start_token_id in
/// generation_config.json, or in config.json if there is no such file. Throws: CheckpointError
std::optional<std::int32_t> decoder_start_in(const std::string& folder);

/// The search of transformers' `generate` by the folder's generation_config.json, or by config.json if there
/// is no such file: num_beams, length_penalty, early_stopping, max_length, min_length, no_repeat_ngram_size,
/// forced_bos_token_id, forced_eos_token_id, bad_words_ids of one token each and renormalize_logits.
/// Throws:  CheckpointError naming the file and an unsupported setting that would change outputs
SearchConfig read_generation_config(const std::string& folder, const Vocabularies& words);

/// A generation_config.json for outputs of at most `max_length` tokens, start and end included, that never
/// contain padding or the start token again.
std::string generation_config_json(const Vocabularies& words, Index max_length);

}  // namespace tapeformer
