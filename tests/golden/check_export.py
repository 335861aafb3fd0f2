#!/usr/bin/env python3
"""Compares checkpoint folders that we wrote with transformers' results from them.

Usage: python check_export.py EXPORTED [ORIGINAL]

With ORIGINAL, the folder that was loaded for the export: transformers must compute the same logits from both. Without,
EXPORTED holds logits.safetensors, with our `ids`, or `source` and `target`, and `logits`. To make such folders, run the
tests of nn/formats/hugging_face and nn/formats/translation_models with TAPEFORMER_EXPORT_FOLDER naming where to put them; ORIGINAL is then one of hugging_face/.
"""

import pathlib
import sys

import safetensors.torch
import torch
import transformers


def tolerance(model, original):
    """Taps of convolutions differ from an original's by up to half a unit in the last place. The golden OLMo Hybrid makes
    1.2e-4 of that, in double too: it normalizes the output of a first token whose query and key are almost orthogonal."""
    has_taps = any(isinstance(module, torch.nn.Conv1d) for module in model.modules())
    return 4e-4 if original and has_taps else 1e-5


def model_of(folder):
    config = transformers.AutoConfig.from_pretrained(folder)
    is_masked = config.architectures[0].endswith("ForMaskedLM")
    auto = (transformers.AutoModelForSeq2SeqLM if config.is_encoder_decoder else
            transformers.AutoModelForMaskedLM if is_masked else transformers.AutoModelForCausalLM)
    model, info = auto.from_pretrained(folder, dtype=torch.float32, output_loading_info=True,
                                       experts_implementation="eager")
    complaints = {kind: sorted(keys) for kind, keys in info.items() if keys}
    if complaints:
        sys.exit(f"{folder}: transformers complains: {complaints}")
    return model.eval()


def logits_of(model, inputs):
    names = ("input_ids", "decoder_input_ids") if model.config.is_encoder_decoder else ("input_ids",)
    return model(**dict(zip(names, inputs))).logits


def main():
    exported = pathlib.Path(sys.argv[1])
    model = model_of(exported)
    if len(sys.argv) > 2:
        random = torch.Generator().manual_seed(1)
        inputs = [torch.randint(model.config.vocab_size, (3, length), generator=random) for length in (9, 5)]
        expected = logits_of(model_of(sys.argv[2]), inputs)
    else:
        tensors = safetensors.torch.load_file(exported / "logits.safetensors")
        inputs = [tensors[name].long() for name in ("ids", "source", "target") if name in tensors]
        expected = tensors["logits"]
    difference = (logits_of(model, inputs) - expected).abs().max().item()
    print(f"{exported}: {type(model).__name__}, logits differ by {difference:.2e}")
    sys.exit(0 if difference < tolerance(model, sys.argv[2:]) else 1)


if __name__ == "__main__":
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    with torch.no_grad():
        main()
