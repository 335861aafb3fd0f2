#!/usr/bin/env python3
"""Compares a model.npz that we wrote with what transformers' converter and CTranslate2 make of it.

Usage: python check_marian.py FOLDER CONVERTER

FOLDER holds model.npz and decoder.yml; run the tests of nn/formats/marian_npz with TAPEFORMER_EXPORT_FOLDER to make
npz_post there. CONVERTER is convert_marian_to_pytorch.py of transformers' sources (src/transformers/models/marian). The
logits are compared with marian.safetensors; vocabularies are made up.
"""

import importlib.util
import json
import pathlib
import sys
import tempfile

import ctranslate2
import safetensors.torch
import sentencepiece
import torch
import transformers

TOLERANCE = 1e-5  # of logits in single precision


def add_vocabulary(folder, size):
    """A vocabulary of single letters: Marian's vocab.yml, and models of SentencePiece."""
    text = folder / "text"
    text.write_text("\n".join("abcdefghij"[i % 9:] for i in range(100)))
    for side in ("source", "target"):
        sentencepiece.SentencePieceTrainer.train(input=str(text), model_prefix=str(folder / side), vocab_size=size,
                                                 hard_vocab_limit=False, minloglevel=2)
        (folder / f"{side}.model").rename(folder / f"{side}.spm")
    pieces = ["</s>", "<unk>"] + [f"p{i}" for i in range(size - 2)]
    (folder / "opus.vocab.yml").write_text("".join(f"{piece}: {i}\n" for i, piece in enumerate(pieces)))


def main():
    exported, converter = map(pathlib.Path, sys.argv[1:3])
    golden = safetensors.torch.load_file(pathlib.Path(__file__).parent / "marian.safetensors")
    source, mask, target, logits = (golden["post/" + key] for key in ("source", "mask", "target", "logits"))
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for file in ("model.npz", "decoder.yml"):
            (folder / file).write_bytes((exported / file).read_bytes())
        add_vocabulary(folder, 28)
        specification = importlib.util.spec_from_file_location("transformers.models.marian.converter", converter)
        module = importlib.util.module_from_spec(specification)
        specification.loader.exec_module(module)
        model = module.OpusState(folder).load_marian_model().float().eval()
        with torch.no_grad():
            theirs = model(input_ids=source.long(), attention_mask=mask.long(), decoder_input_ids=target.long()).logits
        difference = (theirs - logits).abs().max().item()
        print(f"{exported}: transformers' converter, logits differ by {difference:.2e}")
        vocabulary = str(folder / "opus.vocab.yml")
        converted = ctranslate2.converters.MarianConverter(str(folder / "model.npz"), [vocabulary] * 2)
        converted.convert(str(folder / "ct2"))
        sentence = ["p3", "p20", "p7", "p1"]
        found = ctranslate2.Translator(str(folder / "ct2")).translate_batch([sentence], beam_size=1,
                                                                            max_decoding_length=8)[0].hypotheses[0]
        ids = [int(piece[1:]) + 2 for piece in sentence] + [0]
        model.generation_config.pad_token_id = 28
        wanted = model.generate(torch.tensor([ids]), num_beams=1, max_new_tokens=8, decoder_start_token_id=28,
                                bad_words_ids=[[28]], eos_token_id=0, forced_eos_token_id=None, do_sample=False)[0][1:]
        wanted = [f"p{i - 2}" if i > 1 else "<unk>" for i in wanted.tolist() if i not in (0, 28)]
        print(f"{exported}: CTranslate2 {json.dumps(found)}, transformers {json.dumps(wanted)}")
    sys.exit(0 if difference < TOLERANCE and found == wanted else 1)


if __name__ == "__main__":
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    main()
