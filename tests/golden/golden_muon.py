"""Ten steps of Muon in double. Needs PyTorch and NumPy; see README.md.

torch.optim.Muon is the reference, with its Newton-Schulz iteration kept in double: as published it is in bfloat16."""

import numpy
import torch
from torch.optim import _muon

from golden_file import GoldenFile, generator, normal

STEPS = 10
RATES = [0.02 * (1 - step / 12) for step in range(STEPS)]
MATRICES = {"wide": (3, 5), "tall": (7, 4), "square": (4, 4), "packed": (9, 3)}
PARTS = {"packed": (5, 2, 2)}  # matrices of their own, one below the other
WITHOUT_GRADIENT = ("tall", 4)


class KeptInDouble(torch.Tensor):
    """A matrix that casts to another type only copy."""

    def to(self, *_, **__):
        return self.as_subclass(torch.Tensor).clone()


PUBLISHED = _muon._zeropower_via_newtonschulz


def newton_schulz(gradient, coefficients=(3.4445, -4.7750, 2.0315), steps=5, epsilon=1e-7):
    return PUBLISHED(gradient.as_subclass(KeptInDouble), coefficients, steps, epsilon).as_subclass(torch.Tensor)


def check_that_it_is_in_double():
    given = normal(generator("double"), 3, 5)
    x = given.numpy() / numpy.linalg.norm(given.numpy())
    for _ in range(5):
        gram = x @ x.T
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    assert abs(newton_schulz(given).numpy() - x).max() < 1e-14


_muon._zeropower_via_newtonschulz = newton_schulz


class Torch:
    def __init__(self, parameters, rms=0.0, **options):
        self.own = torch.optim.Muon(parameters, adjust_lr_fn="match_rms_adamw" if rms else "original", **options)

    def step(self, rate):
        self.own.param_groups[0]["lr"] = rate
        self.own.step()


def train(file, name, make, **options):
    random = generator("muon")  # the same numbers for each case
    start = {key: normal(random, *shape) for key, shape in MATRICES.items()}
    gradients = {key: normal(random, STEPS, *shape) for key, shape in MATRICES.items()}
    parts = {key: [torch.nn.Parameter(part.clone()) for part in x.split(PARTS.get(key, x.shape[0]))]
             for key, x in start.items()}
    optimizer = make([part for of in parts.values() for part in of], **options)
    for step, rate in enumerate(RATES):
        for key, of in parts.items():
            pieces = gradients[key][step].split(PARTS.get(key, MATRICES[key][0]))
            for part, gradient in zip(of, pieces):
                part.grad = None if (key, step) == WITHOUT_GRADIENT else gradient.clone()
        optimizer.step(rate)
    for key, of in parts.items():
        file.add(f"{name}/end.{key}", torch.cat([part.detach() for part in of]))
    file.options[name] = options
    return start, gradients


def make():
    torch.set_default_dtype(torch.float64)
    check_that_it_is_in_double()
    file = GoldenFile()
    usual = {"momentum": 0.95, "nesterov": True, "weight_decay": 0.1}
    start, gradients = train(file, "torch", Torch, **usual)
    for key, x in start.items():
        file.add(f"inputs/start.{key}", x)
        file.add(f"inputs/gradients.{key}", gradients[key])
    file.options["inputs"] = {"rates": RATES}
    train(file, "torch_rms", Torch, momentum=0.3, nesterov=False, weight_decay=0.05, rms=0.2)
    return file
