#!/usr/bin/env python3
"""Makes marian_tokenizer/: tokenizers of MarianMT, and transformers' ids of odd sentences.

Usage: python make_marian_tokenizer.py
Needs transformers and sentencepiece; with and without sacremoses, which transformers warns about, the ids are the same.
"""

import json
import pathlib
import random
import tempfile

import sentencepiece
import transformers

FOLDER = pathlib.Path(__file__).parent / "marian_tokenizer"
RULES = "41\t61\nFF21\t61\n3000\t20\nFB01\t66 69\n2026\t2E 2E 2E\n"  # replacements: A, fullwidth A, a space, a ligature, an ellipsis
ODD = ["", " ", "   ", "\t", "a", "A\uff21\ufb01\u2026", "the cat", " the cat", "the  cat ", "the\u3000cat", "漢字 the 漢", "😀", "▁the▁cat", "</s>",
       "the</s> cat", "<pad>the<unk>cat", " <unk> ", "<unk><unk>", "the <s> cat", ">>fr<< the cat", ">>fr<<the cat", ">>xx<< the cat", " >>fr<< the",
       ">>fr the cat", ">><<the", ">>a<<b<<c", "</s>>>fr<< the", "the >>fr<< cat", "<<", ">>", ">>the cat sees<<", "\u00a0the\u202fcat\u00a0", "\u2028",
       "«the» “cat” ‘dog’ – — …", "the cat.The dog!", "123 4,567.89", "the\ncat", "THE CAT", "é e\u0301", "<unk", "<pad> ", "the cat</s>"]


def sentences(seed, count):
    random.seed(seed)
    words = ["the", "cat", "le", "chat", "noir", "<pad>", "</s>", "<unk>", ">>fr<<", "A", "é", "漢", "«", "\u00a0", ".", "123", "dort", "sees", "▁", "X"]
    return ["".join(random.choice(["", " ", "  ", " "]) + random.choice(words) for _ in range(random.randint(1, 8))) for _ in range(count)]


def train(path, stems, ends, size):
    random.seed(size)
    corpus = [" ".join(random.choices(stems.split(), k=6)) + random.choice(ends) for _ in range(300)]
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as rules:
        rules.write(RULES)
        rules.flush()
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(corpus), model_prefix=path, vocab_size=size, hard_vocab_limit=False,
                                                 bos_id=-1, eos_id=-1, normalization_rule_tsv=rules.name, num_threads=1, minloglevel=2)
    pathlib.Path(path + ".vocab").unlink()
    pathlib.Path(path + ".model").rename(path + ".spm")
    model = sentencepiece.SentencePieceProcessor(model_file=path + ".spm")
    return [model.id_to_piece(i) for i in range(1, len(model))]


def write(path, value):
    path.write_text(json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n")


def make(name, separate):
    folder = FOLDER / name
    folder.mkdir(parents=True, exist_ok=True)
    source = train(str(folder / "source"), "the cat dog sees likes noir a house", [".", "!", ", 1 2 3"], 60)
    target = train(str(folder / "target"), "le chat chien dort voit noir petit a maison", [".", " ?", ", é «1 2»"], 50)
    config = {"source_lang": "en", "target_lang": "fr", "separate_vocabs": separate}
    if separate:  # of one size, since transformers takes the source's id of padding for both
        for file, pieces in (("vocab.json", source), ("target_vocab.json", target)):
            write(folder / file, {piece: i for i, piece in enumerate(["</s>", "<unk>", *pieces[: min(len(source), len(target)) - 3], "<pad>"])})
    else:  # with a language code, an emoji that no model has, and some of the pieces missing
        pieces = ["</s>", "<unk>", ">>fr<<", "😀", *dict.fromkeys(source[:-5] + target), "<pad>"]
        write(folder / "vocab.json", {piece: i for i, piece in enumerate(pieces)})
    write(folder / "tokenizer_config.json", config)
    tokenizer = transformers.MarianTokenizer.from_pretrained(folder)
    cases = []
    for text in ODD + sentences(name, 60):
        as_source, as_target = tokenizer(text).input_ids, tokenizer(text_target=text).input_ids
        cases.append([text, as_source[:-1], as_target[:-1], tokenizer.decode(as_target, skip_special_tokens=True)])
        assert as_source[-1] == as_target[-1] == tokenizer.eos_token_id
    return cases


if __name__ == "__main__":
    transformers.utils.logging.set_verbosity_error()
    write(FOLDER / "cases.json", {name: make(name, name == "separate") for name in ("joint", "separate")})
