#!/usr/bin/env python3
"""Compares checkpoint folders that we wrote with what transformers makes of them.

Usage: python check_export.py EXPORTED [ORIGINAL]

With ORIGINAL, the folder that was loaded for the export: transformers must compute the same logits from both. Without,
EXPORTED holds logits.safetensors, with our `ids` and `logits`. To make such folders, run the tests of
nn/formats/hugging_face with TAPEFORMER_EXPORT_FOLDER naming where to put them; ORIGINAL is then one of hugging_face/.
"""

import pathlib
import sys

import safetensors.torch
import torch
import transformers

TOLERANCE = 1e-5


def model_of(folder):
    model, info = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    complaints = {kind: sorted(keys) for kind, keys in info.items() if keys}
    if complaints:
        sys.exit(f"{folder}: transformers complains: {complaints}")
    return model.eval()


def main():
    exported = pathlib.Path(sys.argv[1])
    model = model_of(exported)
    if len(sys.argv) > 2:
        ids = torch.randint(model.config.vocab_size, (3, 9), generator=torch.Generator().manual_seed(1))
        expected = model_of(sys.argv[2])(ids).logits
    else:
        tensors = safetensors.torch.load_file(exported / "logits.safetensors")
        ids, expected = tensors["ids"].long(), tensors["logits"]
    difference = (model(ids).logits - expected).abs().max().item()
    print(f"{exported}: {type(model).__name__}, logits differ by {difference:.2e}")
    sys.exit(0 if difference < TOLERANCE else 1)


if __name__ == "__main__":
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    with torch.no_grad():
        main()
