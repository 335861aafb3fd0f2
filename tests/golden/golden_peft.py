"""Adapters as PEFT writes them, for two of the tiny checkpoints, their logits, and ten losses of training them; see README.md."""

import pathlib
import shutil

import peft
import torch
import torch.nn.functional as F
import transformers

from golden_file import GoldenFile, generator, integers, normal
from golden_hugging_face import BATCH, LENGTH, STEPS, TRAINING, in_its_type, load, losses_of

CASES = {  # name, also of the checkpoint: options of the adapters
    "gpt2": {"r": 3, "lora_alpha": 5, "target_modules": ["c_attn", "c_fc", "c_proj"], "fan_in_fan_out": True},
    "llama": {"r": 2, "lora_alpha": 7, "target_modules": ["q_proj", "v_proj", "o_proj", "up_proj"], "use_rslora": True},
}


def write_adapters(name, base, path):
    options = peft.LoraConfig(**CASES[name], lora_dropout=0.0, task_type="CAUSAL_LM")
    model = peft.get_peft_model(transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32), options)
    random = generator(name + "/adapters")
    with torch.no_grad():
        for key, parameter in sorted(model.named_parameters()):
            if "lora_" in key:
                parameter.copy_(normal(random, *parameter.shape, scale=0.3))
    shutil.rmtree(path, ignore_errors=True)
    model.save_pretrained(path)
    (path / "README.md").unlink()


def adapted(base, path, dtype):
    model = peft.PeftModel.from_pretrained(load(base, dtype), path, is_trainable=True)
    return model.to(dtype).eval()


def train(base, path, batches, dtype):
    model = adapted(base, path, dtype)
    parameters = [p for _, p in sorted(model.named_parameters()) if p.requires_grad]

    def loss_of(batch):
        return F.cross_entropy(model(batch).logits[:, :-1].flatten(0, 1), batch[:, 1:].flatten())

    return losses_of(parameters, parameters, loss_of, batches, dtype)


def make():
    F.softmax = in_its_type(F.softmax)
    file = GoldenFile()
    for name in CASES:
        base, path, random = pathlib.Path("hugging_face") / name, pathlib.Path("peft") / name, generator(name + "/peft")
        write_adapters(name, base, path)
        vocabulary = transformers.AutoConfig.from_pretrained(base).vocab_size
        ids = integers(random, vocabulary, BATCH, LENGTH)
        with torch.no_grad():
            file.add(f"{name}/ids", ids)
            file.add(f"{name}/logits", adapted(base, path, torch.float64)(ids).logits)
        if name == "gpt2":  # whose projections of queries, keys and values are one matrix in both programs
            batches = integers(random, vocabulary, STEPS, BATCH, LENGTH)
            file.add(f"{name}/batches", batches)
            file.add(f"{name}/losses", train(base, path, batches, torch.float64))
            file.add(f"{name}/losses_f32", train(base, path, batches, torch.float32))
        file.options[name] = TRAINING
    return file
