#!/usr/bin/env python3
"""Tiny models of Marian, made from models of transformers, and their logits; see README.md.

Usage: python golden_marian.py [FOLDER]     (the folder of this script unless told otherwise)
"""

import pathlib
import sys

import numpy
import torch
import transformers
import yaml

from golden_file import GoldenFile, generator, integers, normal
from golden_translation import BART, BATCH, MARIAN, SOURCE, TARGET

SIZES = {"d_model": 12}  # which CTranslate2 wants to be even
CASES = {  # name: the model, and options of Marian that differ from post
    "post": (transformers.MarianConfig(**{**MARIAN, **SIZES}, activation_function="swish", scale_embedding=True), {}),
    "pre": (transformers.MBartConfig(**{**BART, **SIZES}, activation_function="relu", scale_embedding=True, pad_token_id=28),
            {"transformer-preprocess": "n", "transformer-postprocess": "da", "transformer-postprocess-top": "n",
             "transformer-postprocess-emb": "nd"}),
}
# What Marian writes for every type of model.
OTHERS = yaml.safe_load("""
{bert-train-type-embeddings: true, bert-type-vocab-size: 2, dec-cell: gru, dec-cell-base-depth: 2, dec-cell-high-depth: 1,
dim-rnn: 1024, enc-cell: gru, enc-cell-depth: 1, enc-type: bidirectional, input-types: [], layer-normalization: false,
lemma-dim-emb: 0, right-left: false, skip: false, tied-embeddings: false, tied-embeddings-src: false,
transformer-aan-activation: swish, transformer-aan-depth: 2, transformer-aan-nogate: false,
transformer-decoder-autoreg: self-attention, transformer-dim-aan: 2048, transformer-ffn-depth: 2,
transformer-guided-alignment-layer: last, transformer-no-projection: false, transformer-postprocess: dan,
transformer-postprocess-emb: d, transformer-postprocess-top: "", transformer-preprocess: "", transformer-tied-layers: [],
transformer-train-position-embeddings: false, type: transformer, ulr: false, ulr-dim-emb: 0, ulr-keys-vectors: "",
ulr-trainable-transformation: false, version: v1.10.0 6f6d4846 2021-02-06}
""")
PARTS = {"self_attn_layer_norm": "self_Wo", "encoder_attn_layer_norm": "context_Wo", "final_layer_norm": "ffn_ffn",
         "self_attn.q_proj": "self_q", "self_attn.k_proj": "self_k", "self_attn.v_proj": "self_v",
         "self_attn.out_proj": "self_o", "encoder_attn.q_proj": "context_q", "encoder_attn.k_proj": "context_k",
         "encoder_attn.v_proj": "context_v", "encoder_attn.out_proj": "context_o", "fc1": "ffn_1", "fc2": "ffn_2"}


class Sinusoids(torch.nn.Module):
    def forward(self, ids, *_, **__):
        width = SIZES["d_model"]
        angles = numpy.arange(ids.shape[-1])[:, None] / 10000.0 ** (2 * (numpy.arange(width) // 2) / width)
        return torch.from_numpy(numpy.concatenate([numpy.sin(angles[:, 0::2]), numpy.cos(angles[:, 1::2])], axis=1))


def marian_name(key, is_pre):
    """The name that a parameter of transformers has in an npz."""
    if key == "final_logits_bias":
        return "decoder_ff_logit_out_b"
    if key == "model.shared.weight":
        return "Wemb"
    path, _, end = key.rpartition(".")
    _, side, *rest = path.split(".")
    if rest[0] != "layers":
        name, suffix = {"layernorm_embedding": ("emb", "_pre"), "layer_norm": ("top", "")}[rest[0]]
        return f"{side}_{name}_ln_{'scale' if end == 'weight' else 'bias'}{suffix}"
    layer, name = f"{side}_l{int(rest[1]) + 1}_", PARTS[".".join(rest[2:])]
    if name in ("self_Wo", "context_Wo", "ffn_ffn"):
        return f"{layer}{name}_ln_{'scale' if end == 'weight' else 'bias'}{'_pre' if is_pre else ''}"
    place, _, letter = name.rpartition("_")
    return f"{layer}{place}_{'W' if end == 'weight' else 'b'}{letter}"


def make_model(name):
    model, random = transformers.AutoModelForSeq2SeqLM.from_config(CASES[name][0]).eval(), generator("marian/" + name)
    tensors = {key: tensor for key, tensor in [*model.named_parameters(), *model.named_buffers()]
               if "embed_positions" not in key and "embed_scale" not in key}
    with torch.no_grad():
        for key, tensor in sorted(tensors.items()):
            gain = tensor.dim() == 1 and key.endswith("weight")
            tensor.copy_(normal(random, *tensor.shape, scale=0.3 if min(tensor.shape) > 1 else 0.1) + gain)
        tensors["model.shared.weight"][-1] = 0  # with which the decoder begins
        tensors["final_logits_bias"][:, -1] = 0
    return model, tensors


def arrays_of(name, tensors):
    config, options = CASES[name]
    options = {**OTHERS, "dim-emb": config.d_model, "dim-vocabs": [config.vocab_size - 1] * 2,
               "dec-depth": config.decoder_layers, "enc-depth": config.encoder_layers, "tied-embeddings-all": True,
               "transformer-dim-ffn": config.encoder_ffn_dim, "transformer-heads": config.encoder_attention_heads,
               "transformer-ffn-activation": config.activation_function, **options}
    arrays = {}
    for key, tensor in tensors.items():
        array, npz = tensor.detach().numpy(), marian_name(key, name == "pre")
        arrays[npz] = array[:-1] if npz == "Wemb" else array[:, :-1] if npz.endswith("out_b") else numpy.atleast_2d(array.T)
    arrays["special:model.yml"] = numpy.frombuffer((yaml.safe_dump(options) + "\0").encode(), numpy.int8)
    return {npz: numpy.ascontiguousarray(array) for npz, array in arrays.items()}


def make(folder):
    file = GoldenFile()
    for name, (config, _) in CASES.items():
        model, tensors = make_model(name)
        numpy.savez(folder / f"marian_{name}.npz", **arrays_of(name, tensors))
        random = generator("marian/" + name + "/batch")
        source = integers(random, config.vocab_size - 1, BATCH, SOURCE)
        target = integers(random, config.vocab_size - 1, BATCH, TARGET)
        target[:, 0] = config.vocab_size - 1
        mask = torch.arange(SOURCE) < 2 + integers(random, SOURCE - 1, BATCH, 1)
        model = model.double()
        for side in (model.get_encoder(), model.get_decoder()):
            side.embed_positions = Sinusoids() if name == "pre" else side.embed_positions
            if name == "post":
                table = Sinusoids()(torch.zeros(1, side.embed_positions.weight.shape[0]))
                side.embed_positions.weight.data.copy_(table)
        with torch.no_grad():
            logits = model(input_ids=source, attention_mask=mask.long(), decoder_input_ids=target).logits
        for key, value in {"source": source, "mask": mask, "target": target, "logits": logits}.items():
            file.add(f"{name}/{key}", value)
        file.options[name] = {}
    return file


if __name__ == "__main__":
    here = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parent
    make(here).save(here / "marian.safetensors")
