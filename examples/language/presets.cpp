#include <tapeformer/examples/language/options.h>

namespace tapeformer {

/// The common options of nanoGPT's recipes for characters.
constexpr const char* kCharacters = R"({
  "tokenizer": "character",
  "learning_rate": 1e-3, "minimum_learning_rate": 1e-4, "warmup": 100, "schedule": "cosine",
  "weight_decay": 0.1, "beta1": 0.9, "beta2": 0.99, "clip": 1,
  "validate_every": 250, "log_every": 50, "samples": 1})";

/// The best use of little time on a CPU: tests/bench/LOG.md has the experiments.
constexpr const char* kMinutes = R"({
  "layers": 4, "heads": 4, "context": 256, "batch": 8,
  "positions": "rotary", "norm": "rms", "qk_norm": "rms", "feed_forward_kind": "relu_squared",
  "optimizer": "muon", "newton_schulz_steps": 4,
  "learning_rate": 0.02, "minimum_learning_rate": 1e-5, "adam_rate": 0.25,
  "warmup": 100, "schedule": "cosine", "weight_decay": 0.1, "beta1": 0.9, "beta2": 0.99, "clip": 1,
  "validate_every": 2000, "validation_batches": 20, "log_every": 50, "samples": 1})";

const std::vector<Preset>& language_presets() {
  static const std::vector<Preset> presets = {
      // Validations every 250 steps, as nanoGPT has, would halve the batches of each: see validation_plan().
      {"shakespeare-char-cpu",
       "characters; 4 layers, 4 heads, width 128, context 64, batch 12, 2000 steps: minutes on two cores",
       {kCharacters, R"({
         "layers": 4, "heads": 4, "width": 128, "context": 64,
         "batch": 12, "steps": 2000, "validate_every": 500, "validation_batches": 20})"}},
      {"shakespeare-char-3-minutes",
       "characters; 4 layers, 4 heads, width 128, context 128, then 256, rotary, rms, qk-norm, squared ReLU, "
       "batch 8, then 4, Muon: as many steps as three minutes allow",
       {kMinutes, R"({
         "tokenizer": "character", "width": 128, "context_schedule": "0:128,0.6:256",
         "batch_schedule": "0.6:4", "time_budget": 3, "steps": 4000})"}},
      {"shakespeare-char-10-minutes",
       "the same with convolutions of 4 tokens and dropout 0.1: as many steps as ten minutes allow",
       {kMinutes, R"({
         "tokenizer": "character", "width": 128, "context_schedule": "0:128,0.5:256",
         "batch_schedule": "0.5:4", "short_convolution": 4, "dropout": 0.1,
         "time_budget": 10, "steps": 11000})"}},
      {"shakespeare-char",
       "characters; 6 layers, 6 heads, width 384, context 256, batch 64, 5000 steps, dropout 0.2: hours",
       {kCharacters, R"({
         "layers": 6, "heads": 6, "width": 384, "context": 256, "dropout": 0.2,
         "batch": 64, "steps": 5000, "validation_batches": 200})"}},
      {"wikitext-2",
       "two million words: bpe of 4096, 4 layers, 4 heads, width 256, context 256, then 512, rotary, rms, "
       "qk-norm, squared ReLU, convolutions of 4 tokens, dropout 0.1, batch 8, then 4, Muon: as many steps "
       "as half an hour allows",
       {kMinutes, R"({
         "tokenizer": "bpe", "vocabulary": 4096, "width": 256, "context": 512,
         "context_schedule": "0:256,0.6:512", "batch_schedule": "0.6:4", "short_convolution": 4,
         "fused_head": true, "dropout": 0.1, "adam_rate": 0.5, "time_budget": 30, "steps": 7000})"}},
      // nanoGPT's GPT-2 takes 491,520 tokens per step on eight GPUs. Here a step has a twelfth of that, the
      // rates are divided by two, and the steps amount to 20 tokens per parameter (Hoffmann et al. 2022,
      // arXiv:2203.15556).
      {"gpt2-124m",
       "the smallest GPT-2: bpe of 50257, 12 layers, 12 heads, width 768, context 1024, biases, fused head, "
       "batch 4 x 10, 60000 steps: weeks on a CPU",
       {R"({
         "tokenizer": "bpe", "vocabulary": 50257,
         "layers": 12, "heads": 12, "width": 768, "context": 1024,
         "feed_forward_kind": "gelu_tanh", "bias": true,
         "batch": 4, "accumulate": 10, "steps": 60000, "fused_head": true,
         "learning_rate": 3e-4, "minimum_learning_rate": 3e-5, "warmup": 700, "schedule": "cosine",
         "weight_decay": 0.1, "beta1": 0.9, "beta2": 0.95, "clip": 1,
         "validate_every": 500, "validation_kind": "estimate", "validation_batches": 50,
         "checkpoint_every": 100, "log_every": 10, "samples": 1})"}},
      // llama2.c's smallest model, with an eighth of its batch.
      {"stories-260k",
       "a small Llama: sentencepiece of 512, 5 layers, 8 heads, 4 of keys and values, width 64, context 512, "
       "rotary, rms, swiglu of 172, batch 16, 5000 steps",
       {R"({
         "tokenizer": "sentencepiece", "vocabulary": 512,
         "layers": 5, "attention": "gqa", "heads": 8, "groups": 4, "width": 64, "context": 512,
         "positions": "rotary", "norm": "rms", "feed_forward_kind": "swiglu", "feed_forward": 172,
         "batch": 16, "steps": 5000,
         "learning_rate": 1e-3, "minimum_learning_rate": 1e-4, "warmup": 200, "schedule": "cosine",
         "weight_decay": 0.01, "beta1": 0.9, "beta2": 0.99, "clip": 1,
         "validate_every": 250, "validation_batches": 20, "log_every": 25, "samples": 1})"}},
  };
  return presets;
}

}  // namespace tapeformer
