#!/usr/bin/env python3
"""Makes tokenizer_json.json: small tokenizers of every kind, and the ids that the package tokenizers gives awkward texts.

Usage: python make_tokenizer_json.py
Needs tokenizers and sentencepiece.
"""

import base64
import io
import json
import pathlib
import tempfile

import sentencepiece
from sentencepiece import sentencepiece_model_pb2

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
    tokenizer.add_tokens([AddedToken("<mask>", lstrip=True, rstrip=True), AddedToken("mask", single_word=True)])
    return tokenizer


def precompiled():
    """SentencePiece's form of a few replacements, which are that of a single character, of a sequence, and to nothing."""
    rules = ["41\t61", "42\t62 62", "20AC\t65 75 72", "FB01\t66 69", "65 301\t45", "200D\t", "3000\t20", "1F469\t77"]
    model = io.BytesIO()
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as file:
        file.write("\n".join(rules) + "\n")
        file.flush()
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(CORPUS), model_writer=model, vocab_size=150, hard_vocab_limit=False,
                                                 normalization_rule_tsv=file.name, minloglevel=2)
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(model.getvalue())
    return base64.b64encode(proto.normalizer_spec.precompiled_charsmap).decode()


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
    t.post_processor = processors.RobertaProcessing(("</s>", 1), ("<s>", 0))
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

    t = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    t.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()])
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation("isolated"), pre_tokenizers.Digits(True)])
    t.decoder = decoders.Fuse()
    yield "BPE with an end of words", added(train(t, trainers.BpeTrainer(vocab_size=260, special_tokens=["<unk>"], end_of_word_suffix="</w>", show_progress=False)))

    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    t.decoder = decoders.Metaspace(prepend_scheme="always")
    train(t, trainers.UnigramTrainer(vocab_size=260, special_tokens=["<s>", "<unk>", "</s>"], unk_token="<unk>", show_progress=False))
    t.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 2)])
    yield "Unigram, T5's", added(t)

    t = Tokenizer.from_str(t.to_str())
    t.normalizer = normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents(), normalizers.Strip()])
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    yield "Unigram without accents", t

    data = json.loads(t.to_str())
    data["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "Precompiled", "precompiled_charsmap": precompiled()}]}
    yield "Unigram with a map of SentencePiece", Tokenizer.from_str(json.dumps(data))

    t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.normalizer = normalizers.BertNormalizer()
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.decoder = decoders.WordPiece()
    train(t, trainers.WordPieceTrainer(vocab_size=300, special_tokens=["[UNK]", "[CLS]", "[SEP]"], show_progress=False))
    t.post_processor = processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    yield "WordPiece, BERT's", added(t)

    t = Tokenizer.from_str(t.to_str())
    t.normalizer = normalizers.BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=True, lowercase=False)
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Digits(False)])
    t.decoder = decoders.WordPiece(cleanup=False)
    yield "WordPiece with words of letters", t

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
