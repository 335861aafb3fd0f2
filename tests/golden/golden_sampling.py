"""Probabilities of the next token after transformers' logits processors, in the order in which generate() applies them."""

import torch
from transformers import GenerationConfig, GPT2Config, GPT2LMHeadModel
from transformers.generation import LogitsProcessorList

from golden_file import GoldenFile, generator, integers, normal

VOCABULARY = 41
CASES = {
    "plain": {},
    "temperature": dict(temperature=0.6),
    "top_k": dict(top_k=5),
    "top_k_beyond": dict(top_k=99),
    "top_p": dict(top_p=0.7),
    "min_p": dict(min_p=0.15),
    "penalty": dict(repetition_penalty=1.7),
    "penalty_below_one": dict(repetition_penalty=0.4),
    "hot_top_p": dict(temperature=1.8, top_p=0.6),
    "cold_min_p": dict(temperature=0.5, min_p=0.05),
    "top_k_top_p": dict(top_k=9, top_p=0.8),
    "top_k_min_p": dict(top_k=12, min_p=0.3),
    "top_p_min_p": dict(top_p=0.9, min_p=0.2),
    "all": dict(temperature=0.8, top_k=15, top_p=0.92, min_p=0.08, repetition_penalty=1.3),
    "all_hot": dict(temperature=1.5, top_k=20, top_p=0.85, min_p=0.25, repetition_penalty=2.5),
}


def processors(options, seen):
    """The processors as generate() itself combines them, so that the order is its own."""
    model = GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, n_layer=1, n_head=1, n_embd=4, n_positions=16))
    config = GenerationConfig(do_sample=True, **{"top_k": 0, **options})
    config.num_beams = 1
    prepared, _ = model._prepare_generation_config(config)
    return model._get_logits_processor(prepared, input_ids_seq_length=seen.shape[1], encoder_input_ids=seen,
                                       prefix_allowed_tokens_fn=None, logits_processor=LogitsProcessorList())


def make():
    file = GoldenFile()
    for name, options in CASES.items():
        random = generator(name)
        logits, seen = normal(random, 1, VOCABULARY, scale=2), integers(random, VOCABULARY, 1, 9)
        scores = processors(options, seen)(seen, logits.clone())
        file.add(f"{name}/in.logits", logits[0])
        file.add(f"{name}/in.seen", seen[0])
        file.add(f"{name}/out", torch.softmax(scores, -1)[0])
        file.options[name] = options
    return file
