#pragma once

#include <tapeformer/tests/fuzz/parsers.h>

// The rows of the table of parsers, by the files that define them.
namespace tapeformer {

using Seeds = std::vector<std::string>;

// formats.cpp
Seeds safetensors_seeds();
void read_safetensors(const std::string& input);
Seeds sharded_index_seeds();
void read_sharded_index(const std::string& input);
Seeds token_file_seeds();
void read_token_file(const std::string& input);
Seeds npz_seeds();
void read_npz(const std::string& input);
Seeds torch_seeds();
void read_torch(const std::string& input);

// runs.cpp
Seeds checkpoint_seeds();
void read_checkpoint(const std::string& input);
Seeds metrics_seeds();
void read_metrics(const std::string& input);
Seeds config_seeds();
void read_config(const std::string& input);

// foreign_models.cpp
Seeds gpt2_config_seeds();
void read_gpt2_config(const std::string& input);
Seeds llama_config_seeds();
void read_llama_config(const std::string& input);
Seeds marian_config_seeds();
void read_marian_config(const std::string& input);
Seeds marian_npz_seeds();
void read_marian_npz(const std::string& input);
Seeds marian_folder_seeds();
void read_marian_folder(const std::string& input);
Seeds translation_folder_seeds();
void read_translation_folder(const std::string& input);

// tokenizers.cpp
Seeds vocabulary_seeds();
void read_vocabulary(const std::string& input);
Seeds text_tokenizer_seeds();
void read_text_tokenizer(const std::string& input);
Seeds byte_pairs_seeds();
void read_byte_pairs(const std::string& input);
Seeds tokenizer_json_seeds();
void read_tokenizer_json(const std::string& input);
Seeds text_vocabulary_seeds();
void read_vocabulary_text(const std::string& input);

// texts.cpp
Seeds tab_separated_seeds();
void read_tab_separated_pairs(const std::string& input);
Seeds line_aligned_seeds();
void read_line_aligned_pairs(const std::string& input);
Seeds corpus_seeds();
void read_corpus(const std::string& input);

}  // namespace tapeformer
