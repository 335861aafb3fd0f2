#!/usr/bin/env python3
"""Compares the translations of an exported model with those of transformers and CTranslate2 from its folder.

Usage: python check_translation_export.py PROGRAM EXPORTED PAIRS.tsv [PREFIX]

PROGRAM is train_translation, EXPORTED the folder that its `export` wrote, PAIRS sentences and their translations, PREFIX what a
T5 wants before each. Greedy search and four beams must give the same lines everywhere, and CTranslate2, which is tried with
MarianMT, nearly the same BLEU in 8 bits. Needs transformers, ctranslate2, sentencepiece and sacrebleu.
"""

import pathlib
import re
import subprocess
import sys
import tempfile

import ctranslate2
import sacrebleu
import torch
import transformers


def ours(program, folder, sources, beams):
    command = [program, "translate", "--run", folder, "--beam", str(beams)]
    output = subprocess.run(command, input=("\n".join(sources) + "\n").encode(), capture_output=True, check=True).stdout
    return output.decode(errors="replace").split("\n")[:-1]


def of_transformers(folder, tokenizer, sources, beams):
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    with torch.no_grad():
        found = model.generate(**tokenizer(sources, return_tensors="pt", padding=True), num_beams=beams)
    texts = tokenizer.batch_decode(found, skip_special_tokens=True)
    # Python's tokenizers leave languages in the text, and padding of the target, if that has another id.
    left = {"M2M100Tokenizer": "__[a-z]+__", "MarianTokenizer": re.escape(tokenizer.pad_token)}
    if type(tokenizer).__name__ in left:
        texts = [re.sub(left[type(tokenizer).__name__], "", text).strip() for text in texts]
    return texts


def of_ctranslate2(folder, tokenizer, sources, beams, kind):
    tokens = [tokenizer.convert_ids_to_tokens(tokenizer(source).input_ids) for source in sources]
    found = ctranslate2.Translator(folder, compute_type=kind, intra_threads=1).translate_batch(
        tokens, beam_size=beams, max_decoding_length=100)  # some models have 128 positions
    ids = [tokenizer.convert_tokens_to_ids(result.hypotheses[0]) if not tokenizer.separate_vocabs else
           [tokenizer.target_encoder[token] for token in result.hypotheses[0]] for result in found]
    return tokenizer.batch_decode(ids, skip_special_tokens=True)


def main():
    program, folder, pairs = sys.argv[1:4]
    lines = [line.split("\t") for line in pathlib.Path(pairs).read_text().splitlines()]
    prefix = sys.argv[4] if len(sys.argv) > 4 else ""
    sources, references = [prefix + line[0] for line in lines], [line[1] for line in lines]
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    bad = 0

    def report(name, texts, expected):
        nonlocal bad
        different = sum(a != b for a, b in zip(texts, expected, strict=True))
        bad += different
        print(f"{name}: {different} of {len(texts)} lines are different")

    found = {beams: ours(program, folder, sources, beams) for beams in (1, 4)}
    for beams, lines in found.items():
        report(f"transformers, {beams} beams", of_transformers(folder, tokenizer, sources, beams), lines)
    bleu = [sacrebleu.corpus_bleu(found[4], [references]).score]
    # CTranslate2's converter wants vocabularies of one size.
    if type(tokenizer).__name__ == "MarianTokenizer" and not tokenizer.separate_vocabs:
        with tempfile.TemporaryDirectory() as work:
            converted = work + "/converted"
            ctranslate2.converters.TransformersConverter(folder).convert(converted)
            for beams, lines in found.items():
                report(f"CTranslate2, {beams} beams", of_ctranslate2(converted, tokenizer, sources, beams, "float32"), lines)
            bleu.append(sacrebleu.corpus_bleu(of_ctranslate2(converted, tokenizer, sources, 4, "int8"), [references]).score)
    print("BLEU", ", CTranslate2 in 8 bits ".join(f"{score:.2f}" for score in bleu))
    sys.exit(1 if bad or abs(bleu[0] - bleu[-1]) > 0.3 else 0)


if __name__ == "__main__":
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    main()
