#!/usr/bin/env python3
"""Compares what an exported translation model writes with what transformers and CTranslate2 make of its folder.

Usage: python check_translation_export.py PROGRAM EXPORTED PAIRS.tsv

PROGRAM is train_translation, EXPORTED the folder that its `export` wrote, PAIRS sentences and their translations. Greedy search
and four beams must give the same lines everywhere, and CTranslate2 in 8 bits nearly the same BLEU. Needs transformers,
ctranslate2, sentencepiece and sacrebleu.
"""

import pathlib
import subprocess
import sys
import tempfile

import ctranslate2
import sacrebleu
import torch
import transformers


def ours(program, folder, sources, beams):
    command = [program, "translate", "--run", folder, "--beam", str(beams)]
    return subprocess.run(command, input="\n".join(sources) + "\n", capture_output=True, text=True, check=True).stdout.splitlines()


def of_transformers(folder, tokenizer, sources, beams):
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    with torch.no_grad():
        found = model.generate(**tokenizer(sources, return_tensors="pt", padding=True), num_beams=beams)
    texts = tokenizer.batch_decode(found, skip_special_tokens=True)
    return [text.replace(tokenizer.pad_token, "").strip() for text in texts]  # the target's, if it has another id


def of_ctranslate2(folder, tokenizer, sources, beams, kind):
    tokens = [tokenizer.convert_ids_to_tokens(tokenizer(source).input_ids) for source in sources]
    found = ctranslate2.Translator(folder, compute_type=kind, intra_threads=1).translate_batch(tokens, beam_size=beams)
    ids = [tokenizer.convert_tokens_to_ids(result.hypotheses[0]) if not tokenizer.separate_vocabs else
           [tokenizer.target_encoder[token] for token in result.hypotheses[0]] for result in found]
    return tokenizer.batch_decode(ids, skip_special_tokens=True)


def main():
    program, folder, pairs = sys.argv[1:4]
    lines = [line.split("\t") for line in pathlib.Path(pairs).read_text().splitlines()]
    sources, references = [line[0] for line in lines], [line[1] for line in lines]
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    bad = 0

    def report(name, texts, expected):
        nonlocal bad
        different = sum(a != b for a, b in zip(texts, expected, strict=True))
        bad += different
        print(f"{name}: {different} of {len(texts)} lines are different")

    with tempfile.TemporaryDirectory() as work:
        converted = work + "/converted"
        if not tokenizer.separate_vocabs:  # whose sizes its converter wants to be the same
            ctranslate2.converters.TransformersConverter(folder).convert(converted)
        for beams in (1, 4):
            expected = ours(program, folder, sources, beams)
            report(f"transformers, {beams} beams", of_transformers(folder, tokenizer, sources, beams), expected)
            if tokenizer.separate_vocabs:
                continue
            report(f"CTranslate2, {beams} beams", of_ctranslate2(converted, tokenizer, sources, beams, "float32"), expected)
        if tokenizer.separate_vocabs:
            sys.exit(1 if bad else 0)
        bleu = [sacrebleu.corpus_bleu(texts, [references]).score
                for texts in (expected, of_ctranslate2(converted, tokenizer, sources, 4, "int8"))]
    print(f"BLEU {bleu[0]:.2f}; CTranslate2 in 8 bits {bleu[1]:.2f}")
    sys.exit(1 if bad or abs(bleu[0] - bleu[1]) > 0.3 else 0)


if __name__ == "__main__":
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    main()
