#!/usr/bin/env python3
"""Compares a GGUF file that we wrote with the folder that we exported of the same model.

Usage: python check_gguf.py FILE.gguf FOLDER [PROMPT CONTINUATION_FILE]

Every tensor must be the folder's, to the rounding of its type, and the metadata must describe the same model. Needs the
packages gguf, safetensors and numpy. With PROMPT, llama.cpp (package xllamacpp) must continue it greedily as we did: the
file is what `generate --greedy` wrote.
"""

import json
import pathlib
import re
import sys

import gguf
import numpy
import safetensors.numpy

GPT2 = {"ln_1": "attn_norm", "ln_2": "ffn_norm", "attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output",
        "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"}
LLAMA = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
         "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
         "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
OUTSIDE = {"transformer.wte": "token_embd", "transformer.wpe": "position_embd", "transformer.ln_f": "output_norm",
           "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def expected_tensors(folder, config):
    """transformers' tensors under GGUF's names, queries and keys in the order of its rotary positions."""
    for name, value in safetensors.numpy.load_file(folder / "model.safetensors").items():
        stem, kind = name.rsplit(".", 1)
        layer = re.fullmatch(r"(?:transformer\.h|model\.layers)\.(\d+)\.(.+)", stem)
        if layer:
            inner = layer[2]
            theirs = f"blk.{layer[1]}.{(GPT2 | LLAMA)[inner]}.{kind}"
            if inner in GPT2 and value.ndim == 2:
                value = value.T
            heads = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}.get(inner.split(".")[-1])
            if heads:
                value = value.reshape(config[heads], 2, -1, *value.shape[1:]).swapaxes(1, 2).reshape(value.shape)
        else:
            theirs = f"{OUTSIDE[stem]}.{kind}"
        yield theirs, value


def check_metadata(reader, config):
    field = lambda key: reader.get_field(key).contents()
    architecture = field("general.architecture")
    assert architecture == config["model_type"]
    names = ({"context_length": "n_positions", "embedding_length": "n_embd", "block_count": "n_layer",
              "feed_forward_length": "n_inner", "attention.head_count": "n_head",
              "attention.layer_norm_epsilon": "layer_norm_epsilon"} if architecture == "gpt2" else
             {"context_length": "max_position_embeddings", "embedding_length": "hidden_size",
              "block_count": "num_hidden_layers", "feed_forward_length": "intermediate_size",
              "attention.head_count": "num_attention_heads", "attention.head_count_kv": "num_key_value_heads",
              "attention.layer_norm_rms_epsilon": "rms_norm_eps", "rope.freq_base": "rope_theta",
              "rope.dimension_count": "head_dim", "attention.key_length": "head_dim", "vocab_size": "vocab_size"})
    for theirs, ours in names.items():
        numpy.testing.assert_allclose(field(f"{architecture}.{theirs}"), config[ours], rtol=1e-7, err_msg=theirs)
    tokens = field("tokenizer.ggml.tokens")
    assert len(tokens) == len(set(tokens)) == len(field("tokenizer.ggml.token_type")) == config["vocab_size"]
    return len(reader.fields)


def check_tensors(reader, folder, config):
    stored = {tensor.name: tensor for tensor in reader.tensors}
    expected = dict(expected_tensors(folder, config))
    assert set(stored) - {"rope_freqs.weight"} == set(expected), set(stored) ^ set(expected)
    for name, value in expected.items():
        tensor = stored[name]
        assert tensor.data_offset % 32 == 0
        wanted = value if tensor.tensor_type.name == "F32" else gguf.quants.quantize(value, tensor.tensor_type)
        assert tuple(reversed(tensor.shape)) == value.shape, name
        assert numpy.array_equal(tensor.data.reshape(-1).view("u1"), numpy.ascontiguousarray(wanted).reshape(-1).view("u1")), name
    return len(expected)


def check_generation(path, prompt, continuation):
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = path
    params.n_ctx, params.n_gpu_layers, params.warmup = 256, 0, False
    server = xllamacpp.Server(params)
    said = server.handle_completions({"prompt": prompt, "temperature": 0, "n_predict": 20, "ignore_eos": True})
    text = prompt + said["choices"][0]["text"] if "choices" in said else prompt + said["content"]
    ours = pathlib.Path(continuation).read_text()
    if not ours.startswith(prompt):
        text = text[len(prompt):]
    print(f"{path}: llama.cpp continues {text!r}, we {ours!r}")
    assert text.strip() == ours.strip()


def main():
    path, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    config = json.loads((folder / "config.json").read_text())
    reader = gguf.GGUFReader(path)
    print(f"{path}: {check_metadata(reader, config)} fields, {check_tensors(reader, folder, config)} tensors are right")
    if len(sys.argv) > 3:
        check_generation(path, sys.argv[3], sys.argv[4])


if __name__ == "__main__":
    main()
