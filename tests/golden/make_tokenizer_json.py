#!/usr/bin/env python3
"""Makes tokenizer_json.json: small BPE tokenizers, and what the package tokenizers makes of awkward texts.

Usage: python make_tokenizer_json.py
Needs tokenizers 0.23.
"""

import json
import pathlib

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

CORPUS = ["The cat sat on the mat, and the dog didn't.", "Das Mädchen läuft über die Straße.", "  two  spaces\tand\n\nlines\r\n",
          "1234567890 3.14 2026-11-24", "日本語の文章です。", "emoji 👩‍👩‍👧 and 👍🏽", "Ünïcödé naïve café", "don't we'll they're I've",
          "def f(x):\n    return x + 1\n", "Привет, мир!", "العربية", "a" * 40, "ok OK Ok"] * 4
TEXTS = ["", " ", "  ", "\n", "\r\n \n", "the cat", " the cat", "The  cat   sat ", "I'll DON'T they'RE", "naïve café", "cafe\u0301 e\u0327\u0301",
         "ﬁne ① Ⅷ ﷺ", "日本語 text 混ぜ", "👩‍👩‍👧‍👦👍🏽🇩🇪", "a\u00a0b\u2003c\u3000d\u200be\u180ef\u0085g\u2028h", "tab\tand\x0bvt\x1c\x00nul", "12345 1 12 123 1234567",
         "x" * 300, "<s>hello</s>", "a<sep>b <sep> c", "<|end|><|end|>text<|end|>", "word<mask>  next", "a <mask>b", "maskmasking mask", "İstanbul ΣΊΣΥΦΟΣ ß",
         "\u0378\ufffd\u200d", "Привет мир", "שלום عالم", "हिन्दी", "ไทย", "한국어 조합", "don’t “quote” — dash…", "a.b,c!d?e", "## #hash ##ing",
         "▁under▁score", "<0x41> literal", "\U0001f9ff\U000e0041", "end with space ", "Mixed 123abc 45.6e-7", "ǅ ŉ ǰ", "\u1100\u1161\u11a8"]


def train(tokenizer, trainer):
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def added(tokenizer):
    tokenizer.add_special_tokens(["<|end|>", AddedToken("<sep>", single_word=False)])
    tokenizer.add_tokens([AddedToken("<mask>", lstrip=True, rstrip=True)])
    return tokenizer


def tokenizers():
    llama3 = Regex(r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
    t = Tokenizer(models.BPE(ignore_merges=True))
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(llama3, "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    train(t, trainers.BpeTrainer(vocab_size=420, special_tokens=["<s>", "</s>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    t.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    yield "byte-level BPE with Llama 3's pattern", added(t)

    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.NFC()
    qwen = Regex(r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(qwen, "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    yield "byte-level BPE with NFC", added(train(t, trainers.BpeTrainer(vocab_size=400, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)))

    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    t.decoder = decoders.ByteLevel()
    train(t, trainers.BpeTrainer(vocab_size=330, special_tokens=["<s>", "</s>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    t.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 1)])
    yield "byte-level BPE with a space put before", added(t)

    special = ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)]
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    train(t, trainers.BpeTrainer(vocab_size=420, special_tokens=special, limit_alphabet=60, show_progress=False))
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    t.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    data = json.loads(t.to_str())
    data["added_tokens"] = [a for a in data["added_tokens"] if a["id"] < 3]
    yield "BPE with byte_fallback, Llama 2's", added(Tokenizer.from_str(json.dumps(data)))

    t = Tokenizer.from_str(json.dumps(data))
    t.normalizer = normalizers.Replace(" ", "▁")
    t.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    yield "BPE with byte_fallback, Gemma's", t

    t = Tokenizer.from_str(json.dumps(data))
    t.normalizer = None
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    yield "BPE with a Metaspace at the start", added(t)

    t = Tokenizer(models.BPE(unk_token="<unk>"))
    t.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(r"\s+"), " ")])
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation("isolated"), pre_tokenizers.Digits(True)])
    t.decoder = decoders.Fuse()
    yield "BPE of words, punctuation and digits", added(train(t, trainers.BpeTrainer(vocab_size=260, special_tokens=["<unk>"], show_progress=False)))

    t = Tokenizer.from_str(t.to_str())
    t.normalizer = normalizers.NFKD()
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Digits(False), pre_tokenizers.Metaspace()])
    t.decoder = decoders.Metaspace(prepend_scheme="always")
    yield "BPE of words of letters with a mark", t

    for behavior in ("removed", "merged_with_previous", "merged_with_next", "contiguous"):
        t = Tokenizer(models.BPE())
        t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(r"[\s\w]"), behavior, invert=behavior == "contiguous"), pre_tokenizers.ByteLevel(False, use_regex=False)])
        t.decoder = decoders.ByteLevel()
        yield f"a split that is {behavior}", train(t, trainers.BpeTrainer(vocab_size=300, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))


def main():
    cases = []
    for name, tokenizer in tokenizers():
        encoded = [tokenizer.encode(text, add_special_tokens=False).ids for text in TEXTS]
        cases.append({"name": name, "file": tokenizer.to_str(), "ids": encoded, "decoded": [tokenizer.decode(ids) for ids in encoded]})
    path = pathlib.Path(__file__).with_name("tokenizer_json.json")
    path.write_text(json.dumps({"texts": TEXTS, "cases": cases}, ensure_ascii=True, separators=(",", ":")) + "\n")
    print(path, path.stat().st_size, "bytes,", len(cases), "tokenizers")


main()
