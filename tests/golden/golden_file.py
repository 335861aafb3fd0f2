"""Collects named cases and writes them as one safetensors file, the same bytes on every run."""

import json
import zlib

import numpy
import torch

DTYPES = {"float64": "F64", "float32": "F32", "int32": "I32", "bool": "BOOL"}


def generator(name):
    """A random stream of a case's own, so that adding a case changes no other."""
    return torch.Generator().manual_seed(zlib.crc32(name.encode()))


def normal(random, *shape, scale=1.0):
    return scale * torch.randn(shape, generator=random, dtype=torch.float64)


def integers(random, high, *shape):
    return torch.randint(high, shape, generator=random)


def file_of(*groups):
    """A file with the cases that each group(file) adds."""
    file = GoldenFile()
    for group in groups:
        group(file)
    return file


class GoldenFile:
    def __init__(self):
        self.tensors = {}
        self.options = {}

    def add(self, name, value):
        array = value.detach().numpy() if isinstance(value, torch.Tensor) else numpy.asarray(value)
        if array.dtype == numpy.int64:
            array = array.astype(numpy.int32)
        assert name not in self.tensors and str(array.dtype) in DTYPES, (name, array.dtype)
        self.tensors[name] = numpy.ascontiguousarray(array)

    def case(self, name, function, inputs, parameters=None, constants=None, **options):
        """Runs `function(**inputs, **constants)` and stores its output and the gradients of sum(output * seed).

        `inputs` and `parameters` (of a module that `function` calls) get gradients; `constants` (masks, ids) do not.
        """
        leaves = {key: value.clone().requires_grad_() for key, value in inputs.items()}
        parameters = parameters or {}
        out = function(**leaves, **(constants or {}))
        seed = normal(generator(name + "/seed"), *out.shape)
        gradients = torch.autograd.grad((out * seed).sum(), [*leaves.values(), *parameters.values()])
        for key, value in {**inputs, **(constants or {})}.items():
            self.add(f"{name}/in.{key}", value)
        for key, value in parameters.items():
            self.add(f"{name}/param.{key}", value)
        self.add(f"{name}/out", out)
        self.add(f"{name}/seed", seed)
        for key, value in zip([*leaves, *parameters], gradients):
            self.add(f"{name}/grad.{key}", value)
        self.options[name] = options

    def save(self, path):
        header = {"__metadata__": {name: json.dumps(options) for name, options in self.options.items()}}
        offset = 0
        # Widest elements first, so that every tensor is aligned to its element.
        ordered = sorted(self.tensors.items(), key=lambda item: (-item[1].itemsize, item[0]))
        for name, array in ordered:
            header[name] = {
                "dtype": DTYPES[str(array.dtype)],
                "shape": list(array.shape),
                "data_offsets": [offset, offset + array.nbytes],
            }
            offset += array.nbytes
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        with open(path, "wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for _, array in ordered:
                file.write(array.tobytes())
        print(f"{path}: {len(self.options)} cases, {len(self.tensors)} tensors, {8 + len(text) + offset} bytes")
