"""Rotary positions, grouped-query and multi-head latent attention. Needs PyTorch and NumPy."""

import math

import torch
import torch.nn.functional as F

from golden_file import file_of, generator, integers, normal

LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}


def frequencies(width, base, factor=1.0, llama3=None):
    plain = base ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    if llama3 is None:
        return plain / factor
    length, low, high = llama3["original_max_position_embeddings"], llama3["low_freq_factor"], llama3["high_freq_factor"]
    wavelength = 2 * math.pi / plain
    smooth = (length / wavelength - low) / (high - low)
    blended = (1 - smooth) * plain / llama3["factor"] + smooth * plain
    scaled = torch.where(wavelength > length / low, plain / llama3["factor"], blended)
    return torch.where(wavelength < length / high, plain, scaled)


def rotate(x, positions, inverse_lengths, interleaved):
    """x [B, T, H, D], positions [T] or [B, T]; rotates the first 2 len(inverse_lengths) components (Su et al. 2021,
    arXiv:2104.09864)."""
    width = 2 * len(inverse_lengths)
    angle = positions.double()[..., None] * inverse_lengths
    cos, sin = angle.cos()[..., None, :], angle.sin()[..., None, :]
    x, rest = x[..., :width], x[..., width:]
    if interleaved:
        a, b = x[..., 0::2], x[..., 1::2]
        y = torch.stack((a * cos - b * sin, a * sin + b * cos), dim=-1).flatten(-2)
    else:
        a, b = x.chunk(2, dim=-1)
        y = torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)
    return torch.cat((y, rest), dim=-1)


def rotary(file):
    for name, interleaved, width, options in [
        ("rotary_partial", True, 6, {}),
        ("rotary_partial_half", False, 6, {}),
        ("rotary_linear", True, 10, {"factor": 4.0}),
        ("rotary_llama3", False, 10, {"llama3": LLAMA3}),
    ]:
        inverse_lengths = frequencies(width, 500.0, **options)
        positions = integers(generator(name + "/positions"), 300, 2, 5)
        file.case(name, lambda x, positions: rotate(x, positions, inverse_lengths, interleaved),
                  {"x": normal(generator(name), 2, 5, 3, 10)}, constants={"positions": positions},
                  interleaved=interleaved, width=width, base=500.0, **options)


def parameters(name, shapes):
    random = generator(name + "/parameters")
    return {key: (normal(random, *shape, scale=0.4) + ("norm" in key)).requires_grad_()
            for key, shape in sorted(shapes.items())}


def projections(width, heads, groups, key_width, value_width):
    rows = {"query": heads * key_width, "key": groups * key_width, "value": groups * value_width}
    return {f"{name}.{kind}": (count, width) if kind == "weight" else (count,)
            for name, count in rows.items() for kind in ("weight", "bias")}


def linear(leaves, name, x):
    return F.linear(x, leaves[name + ".weight"], leaves.get(name + ".bias"))


def heads_of(x, heads):
    return x.unflatten(-1, (heads, -1))


def grouped(file):
    """PyTorch's own grouped heads; multi-query when there is one group."""
    width, batch, length = 12, 3, 5
    real = torch.arange(7) < torch.tensor([7, 4, 6])[:, None]
    for name, heads, groups, key_width, value_width, rotates in [
        ("grouped_self", 6, 2, 4, 3, True), ("multi_query_self", 4, 1, 6, 6, True), ("grouped_plain", 4, 2, 3, 5, False),
    ]:
        leaves = parameters(name, {**projections(width, heads, groups, key_width, value_width),
                                   "output.weight": (width, heads * value_width), "output.bias": (width,)})
        mask = torch.ones(7, 7, dtype=torch.bool).tril()[None, None] & real[:, None, None, :]

        def call(x, may_attend):
            query, key, value = (heads_of(linear(leaves, part, x), count)
                                 for part, count in (("query", heads), ("key", groups), ("value", groups)))
            if rotates:
                query, key = (rotate(z, torch.arange(7), frequencies(key_width, 10000.0), True) for z in (query, key))
            y = F.scaled_dot_product_attention(*(z.transpose(1, 2) for z in (query, key, value)), attn_mask=mask,
                                               enable_gqa=True)
            return linear(leaves, "output", y.transpose(1, 2).flatten(2))

        file.case(name, call, {"x": normal(generator(name), batch, 7, width)}, leaves, {"may_attend": real},
                  heads=heads, groups=groups, key_width=key_width, value_width=value_width, rotary=rotates,
                  zero_gradients=[] if rotates else ["key.bias"])

    name, heads, groups, head_width, memory_width = "grouped_cross", 6, 3, 4, 9
    leaves = parameters(name, {"query.weight": (heads * head_width, width),
                               "key_value.weight": (2 * groups * head_width, memory_width),
                               "output.weight": (width, heads * head_width)})

    def cross(x, memory, memory_may_attend):
        key, value = (heads_of(z, groups) for z in linear(leaves, "key_value", memory).chunk(2, dim=-1))
        y = F.scaled_dot_product_attention(
            *(z.transpose(1, 2) for z in (heads_of(linear(leaves, "query", x), heads), key, value)),
            attn_mask=memory_may_attend[:, None, None, :], enable_gqa=True)
        return linear(leaves, "output", y.transpose(1, 2).flatten(2))

    random = generator(name)
    file.case(name, cross, {"x": normal(random, batch, length, width), "memory": normal(random, batch, 7, memory_width)},
              leaves, {"memory_may_attend": real}, heads=heads, groups=groups, zero_gradients=[])


def latent_attention(p, x, memory, mask, heads, rotary_width):
    """Equations 9 to 11 and 37 to 47 of DeepSeek-V2 (arXiv:2405.04434), one head after the other; with RMS norms on
    both latents where there are gains for them, and queries straight from x without a query_down."""
    def norm(z, gain):
        return z if gain is None else z / torch.sqrt(z.pow(2).mean(-1, keepdim=True) + 1e-6) * gain

    def turned(z):
        angles = frequencies(rotary_width, 10000.0)
        return rotate(z[:, :, None], torch.arange(z.shape[1]), angles, True)[:, :, 0]

    c_q = x
    if "query_down.weight" in p:
        c_q = norm(x @ p["query_down.weight"].T, p.get("query_norm.weight"))  # 37
    c_kv = norm(memory @ p["key_value_down.weight"].T, p.get("key_value_norm.weight"))  # 9, 41
    k_rotary = turned(memory @ p["key_rotary.weight"].T) if rotary_width else None  # 43
    outputs = []
    for head in range(heads):
        own = {key: value.chunk(heads)[head] for key, value in p.items()
               if key in ("query_up.weight", "query_rotary.weight", "key_up.weight", "value_up.weight")}
        q = c_q @ own["query_up.weight"].T  # 38
        k = c_kv @ own["key_up.weight"].T  # 10, 42
        v = c_kv @ own["value_up.weight"].T  # 11, 45
        if rotary_width:
            q = torch.cat((q, turned(c_q @ own["query_rotary.weight"].T)), dim=-1)  # 39, 40
            k = torch.cat((k, k_rotary), dim=-1)  # 44
        scores = q @ k.transpose(1, 2) / math.sqrt(q.shape[-1])
        weights = scores.masked_fill(~mask, -math.inf).softmax(-1)
        outputs.append(weights @ v)  # 46
    return torch.cat(outputs, dim=-1) @ p["output.weight"].T  # 47


def latent(file):
    width, heads, batch, length = 12, 3, 2, 6
    real = torch.arange(length) < torch.tensor([6, 4])[:, None]
    for name, key_width, value_width, latents, query_latents, rotary_width, norms, memory_width in [
        ("latent_direct", 4, 4, 7, 0, 2, False, 0),
        ("latent_full", 4, 5, 8, 6, 6, True, 0),
        ("latent_cross", 5, 3, 7, 6, 0, True, 9),
    ]:
        queries = query_latents or width
        source = memory_width or width
        shapes = {"key_value_down": (latents, source), "key_up": (heads * key_width, latents),
                  "value_up": (heads * value_width, latents), "query_up": (heads * key_width, queries),
                  "output": (width, heads * value_width)}
        if query_latents:
            shapes["query_down"] = (query_latents, width)
        if rotary_width:
            shapes.update({"key_rotary": (rotary_width, source), "query_rotary": (heads * rotary_width, queries)})
        if norms:
            shapes.update({"key_value_norm": (latents,), "query_norm": (query_latents,)})
        leaves = parameters(name, {key + ".weight": shape for key, shape in shapes.items()})
        random = generator(name)
        inputs = {"x": normal(random, batch, length, width)}
        mask = real[:, None, :]
        if memory_width:
            inputs["x"] = inputs["x"][:, :4]
            inputs["memory"] = normal(random, batch, length, memory_width)
        else:
            mask = mask & torch.ones(length, length, dtype=torch.bool).tril()
        file.case(name, lambda x, may_attend, memory=None: latent_attention(
            leaves, x, x if memory is None else memory, mask, heads, rotary_width), inputs, leaves, {"may_attend": real},
                  heads=heads, key_width=key_width, value_width=value_width, latent_width=latents,
                  query_latent_width=query_latents, rotary_width=rotary_width, norm=norms, memory_width=memory_width,
                  zero_gradients=[])


def make():
    return file_of(rotary, grouped, latent)
