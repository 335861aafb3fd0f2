#!/usr/bin/env python3
"""Makes the golden values that the tests compare with. Needs PyTorch and NumPy; see README.md.

Usage: python make_golden.py [FOLDER]     (the folder of this script unless told otherwise)
"""

import pathlib
import sys

import torch

import golden_attention
import golden_layers
import golden_ops
import golden_train

if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parent
    for name, group in (("ops", golden_ops), ("attention", golden_attention), ("layers", golden_layers),
                        ("train", golden_train)):
        group.make().save(folder / f"{name}.safetensors")
