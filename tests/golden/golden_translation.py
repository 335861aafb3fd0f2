"""Tiny translation models as transformers writes them, their logits and ten fine-tuning losses; see README.md."""

import pathlib
import shutil

import numpy
import torch
import torch.nn.functional as F
import transformers

from golden_file import GoldenFile, generator, integers, normal
from golden_hugging_face import TRAINING, DoubleNorm, losses_of

MARIAN = {"vocab_size": 29, "d_model": 9, "encoder_layers": 2, "decoder_layers": 1, "encoder_attention_heads": 3,
          "decoder_attention_heads": 3, "encoder_ffn_dim": 11, "decoder_ffn_dim": 11, "max_position_embeddings": 13,
          "pad_token_id": 28, "decoder_start_token_id": 28, "eos_token_id": 0, "forced_eos_token_id": 0}
SEPARATE = {**MARIAN, "vocab_size": 17, "decoder_vocab_size": 29, "encoder_layers": 1, "pad_token_id": 16,
            "decoder_start_token_id": 16, "share_encoder_decoder_embeddings": False}
BART = {key: value for key, value in MARIAN.items() if not key.endswith("_id")}
T5 = {"vocab_size": 29, "d_model": 10, "d_kv": 4, "d_ff": 11, "num_layers": 2, "num_decoder_layers": 2, "num_heads": 3,
      "relative_attention_num_buckets": 6, "relative_attention_max_distance": 5, "decoder_start_token_id": 0}
CASES = {  # name: configuration, type of the stored weights
    "marian": (transformers.MarianConfig(**MARIAN, activation_function="swish", scale_embedding=True), torch.float32),
    "marian_separate": (transformers.MarianConfig(
        **{**SEPARATE, "d_model": 12, "encoder_attention_heads": 2, "decoder_ffn_dim": 7}, activation_function="relu",
        dropout=0.25, attention_dropout=0.125, activation_dropout=0.5), torch.float16),
    "marian_untied": (transformers.MarianConfig(**SEPARATE, activation_function="gelu", tie_word_embeddings=False,
                                                scale_embedding=True), torch.bfloat16),
    "bart": (transformers.BartConfig(**{**BART, "decoder_ffn_dim": 8}, activation_function="gelu"), torch.float32),
    "mbart": (transformers.MBartConfig(**{**BART, "d_model": 12, "encoder_attention_heads": 2}, scale_embedding=True,
                                       decoder_start_token_id=2, activation_function="relu"), torch.float16),
    "m2m100": (transformers.M2M100Config(**{**BART, "decoder_layers": 2}, encoder_layerdrop=0.0, decoder_layerdrop=0.0),
               torch.float32),
    "t5": (transformers.T5Config(**T5), torch.float32),
    "t5_gated": (transformers.T5Config(**T5, feed_forward_proj="gated-gelu", layer_norm_epsilon=1e-3,
                                       tie_word_embeddings=False), torch.float32),
    "mt5": (transformers.MT5Config(**{**T5, "num_decoder_layers": 1}), torch.bfloat16),
}
BATCH, SOURCE, TARGET, STEPS = 3, 7, 5, 10


def write_checkpoint(name, path):
    config, dtype = CASES[name]
    model, random = transformers.AutoModelForSeq2SeqLM.from_config(config), generator(name + "/parameters")
    is_untied = getattr(config, "scale_decoder_outputs", None) is False
    if is_untied:  # which T5's configuration means by tie_word_embeddings=False, though transformers makes one table
        model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.clone())
    buffers = [(key, buffer) for key, buffer in model.named_buffers() if key == "final_logits_bias"]
    with torch.no_grad():
        for key, tensor in sorted([*model.named_parameters(), *buffers]):
            if name.startswith("marian") and "embed_positions" in key:
                continue
            gain = tensor.dim() == 1 and key.endswith("weight")
            scale = 0.3 if min(tensor.shape) > 1 else 0.1
            tensor.copy_((normal(random, *tensor.shape, scale=scale) + gain).to(dtype))
            if "embed_positions" in key:
                tensor[:2] = 0  # rows without a use
    shutil.rmtree(path, ignore_errors=True)
    model.to(dtype).save_pretrained(path)
    (path / "generation_config.json").unlink(missing_ok=True)
    if is_untied:
        text = (path / "config.json").read_text().replace('"tie_word_embeddings": true', '"tie_word_embeddings": false')
        (path / "config.json").write_text(text)


def in_double(model):
    """Sinusoids, and norms of T5, without their detour through single precision."""
    for side in (model.get_encoder(), model.get_decoder()):
        positions = getattr(side, "embed_positions", None)
        if model.config.model_type == "marian":
            count, width = positions.weight.shape
            angles = numpy.arange(count)[:, None] / 10000.0 ** (2 * (numpy.arange(width) // 2) / width)
            table = numpy.concatenate([numpy.sin(angles[:, 0::2]), numpy.cos(angles[:, 1::2])], axis=1)
            positions.weight.data.copy_(torch.from_numpy(table))
        elif model.config.model_type == "m2m_100":
            count, width = positions.weights.shape
            angles = numpy.arange(count)[:, None] / 10000.0 ** (numpy.arange(width // 2) / (width // 2 - 1))
            table = numpy.concatenate([numpy.sin(angles), numpy.cos(angles), numpy.zeros((count, width % 2))], axis=1)
            positions.weights = torch.from_numpy(table)
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child).__name__ in ("T5LayerNorm", "MT5LayerNorm"):
                setattr(parent, name, DoubleNorm(child))


def load(path, dtype):
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(path, dtype=torch.float32).to(dtype).eval()
    for module in model.modules():
        if isinstance(module, torch.nn.Embedding):
            module.padding_idx = None  # whose row would not be trained where it is looked up
    if model.config.model_type == "marian":
        for side in (model.get_encoder(), model.get_decoder()):
            side.embed_positions.weight.requires_grad_(False)  # a table of constants
    if dtype == torch.float64:
        in_double(model)
    if hasattr(model, "final_logits_bias"):
        model.final_logits_bias.requires_grad_()  # which transformers does not train
    return model


def logits_of(model, source, mask, target):
    return model(input_ids=source, attention_mask=mask.long(), decoder_input_ids=target).logits


def fine_tune(path, batches, dtype):
    model = load(path, dtype)
    trained = [p for p in [*model.parameters(), *model.buffers()] if p.requires_grad]

    def loss_of(batch):
        source, mask, targets = batch
        return F.cross_entropy(logits_of(model, source, mask, targets[:, :-1]).flatten(0, 1), targets[:, 1:].flatten())

    return losses_of(trained, [p for p in trained if min(p.shape) > 1 and p.dim() > 1], loss_of, batches, dtype)


def make():
    file = GoldenFile()
    for name, (config, _) in CASES.items():
        path, random = pathlib.Path("hugging_face") / name, generator(name)
        write_checkpoint(name, path)
        sources = integers(random, config.vocab_size, STEPS, BATCH, SOURCE)
        targets = integers(random, getattr(config, "decoder_vocab_size", config.vocab_size), STEPS, BATCH, TARGET + 1)
        if name == "m2m100":  # padding has no position there
            sources[sources == config.pad_token_id] = targets[targets == config.pad_token_id] = 2
        targets[:, :, 0] = config.decoder_start_token_id
        lengths = 2 + integers(random, SOURCE - 1, STEPS, BATCH, 1)
        masks = torch.arange(SOURCE) < lengths
        batches = list(zip(sources, masks, targets))
        with torch.no_grad():
            first = (sources[0], masks[0], targets[0][:, :-1])
            logits, logits_f32 = (logits_of(load(path, dtype), *first) for dtype in (torch.float64, torch.float32))
        print(f"{name}: f32 logits differ from f64 ones by {(logits - logits_f32).abs().max():.1e}")
        for key, value in {"sources": sources, "masks": masks, "targets": targets, "logits": logits,
                           "logits_f32": logits_f32, "losses": fine_tune(path, batches, torch.float64),
                           "losses_f32": fine_tune(path, batches, torch.float32)}.items():
            file.add(f"{name}/{key}", value)
        file.options[name] = TRAINING
    return file
