#!/usr/bin/env python3
"""Prints the constants of tests/optim/test_rule_optimizer.cpp. Needs PyTorch; see README.md."""

import math

import torch

RATES = [0.1, 0.05, 0.02, 0.2, 0.01]
WITHOUT_BIAS_GRADIENT = 2


def row(x):
    return "{" + ", ".join(f"{v:.15g}" for v in x.flatten().tolist()) + "}"


def gradient(step, size, shift):
    return torch.tensor([math.sin((step + 1) * (i + 1) + shift) for i in range(size)])


def parameters():
    weight = torch.tensor([[0.5, -1.25, 2.0], [0.75, -0.3, 1.1]], requires_grad=True)
    bias = torch.tensor([0.1, -0.2, 0.3], requires_grad=True)
    return weight, bias


def set_gradients(weight, bias, step):
    weight.grad = gradient(step, 6, 0.0).reshape(2, 3)
    bias.grad = None if step == WITHOUT_BIAS_GRADIENT else gradient(step, 3, 0.5)


def run(name, make, steps=5):
    weight, bias = parameters()
    optimizer = make(weight, bias)
    for step in range(steps):
        set_gradients(weight, bias, step)
        for group in optimizer.param_groups:
            group["lr"] = RATES[step % 5]
        optimizer.step()
    print(name, "weight", row(weight), "bias", row(bias))


# What PyTorch does not have is written here as the papers have it, for one parameter.
class Lion:
    """Chen et al. 2023, arXiv:2302.06675, algorithm 2."""

    def __init__(self, x, beta1, beta2, decay):
        self.m, self.beta1, self.beta2, self.decay = torch.zeros_like(x), beta1, beta2, decay

    def step(self, x, lr):
        direction = torch.sign(self.beta1 * self.m + (1 - self.beta1) * x.grad)
        self.m = self.beta2 * self.m + (1 - self.beta2) * x.grad
        return x - lr * (direction + self.decay * x)


def run_papers(name, make):
    weight, bias = parameters()
    optimizers = [(weight, make(weight, 0.1)), (bias, make(bias, 0.0))]
    for step in range(10):
        set_gradients(weight, bias, step)
        for x, optimizer in optimizers:
            if x.grad is not None:
                x.data = optimizer.step(x, RATES[step % 5]).detach()
    print(name, "weight", row(weight), "bias", row(bias))


if __name__ == "__main__":
    torch.set_default_dtype(torch.float64)
    run("sgd", lambda w, b: torch.optim.SGD([w, b], lr=1))
    run("sgd with momentum", lambda w, b: torch.optim.SGD([w, b], lr=1, momentum=0.9, weight_decay=0.01))
    run("adamw", lambda w, b: torch.optim.AdamW(
        [{"params": [w], "weight_decay": 0.1}, {"params": [b], "weight_decay": 0.0}],
        lr=1, betas=(0.8, 0.95), eps=1e-6))
    run_papers("lion", lambda x, decay: Lion(x, 0.8, 0.95, decay))
