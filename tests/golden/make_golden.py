#!/usr/bin/env python3
"""Makes the golden values that the tests compare with, in the working folder. Needs PyTorch and NumPy; see README.md.

Usage: python make_golden.py [NAME...]     (all unless told otherwise; NAME.safetensors has the cases of golden_NAME.py)
"""

import importlib
import logging
import pathlib
import subprocess
import sys

import torch

NAMES = ("ops", "attention", "layers", "additive", "decoder_only", "differential", "fused", "grouped_latent",
         "hugging_face", "linear_attention", "modifiers", "muon", "peft", "sampling", "translation")

if __name__ == "__main__":
    names = sys.argv[1:] or NAMES
    if len(names) > 1:  # each by itself, as some change settings of PyTorch
        sys.exit(any([subprocess.run([sys.executable, __file__, name]).returncode for name in names]))
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    importlib.import_module("golden_" + names[0]).make().save(pathlib.Path(f"{names[0]}.safetensors"))
