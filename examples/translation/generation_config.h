#pragma once

#include <tapeformer/examples/translation/data.h>
#include <tapeformer/nn/generation/search.h>

#include <optional>
#include <string>

namespace tapeformer {

/// The token that decoders of a folder of transformers start from: decoder_start_token_id of
/// generation_config.json, or of config.json where there is none. Throws: CheckpointError
std::optional<std::int32_t> decoder_start_in(const std::string& folder);

/// The search of `generate` as generation_config.json, or an older config.json, of the folder has it:
/// num_beams, length_penalty, early_stopping, max_length, min_length, no_repeat_ngram_size,
/// forced_bos_token_id, forced_eos_token_id, bad_words_ids of one token each and renormalize_logits.
/// Throws:  CheckpointError naming the file and a setting that would change outputs and is not supported
SearchConfig read_generation_config(const std::string& folder, const Vocabularies& words);

/// A generation_config.json for outputs of at most `max_length` tokens, the start and the end included, none
/// of which is padding or another start.
std::string generation_config_json(const Vocabularies& words, Index max_length);

}  // namespace tapeformer
