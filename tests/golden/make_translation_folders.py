#!/usr/bin/env python3
"""Makes translation_folders/: tiny models of families of translation models with their tokenizers, as transformers writes them,
and what it makes of odd sentences with each: ids, translations, losses of fine-tuning.

Usage: python make_translation_folders.py
Needs torch, transformers, tokenizers and sentencepiece.
"""

import json
import pathlib
import random
import shutil
import tempfile

import sentencepiece
import tokenizers
import torch
import transformers

from golden_file import generator, normal
from golden_hugging_face import losses_of
from golden_translation import load
from make_marian_tokenizer import write

FOLDER = pathlib.Path(__file__).parent / "translation_folders"
RULES = "FF21\t61\n3000\t20\nFB01\t66 69\n2026\t2E 2E 2E\n"  # replacements: fullwidth A, a space, a ligature, an ellipsis
WORDS = "the cat dog sees likes noir a house le chat chien dort voit petit maison".split()
SENTENCES = ["the cat", " the cat", "the  cat ", "a", "A\uff21\ufb01\u2026", "the\u3000cat sees", "漢字 the 漢", "😀 cat", "▁the▁cat",
             "«the» “cat” ‘dog’ – — …", "the cat.The dog!", "123 4,567.89", "THE CAT", "é e\u0301", "the\u00a0chat\u202f!", "the cat, the dog",
             "the cat sees the dog. The dog sees the cat.", "it's", "<unk", "</s", "the <x> cat", "x" * 9, "the-cat", "cat's dog's"]
SIZES = {"d_model": 8, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2,
         "encoder_ffn_dim": 8, "decoder_ffn_dim": 8, "max_position_embeddings": 64}
T5_SIZES = {"d_model": 8, "d_kv": 4, "d_ff": 10, "num_layers": 1, "num_heads": 2, "relative_attention_num_buckets": 6,
            "relative_attention_max_distance": 8, "decoder_start_token_id": 0}
STEPS = 150
NLLB = ["eng_Latn", "fra_Latn", "deu_Latn"]


def corpus():
    random.seed(1)
    return [" ".join(random.choices(WORDS, k=6)) + random.choice([".", "!", ", 1 2 3", " «é»"]) for _ in range(300)]


def sentences():
    random.seed(2)
    words = [*WORDS, "A", "é", "漢", "«", ".", "123", "X", "Dog", "’"]
    return SENTENCES + ["".join(random.choice(["", " ", " "]) + random.choice(words) for _ in range(random.randint(2, 8))).strip() for _ in range(28)]


def pieces(folder, name, kind, **ids):
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as rules:
        rules.write(RULES)
        rules.flush()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(corpus()), model_prefix=str(folder / name), vocab_size=70, hard_vocab_limit=False, model_type=kind,
            normalization_rule_tsv=rules.name, num_threads=1, minloglevel=2, **ids)
    (folder / (name + ".vocab")).unlink()
    return sentencepiece.SentencePieceProcessor(model_file=str(folder / (name + ".model")))


def make_t5(folder):
    pieces(folder, "spiece", "unigram", pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    return transformers.T5Tokenizer.from_pretrained(folder, extra_ids=2)


def make_bart(folder):
    model = tokenizers.ByteLevelBPETokenizer()
    model.train_from_iterator(corpus(), vocab_size=300, special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    model.save_model(str(folder))
    return transformers.BartTokenizer.from_pretrained(folder)


def make_m2m100(folder):
    model = pieces(folder, "sentencepiece.bpe", "bpe")
    names = ["<s>", "<pad>", "</s>", "<unk>", *(model.id_to_piece(i) for i in range(3, len(model) - 4))]  # some are missing
    (folder / "vocab.json").write_text(json.dumps({name: i for i, name in enumerate(names)}))
    return transformers.M2M100Tokenizer.from_pretrained(folder, src_lang="fr", tgt_lang="en")


def fairseq(kind, spm, **options):
    def make(folder):
        pieces(folder, "sentencepiece.bpe", spm)
        return kind.from_pretrained(folder, **options)
    return make


FAMILIES = {  # tokenizer, configuration, settings of generation
    "t5": (make_t5, lambda size: transformers.T5Config(vocab_size=size + 5, **T5_SIZES), {}),
    "bart": (make_bart, lambda size: transformers.BartConfig(vocab_size=size, **SIZES),
             {"forced_bos_token_id": 0, "no_repeat_ngram_size": 2, "min_length": 6, "length_penalty": 2.0, "early_stopping": True}),
    "mbart": (fairseq(transformers.MBartTokenizer, "unigram", src_lang="en_XX", tgt_lang="ro_RO"),
              lambda size: transformers.MBartConfig(vocab_size=size, **SIZES, scale_embedding=True), {}),
    "mbart50": (fairseq(transformers.MBart50Tokenizer, "unigram", src_lang="en_XX", tgt_lang="fr_XX"),
                lambda size: transformers.MBartConfig(vocab_size=size, **SIZES, decoder_start_token_id=2), {}),
    "m2m100": (make_m2m100, lambda size: transformers.M2M100Config(vocab_size=size, **SIZES, encoder_layerdrop=0.0, decoder_layerdrop=0.0), {}),
    "nllb": (fairseq(transformers.NllbTokenizer, "bpe", src_lang="eng_Latn", tgt_lang="fra_Latn", additional_special_tokens=NLLB),
             lambda size: transformers.M2M100Config(vocab_size=size, **SIZES, encoder_layerdrop=0.0, decoder_layerdrop=0.0), {}),
}


def write_model(name, folder, config, tokenizer):
    """Trains for a moment, so that its outputs depend on the source and end."""
    model, stream = transformers.AutoModelForSeq2SeqLM.from_config(config), generator("folder/" + name)
    with torch.no_grad():
        for key, tensor in sorted(model.named_parameters()):
            gain = tensor.dim() == 1 and key.endswith("weight")
            tensor.copy_(normal(stream, *tensor.shape, scale=0.1 if tensor.dim() == 1 else 0.4) + gain)
            if key.endswith("embed_positions.weight"):
                tensor[:2] = 0  # rows without a use
    optimizer = torch.optim.AdamW(model.eval().parameters(), lr=1e-2)
    for _ in range(STEPS):
        texts = [" ".join(random.choices(WORDS, k=random.randint(1, 4))) for _ in range(16)]
        batch = tokenizer(texts, text_target=texts, padding=True, return_tensors="pt")
        batch["labels"][batch["labels"] == tokenizer.pad_token_id] = -100
        optimizer.zero_grad()
        model(**batch).loss.backward()
        optimizer.step()
    model.half().save_pretrained(folder)


def begin_of(name, tokenizer):
    """The settings of `generate` by which the languages are chosen."""
    if name == "mbart":
        return {"decoder_start_token_id": tokenizer.convert_tokens_to_ids("ro_RO")}
    if name == "m2m100":
        return {"forced_bos_token_id": tokenizer.get_lang_id("en")}
    return {} if tokenizer.name_or_path == "" or not getattr(tokenizer, "tgt_lang", None) else {
        "forced_bos_token_id": tokenizer.convert_tokens_to_ids(tokenizer.tgt_lang)}


def fine_tune(folder, tokenizer, texts):
    """Losses of pairs of neighbouring sentences, whose labels transformers shifts by itself."""
    model = load(folder, torch.float32)
    trained = [p for p in [*model.parameters(), *model.buffers()] if p.requires_grad]

    def loss_of(step):
        batch = tokenizer(texts[step : step + 3], text_target=texts[step + 1 : step + 4], padding=True, return_tensors="pt")
        batch["labels"][batch["labels"] == tokenizer.pad_token_id] = -100
        return model(**batch).loss

    losses = losses_of(trained, [p for p in trained if min(p.shape) > 1 and p.dim() > 1], loss_of, range(10), torch.float32)
    return [round(loss, 7) for loss in losses.tolist()]


def make(name):
    make_tokenizer, config, settings = FAMILIES[name]
    folder = FOLDER / name
    shutil.rmtree(folder, ignore_errors=True)
    with tempfile.TemporaryDirectory() as raw:
        tokenizer = make_tokenizer(pathlib.Path(raw))
        tokenizer.save_pretrained(folder)
    if (folder / "tokenizer.json").exists():  # without white space
        write(folder / "tokenizer.json", json.loads((folder / "tokenizer.json").read_text()))
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    write_model(name, folder, config(len(tokenizer) + (108 if name == "m2m100" else 0)), tokenizer)
    chosen = json.loads((folder / "generation_config.json").read_text())
    chosen = {**{key: value for key, value in chosen.items() if value is not None}, "max_length": 14, **settings}
    (folder / "generation_config.json").write_text(json.dumps(chosen, indent=2) + "\n")
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32).eval()
    texts, cases = sentences(), []
    for text in texts:
        source, outputs = tokenizer(text, return_tensors="pt"), []
        for beams in (1, 4):
            options = {} if beams > 1 else {"length_penalty": None, "early_stopping": None}
            found = model.generate(**source, num_beams=beams, **begin_of(name, tokenizer), **options)
            found = found[0, 1:].tolist()
            outputs.append(found[: found.index(tokenizer.eos_token_id)] if tokenizer.eos_token_id in found else found)
        labels = tokenizer(text_target=text).input_ids
        words = tokenizer.decode(labels, skip_special_tokens=True).replace("__en__", "").strip()
        cases.append([source.input_ids[0].tolist(), labels, words, *outputs])
    print(name, len({str(case[3]) for case in cases}), len({str(case[4]) for case in cases}), sum(len(case[4]) < 12 for case in cases), "translations;", sum(path.stat().st_size for path in folder.iterdir()), "bytes")
    return {"cases": cases, "losses": fine_tune(folder, tokenizer, [text for text in texts if len(text) < 30])}


if __name__ == "__main__":
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    value = {"sentences": sentences(), **{name: make(name) for name in FAMILIES}}
    write(FOLDER / "cases.json", value)
