"""Additive attention: the operation, and the layer with its projections. Needs PyTorch and NumPy; see README.md."""

import torch
from torch import nn

from golden_file import file_of, generator, normal

HEADS, HIDDEN, VALUE = 3, 5, 7


def attend(query, key, value, weight, mask=None, key_mask=None, causal=False):
    """weight_h . tanh(query_t + key_s), softmax, values; masks are true where a query may attend."""
    batch, targets, heads, _ = query.shape
    sources = key.shape[1]
    key, value = (x.repeat_interleave(heads // x.shape[2], dim=2) for x in (key, value))
    hidden = torch.tanh(query[:, :, None] + key[:, None])  # [B, T, S, H, D]
    scores = torch.einsum("btshd,hd->bhts", hidden, weight)
    may = torch.ones(batch, heads, targets, sources, dtype=torch.bool)
    if causal:
        may = may & torch.ones(targets, sources, dtype=torch.bool).tril(sources - targets)
    if key_mask is not None:
        may = may & key_mask[:, None, None]
    if mask is not None and mask.dtype == torch.bool:
        may = may & mask
    elif mask is not None:
        scores = scores + mask
    weights = torch.softmax(scores.masked_fill(~may, -torch.inf), dim=-1)
    return torch.einsum("bhts,bshe->bthe", weights, value)


def operation(file):
    def case(name, targets, sources, groups, constants=None, **options):
        random = generator(name)
        inputs = {"query": normal(random, 2, targets, HEADS * groups, HIDDEN),
                  "key": normal(random, 2, sources, groups, HIDDEN),
                  "value": normal(random, 2, sources, groups, VALUE), "weight": normal(random, HEADS * groups, HIDDEN)}
        file.case(name, lambda **given: attend(**given, **options), inputs, constants=constants, **options)

    lengths = torch.tensor([9, 4])
    case("op_plain", 4, 9, 1)
    case("op_causal", 5, 9, 2, causal=True)
    case("op_mask", 4, 9, 1, constants={"mask": normal(generator("op_mask/mask"), HEADS, 4, 9)})
    case("op_padding", 4, 9, 2, constants={"key_mask": torch.arange(9) < lengths[:, None]})


class AdditiveAttention(nn.Module):
    """Additive attention with projections, HEADS heads side by side; the keys need no bias in addition to the queries'."""

    def __init__(self, width, memory_width):
        super().__init__()
        self.query = nn.Linear(width, HEADS * HIDDEN)
        self.key = nn.Linear(memory_width, HEADS * HIDDEN, bias=False)
        self.value = nn.Linear(memory_width, HEADS * VALUE)
        self.score = nn.Parameter(torch.empty(HEADS, HIDDEN))
        self.output = nn.Linear(HEADS * VALUE, width)
        self.double()

    def forward(self, x, memory, **masks):
        query, key, value = (y.unflatten(-1, (HEADS, -1)) for y in (self.query(x), self.key(memory), self.value(memory)))
        return self.output(attend(query, key, value, self.score, **masks).flatten(-2))


def layer(file):
    def case(name, memory_width, call, inputs, constants=None, **options):
        module = AdditiveAttention(12, memory_width)
        random = generator(name + "/parameters")
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.copy_(normal(random, *parameter.shape, scale=0.4))
        file.case(name, lambda **given: call(module, **given), inputs, dict(sorted(module.named_parameters())), constants,
                  zero_gradients=[], **options)

    random = generator("layer/inputs")
    x, memory = normal(random, 3, 5, 12), normal(random, 3, 7, 10)
    may_attend = torch.arange(7) < torch.tensor([7, 4, 6])[:, None]
    case("layer_self", 12, lambda module, x: module(x, x), {"x": x})
    case("layer_causal", 12, lambda module, x: module(x, x, causal=True), {"x": x}, causal=True)
    case("layer_cross", 10, lambda module, x, memory, memory_may_attend: module(x, memory, key_mask=memory_may_attend),
         {"x": x, "memory": memory}, {"memory_may_attend": may_attend})


def make():
    return file_of(operation, layer)
