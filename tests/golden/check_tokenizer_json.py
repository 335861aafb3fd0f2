#!/usr/bin/env python3
"""Compares every tokenizer of tokenizer_json.json, and others, with the package tokenizers on awkward text, by the program bench.

Usage: check_tokenizer_json.py BENCH [STRINGS] [SEED] [TOKENIZER_JSON...]
Every code point that Unicode 14 assigns, alone and between others, and STRINGS (20,000) random strings, for each. Needs
Python 3.11 (Unicode 14), tokenizers, numpy.
"""

import json
import pathlib
import random
import subprocess
import sys
import tempfile

import numpy
from tokenizers import Tokenizer

import byte_pair_text as text_of


def ours(program, file, strings):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "tokenizer.json").write_text(file)
        (folder / "text").write_bytes(b"".join(strings))
        numpy.array([len(s) for s in strings], numpy.uint32).tofile(folder / "lengths")
        subprocess.run([program, "tokenizing", folder / "text", "--json", folder / "tokenizer.json", "--lengths", folder / "lengths",
                        "--ids", folder / "ids"], check=True, stdout=subprocess.DEVNULL)
        ids = numpy.fromfile(folder / "ids", numpy.int32)
    ends = numpy.flatnonzero(ids < 0).tolist()
    ids = ids.tolist()
    return [ids[start:end] for start, end in zip([0, *(end + 1 for end in ends)], ends)]


def main():
    program = sys.argv[1]
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 20000
    generator = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    golden = json.loads(pathlib.Path(__file__).with_name("tokenizer_json.json").read_text())
    files = [(case["name"], case["file"]) for case in golden["cases"]]
    files += [(path, pathlib.Path(path).read_text()) for path in sys.argv[4:]]
    characters = [chr(point) for point in text_of.ASSIGNED]
    texts = characters + ["a" + c + " b" + c + "1" for c in characters] + [text_of.random_text(generator) for _ in range(count)]
    differences = 0
    for name, file in files:
        expected = [one.ids for one in Tokenizer.from_str(file).encode_batch(texts, add_special_tokens=False)]
        found = ours(program, file, [text.encode() for text in texts])
        different = [i for i, (a, b) in enumerate(zip(found, expected, strict=True)) if a != b]
        print(f"{name}: {len(texts)} strings, {sum(map(len, found))} tokens, {len(different)} differences", flush=True)
        for i in different[:5]:
            print("  ", ascii(texts[i]), found[i], expected[i])
        differences += len(different)
    sys.exit(differences > 0)


main()
