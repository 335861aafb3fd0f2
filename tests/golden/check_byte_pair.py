#!/usr/bin/env python3
"""Compares byte-level BPE with tiktoken and tokenizers on awkward text, by the program bench.

Usage: check_byte_pair.py BENCH ENCODER_JSON VOCAB_BPE [STRINGS] [SEED]
Every code point that Unicode 14 assigns, alone and between others; STRINGS (a million) random strings, and a fifth as many
with bytes in them that are not UTF-8. Needs Python 3.11 (Unicode 14), tiktoken, tokenizers, regex, numpy.
"""

import pathlib
import random
import subprocess
import sys
import tempfile

import numpy
from tokenizers import Tokenizer, models, pre_tokenizers

import byte_pair_text as text_of


def load_tokenizers(vocabulary_path, merges_path):
    tokenizer = Tokenizer(models.BPE.from_file(vocabulary_path, merges_path))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    return tokenizer


def ours(program, vocabulary_path, merges_path, strings):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "text").write_bytes(b"".join(strings))
        numpy.array([len(s) for s in strings], numpy.uint32).tofile(folder / "lengths")
        command = [program, "tokenizing", folder / "text", "--vocabulary", vocabulary_path, "--merges", merges_path]
        command += ["--lengths", folder / "lengths", "--ids", folder / "ids"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        ids = numpy.fromfile(folder / "ids", numpy.int32)
    ends = numpy.flatnonzero(ids < 0).tolist()
    ids = ids.tolist()
    return [ids[start:end] for start, end in zip([0, *(end + 1 for end in ends)], ends)]


def compare(what, strings, found, expected):
    different = [i for i, (a, b) in enumerate(zip(found, expected, strict=True)) if a != b]
    print(f"{what}: {len(strings)} strings, {sum(map(len, found))} tokens, {len(different)} differences", flush=True)
    for i in different[:5]:
        print("  ", strings[i], found[i], expected[i])
    return len(different)


def in_context(generator, point):
    def other():
        return generator.choice(text_of.PIECES)

    return "".join(generator.choice(["", other(), other() + other()]) + chr(point) * generator.choice([1, 1, 2]) + other()
                   for _ in range(generator.choice([1, 2])))


def main():
    program, vocabulary_path, merges_path = sys.argv[1:4]
    count = int(sys.argv[4]) if len(sys.argv) > 4 else 1000000
    generator = random.Random(int(sys.argv[5]) if len(sys.argv) > 5 else 1)
    tiktoken = text_of.load_tiktoken(vocabulary_path)
    tokenizers = load_tokenizers(vocabulary_path, merges_path)
    differences = 0

    def check(what, texts):
        data = [text.encode() for text in texts]
        found = ours(program, vocabulary_path, merges_path, data)
        nonlocal differences
        differences += compare(what + ", tiktoken", data, found, [tiktoken.encode_ordinary(text) for text in texts])
        encoded = tokenizers.encode_batch(texts, add_special_tokens=False)
        differences += compare(what + ", tokenizers", data, found, [one.ids for one in encoded])

    check("each assigned character", [chr(point) for point in text_of.ASSIGNED])
    check("each assigned character in context", [in_context(generator, point) for point in text_of.ASSIGNED])
    for start in range(0, count, 100000):
        check("random", [text_of.random_text(generator) for _ in range(min(100000, count - start))])
    for start in range(0, count // 5, 100000):
        data = [text_of.random_bytes(generator) for _ in range(min(100000, count // 5 - start))]
        found = ours(program, vocabulary_path, merges_path, data)
        expected = [text_of.encode_bytes(tiktoken, one) for one in data]
        differences += compare("random with bytes that are not UTF-8", data, found, expected)
        lost = sum(tiktoken.decode_bytes(ids) != one for ids, one in zip(found, data))
        differences += lost
        print(f"  {lost} do not come back")
    print("differences in all:", differences)
    sys.exit(differences > 0)


if __name__ == "__main__":
    main()
