"""Linear attention with a state, by the recurrence token by token. Needs PyTorch, NumPy and transformers; see README.md."""

import torch
import torch.nn.functional as F
from transformers.models.qwen3_next import modeling_qwen3_next as qwen

from golden_file import GoldenFile, generator, normal


def recurrence(query, key, value, state, log_decay=None, beta=None):
    """query, key [B, T, H, D], value [B, T, H, E], state [B, H, D, E], log_decay [B, T, H] or [B, T, H, D], beta
    [B, T, H] -> the outputs and the last state, as one row (Yang et al. 2024, arXiv:2412.06464, equation 10; Kimi Team
    2025, arXiv:2510.26692, equation 1; without a beta Yang et al. 2024, arXiv:2312.06635, equation 3)."""
    outputs = []
    for t in range(query.shape[1]):
        k, v = key[:, t], value[:, t]
        if log_decay is not None:
            decay = log_decay[:, t].exp()
            state = (decay[..., None] if decay.dim() == 3 else decay[..., None, None]) * state
        if beta is not None:
            v = beta[:, t, :, None] * (v - torch.einsum("bhd,bhde->bhe", k, state))
        state = state + k[..., None] * v[..., None, :]
        outputs.append(torch.einsum("bhd,bhde->bhe", query[:, t], state) / query.shape[-1] ** 0.5)
    return torch.cat([torch.stack(outputs, dim=1).flatten(), state.flatten()])


def chunks(function, query, key, value, state, log_decay, beta):
    outputs, last = function(query, key, value, log_decay, beta, initial_state=state, output_final_state=True)
    return torch.cat([outputs.flatten(), last.flatten()])


def inputs_of(name, length, decays, deltas):
    random, b, h, d, e = generator(name), 2, 2, 6, 5
    uniform = lambda *shape: torch.rand(shape, generator=random, dtype=torch.float64)
    inputs = {"query": normal(random, b, length, h, d), "key": F.normalize(normal(random, b, length, h, d), dim=-1),
              "value": normal(random, b, length, h, e), "state": normal(random, b, h, d, e)}
    if decays:
        inputs["log_decay"] = -0.5 * uniform(*([b, length, h] + ([d] if decays > 1 else [])))
    if deltas:
        inputs["beta"] = uniform(b, length, h)
    return {key: value.float().double() for key, value in inputs.items()}


def gradients(function, inputs, seed):
    leaves = {key: value.clone().requires_grad_() for key, value in inputs.items()}
    out = function(**leaves)
    return [out] + list(torch.autograd.grad((out * seed.to(out.dtype)).sum(), list(leaves.values())))


def error(a, b):
    return ((a.double() - b).abs().max() / b.abs().max()).item()


def make():
    file = GoldenFile()
    for name, length, decays, deltas in [("gla", 35, 6, False), ("deltanet", 35, 0, True), ("kda", 35, 6, True)]:
        file.case(name, recurrence, inputs_of(name, length, decays, deltas))
    # transformers has two functions for this rule, both in f32, which agree with the recurrence.
    name = "gated_deltanet"
    inputs = inputs_of(name, 70, 1, True)
    seed = normal(generator(name + "/seed"), *recurrence(**inputs).shape)
    exact = gradients(recurrence, inputs, seed)
    single = {key: value.float() for key, value in inputs.items()}
    for function in ("torch_chunk_gated_delta_rule", "torch_recurrent_gated_delta_rule"):
        got = gradients(lambda **x: chunks(getattr(qwen, function), **x), single, seed)
        assert max(map(error, got, exact)) < 1e-5, function
    file.case(name, recurrence, inputs)
    return file
