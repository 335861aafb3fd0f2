#!/usr/bin/env python3
"""Makes byte_pair.json: a text, the merges that a plain trainer learns from it, and awkward strings with the ids that
tiktoken and tokenizers give them with that vocabulary.

Needs Python 3.11 (Unicode 14), tiktoken, tokenizers, transformers and regex. The test needs the JSON only.
"""

import collections
import json
import pathlib
import random
import tempfile

import regex
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers

import byte_pair_text as text_of

MERGES = 400
SENTENCES = [
    "The tokenizer learns from this text, which it doesn't keep: it's merged, pair by pair, until nothing's left to merge.",
    "They've said they'll come back in 2024 or 2025; we're sure that the others would've stayed, if I'd asked them to.",
    "Le tokenizer n'apprend que les paires qu'il a vues : l'été, l'hiver, aujourd'hui, peut-être déjà demain.",
    "def merge(words, pair):\n    for word in words:\n        if pair in word:\n            word.join(pair)\n    return words\n",
    "Die Wörter größer als fünf Zeichen heißen hier lange Wörter. Größe, Maße, Straße.\n\n\n",
    "日本語のテキストも、短い文で学びます。日本語の文は長い。\n",
    "Привет, мир! Как дела? Мир, труд, май.\t\t1, 2, 3 ... 10, 20, 30 ... 100, 200, 300!!!\r\n",
    "👍🏽 👍🏽 👩\u200d👩\u200d👧\u200d👦 👩\u200d👩\u200d👧\u200d👦 🇫🇷🇫🇷 aaaaaaaaaaaaaaaa bbbb aaaaaaaa ========  ========\n",
]


def training_text():
    generator = random.Random(7)
    sentences = SENTENCES * 3 + [text_of.random_text(generator) for _ in range(40)]
    generator.shuffle(sentences)
    return "".join(sentence + generator.choice(["\n", " ", "  "]) for sentence in sentences)


def learn(text):
    """Counts all pairs again for each merge; of equally frequent ones the greatest by its two byte strings."""
    words = collections.Counter(
        tuple(bytes([byte]) for byte in word.encode()) for word in regex.findall(text_of.PATTERN, text)
    )
    merges = []
    while len(merges) < MERGES:
        pairs = collections.Counter()
        for word, count in words.items():
            for pair in zip(word, word[1:]):
                pairs[pair] += count
        pair = max(pairs, key=lambda pair: (pairs[pair], pair))
        if pairs[pair] < 2:
            break
        merges.append(pair)
        merged_words = collections.Counter()
        for word, count in words.items():
            merged = []
            for token in word:
                merged.append(token)
                if tuple(merged[-2:]) == pair:
                    merged[-2:] = [pair[0] + pair[1]]
            merged_words[tuple(merged)] += count
        words = merged_words
    return merges


def write_files(folder, merges):
    """The published form of a vocabulary."""
    characters = text_of.byte_characters()
    name = {byte: character for character, byte in characters.items()}
    tokens = [*characters, *("".join(name[b] for b in left + right) for left, right in merges), "<|endoftext|>"]
    (folder / "vocab.json").write_text(json.dumps({token: id for id, token in enumerate(tokens)}), encoding="utf-8")
    lines = [" ".join("".join(name[b] for b in part) for part in pair) for pair in merges]
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *lines, ""]), encoding="utf-8")
    return str(folder / "vocab.json"), str(folder / "merges.txt")


def strings():
    generator = random.Random(14)
    plane = collections.defaultdict(list)
    for point in text_of.ASSIGNED:
        plane[point >> 16].append(point)
    texts = ["", *text_of.PIECES, *SENTENCES]
    for points in plane.values():
        texts += ["".join(chr(generator.choice(points)) for _ in range(3)) for _ in range(12)]
    texts += [text_of.random_text(generator) for _ in range(250)]
    invalid = [*text_of.INVALID, *(text_of.random_bytes(generator) for _ in range(80)), bytes(range(256))]
    return texts, invalid


def main():
    text = training_text()
    merges = learn(text)
    texts, invalid = strings()
    with tempfile.TemporaryDirectory() as folder:
        vocabulary_path, merges_path = write_files(pathlib.Path(folder), merges)
        encoding = text_of.load_tiktoken(vocabulary_path)
        tokenizers = Tokenizer(models.BPE.from_file(vocabulary_path, merges_path))
        tokenizers.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
        published = transformers.GPT2Tokenizer(vocab=vocabulary_path, merges=merges_path)
        vocabulary = json.load(open(vocabulary_path, encoding="utf-8"))
        merges_text = open(merges_path, encoding="utf-8").read()
    cases = []
    for one in texts:
        ids = encoding.encode_ordinary(one)
        assert ids == tokenizers.encode(one, add_special_tokens=False).ids == text_of.encode_bytes(encoding, one.encode())
        if "<|endoftext|>" not in one:
            assert ids == published.encode(one), one
        cases.append([one.encode().hex(), ids])
    cases += [[data.hex(), text_of.encode_bytes(encoding, data)] for data in invalid]
    content = {"text": text, "vocabulary": json.dumps(vocabulary), "merges": merges_text, "cases": cases}
    path = pathlib.Path(__file__).with_name("byte_pair.json")
    path.write_text(json.dumps(content, separators=(",", ":")).replace("],[\"", "],\n[\"") + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
