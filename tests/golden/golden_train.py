"""Ten AdamW steps of a small encoder-decoder, in double and in single precision from the same start."""

import numpy
import torch
import torch.nn.functional as F

from golden_file import GoldenFile, generator, integers, normal
from golden_layers import key_biases, may_attend
from golden_model import EncoderDecoder

STEPS = 10
BATCH, SOURCE, TARGET = 3, 7, 5
MODEL = {"source_vocabulary": 13, "target_vocabulary": 17, "width": 12, "heads": 3, "key_width": 5, "value_width": 7,
         "feed_forward": 19, "layers": 2, "activation": "relu", "epsilon": 1e-5}
TRAINING = {"steps": STEPS, "learning_rate": 1e-2, "beta1": 0.9, "beta2": 0.98, "adam_epsilon": 1e-9,
            "weight_decay": 0.1, "clip": 1.0, "smoothing": 0.1, "ignored": -1}


def batches(name):
    """Random sentences; 0 is padding, 1 begins a target and 2 ends it."""
    random = generator(name + "/batches")
    for _ in range(STEPS):
        source_lengths, target_lengths = (2 + integers(random, longest - 1, BATCH) for longest in (SOURCE, TARGET))
        source_lengths[0], target_lengths[1] = SOURCE, TARGET
        source_may_attend = may_attend(source_lengths, SOURCE)
        source = (3 + integers(random, MODEL["source_vocabulary"] - 3, BATCH, SOURCE)) * source_may_attend
        words = 3 + integers(random, MODEL["target_vocabulary"] - 3, BATCH, TARGET)
        real = may_attend(target_lengths, TARGET)
        target_in = torch.cat((torch.ones(BATCH, 1, dtype=torch.int64), words[:, :-1]), dim=1) * real
        target_out = words.clone()
        target_out[torch.arange(BATCH), target_lengths - 1] = 2
        yield {"source": source, "source_may_attend": source_may_attend, "target_in": target_in,
               "target_out": target_out.where(real, -1)}


def initial_parameters(name, model):
    """Random values that a float holds exactly, so that both precisions start from the same point."""
    random = generator(name + "/parameters")
    values = {}
    for key, parameter in sorted(model.named_parameters()):
        if "norm" in key:
            value = normal(random, *parameter.shape, scale=0.1) + key.endswith("weight")
        elif parameter.dim() == 1:
            value = normal(random, *parameter.shape, scale=0.1)
        else:
            value = normal(random, *parameter.shape, scale=parameter.shape[-1] ** -0.5)
        values[key] = value.float().double()
    return values


def train(name, config, dtype):
    model = EncoderDecoder(config).to(dtype)
    model.load_state_dict({key: value.to(dtype) for key, value in initial_parameters(name, model).items()})
    parameters = dict(sorted(model.named_parameters()))
    optimizer = torch.optim.AdamW(
        [{"params": [p for p in parameters.values() if p.dim() >= 2], "weight_decay": TRAINING["weight_decay"]},
         {"params": [p for p in parameters.values() if p.dim() < 2], "weight_decay": 0.0}],
        lr=TRAINING["learning_rate"], betas=(TRAINING["beta1"], TRAINING["beta2"]), eps=TRAINING["adam_epsilon"])
    losses, norms, first_gradients = [], [], {}
    for batch in batches(name):
        logits = model(batch["source"], batch["source_may_attend"], batch["target_in"])
        loss = F.cross_entropy(logits.flatten(0, 1), batch["target_out"].flatten(), ignore_index=TRAINING["ignored"],
                               label_smoothing=TRAINING["smoothing"])
        optimizer.zero_grad()
        loss.backward()
        if not losses:
            first_gradients = {key: p.grad.clone() for key, p in parameters.items()}
        losses.append(loss.item())
        norms.append(torch.nn.utils.clip_grad_norm_(parameters.values(), TRAINING["clip"]).item())
        optimizer.step()
    return losses, norms, first_gradients, parameters


def make():
    file = GoldenFile()
    for norm_first in (False, True):
        name = "pre_norm" if norm_first else "post_norm"
        config = {**MODEL, "norm_first": norm_first}
        losses, norms, gradients, final = train(name, config, torch.float64)
        float_losses, _, _, _ = train(name, config, torch.float32)
        for key, value in initial_parameters(name, EncoderDecoder(config)).items():
            file.add(f"{name}/param.{key}", value)
            file.add(f"{name}/grad.{key}", gradients[key])
            file.add(f"{name}/final.{key}", final[key])
        for step, batch in enumerate(batches(name)):
            for key, value in batch.items():
                file.add(f"{name}/batch.{step}.{key}", value)
        file.add(f"{name}/losses", numpy.array(losses, dtype=numpy.float64))
        file.add(f"{name}/losses_f32", numpy.array(float_losses, dtype=numpy.float32))
        file.add(f"{name}/gradient_norms", numpy.array(norms, dtype=numpy.float64))
        file.options[name] = {**config, **TRAINING, "zero_gradients": key_biases(final)}
    return file
