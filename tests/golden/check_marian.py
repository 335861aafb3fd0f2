#!/usr/bin/env python3
"""Compares our translations with a folder of Marian with those of transformers' converter and CTranslate2.

Usage: python check_marian.py PROGRAM EXPORTED CONVERTER SENTENCES

PROGRAM is train_translation, EXPORTED the folder that its `export --format marian-npz` wrote, CONVERTER
convert_marian_to_pytorch.py of transformers' sources before version 5 (src/transformers/models/marian), SENTENCES a file.
"""

import importlib.util
import pathlib
import shutil
import subprocess
import sys
import tempfile

import ctranslate2
import sentencepiece
import torch
import transformers


def ours(program, folder, sources, beams):
    command = [program, "translate", "--run", folder, "--beam", str(beams), "--max-tokens", "100"]
    return subprocess.run(command, input="\n".join(sources) + "\n", capture_output=True, text=True, check=True).stdout.splitlines()


def of_transformers(folder, converter, work, sources, beams):
    specification = importlib.util.spec_from_file_location("transformers.models.marian.converter", converter)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    copy, converted = work / "copy", work / "converted"
    shutil.copytree(folder, copy, dirs_exist_ok=True)  # to which the converter adds files
    module.convert(copy, converted)
    tokenizer = transformers.MarianTokenizer.from_pretrained(converted)
    model = transformers.MarianMTModel.from_pretrained(converted).eval()
    found = model.generate(**tokenizer(sources, return_tensors="pt", padding=True), num_beams=beams, length_penalty=1.0,
                           early_stopping=True, max_length=101, forced_eos_token_id=None, renormalize_logits=True,
                           bad_words_ids=[[tokenizer.pad_token_id], [tokenizer.unk_token_id]])
    return tokenizer.batch_decode(found, skip_special_tokens=True, clean_up_tokenization_spaces=False)


def of_ctranslate2(folder, work, sources, beams):
    names = ["vocab.yml"] * 2 if (folder / "vocab.yml").exists() else ["src.vocab.yml", "trg.vocab.yml"]
    converter = ctranslate2.converters.MarianConverter(str(folder / "model.npz"), [str(folder / name) for name in names])
    converter.convert(str(work / "ct2"), force=True)
    cut, join = (sentencepiece.SentencePieceProcessor(str(folder / name)) for name in ("source.spm", "target.spm"))
    found = ctranslate2.Translator(str(work / "ct2"), intra_threads=1).translate_batch(
        [cut.encode(source, out_type=str) for source in sources], beam_size=beams, max_decoding_length=100, disable_unk=True)
    return [join.decode(result.hypotheses[0]) for result in found]


def main():
    program, folder, converter, sentences = sys.argv[1], *map(pathlib.Path, sys.argv[2:5])
    sources, bad = sentences.read_text().splitlines(), 0
    with tempfile.TemporaryDirectory() as name, torch.no_grad():
        work = pathlib.Path(name)
        for beams in (1, 4):
            expected = ours(program, folder, sources, beams)
            found = {"CTranslate2": of_ctranslate2(folder, work, sources, beams)}
            if (folder / "vocab.yml").exists():  # the converter takes no others
                found["transformers"] = of_transformers(folder, converter, work, sources, beams)
            for other, texts in found.items():
                different = sum(a != b for a, b in zip(texts, expected, strict=True))
                bad += different
                print(f"{other}, {beams} beams: {different} of {len(sources)} lines are different")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    main()
