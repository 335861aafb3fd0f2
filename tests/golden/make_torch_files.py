"""Writes torch_archive.bin and torch_legacy.bin, dictionaries of tensors in the formats that torch.save has had, and
torch_turned.bin, a tensor that lies column by column.
Usage: make_torch_files.py [FOLDER]"""

import pathlib
import sys

import torch


def main() -> None:
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent)
    both = torch.arange(10, dtype=torch.float32)
    model = torch.nn.Module()
    model.matrix = torch.nn.Parameter(torch.arange(6, dtype=torch.float32).reshape(2, 3))
    model.register_buffer("half_", torch.tensor([0.5, -2], dtype=torch.float16))
    model.register_buffer("brain_", torch.tensor([1.5, -3], dtype=torch.bfloat16))
    model.register_buffer("double_", torch.tensor(0.1, dtype=torch.float64))
    model.register_buffer("ids_", torch.arange(3)[None])
    model.register_buffer("mask_", torch.tensor([True, False]))
    model.register_buffer("none_", torch.zeros(0, 4))
    model.register_buffer("first_", both[:4])
    model.register_buffer("last_", both[4:].view(2, 3))  # of the same storage
    tensors = model.state_dict()
    tensors["parameter"] = torch.nn.Parameter(torch.tensor([7.0]))
    for name, is_archive in (("archive", True), ("legacy", False)):
        torch.save(tensors, folder / f"torch_{name}.bin", _use_new_zipfile_serialization=is_archive)
    torch.save({"turned": torch.arange(6.0).reshape(2, 3).T}, folder / "torch_turned.bin",
               _use_new_zipfile_serialization=False)


if __name__ == "__main__":
    main()
