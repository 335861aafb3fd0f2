"""A small encoder-decoder in PyTorch, with our parameter names and with d_k != d_v."""

import math

import torch
import torch.nn.functional as F
from torch import nn


class MultiHeadAttention(nn.Module):
    def __init__(self, width, heads, key_width, value_width):
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, heads * key_width)
        self.key = nn.Linear(width, heads * key_width)
        self.value = nn.Linear(width, heads * value_width)
        self.output = nn.Linear(heads * value_width, width)

    def forward(self, x, memory, mask):
        """mask broadcasts to [B, H, T, S]; true = may attend."""
        query, key, value = (y.unflatten(-1, (self.heads, -1)).transpose(1, 2)
                             for y in (self.query(x), self.key(memory), self.value(memory)))
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        return self.output(mixed.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)

    def forward(self, x):
        return self.down(F.relu(self.up(x)))


class Layer(nn.Module):
    """An encoder layer, or with `cross` a decoder layer."""

    def __init__(self, config, cross):
        super().__init__()
        width = config["width"]
        attention = lambda: MultiHeadAttention(width, config["heads"], config["key_width"], config["value_width"])
        self.norm_first = config["norm_first"]
        self.self_attention, self.self_attention_norm = attention(), nn.LayerNorm(width)
        if cross:
            self.cross_attention, self.cross_attention_norm = attention(), nn.LayerNorm(width)
        self.feed_forward, self.feed_forward_norm = FeedForward(width, config["feed_forward"]), nn.LayerNorm(width)

    def add(self, x, norm, block):
        return x + block(norm(x)) if self.norm_first else norm(x + block(x))

    def forward(self, x, mask, memory=None, memory_mask=None):
        x = self.add(x, self.self_attention_norm, lambda y: self.self_attention(y, y, mask))
        if memory is not None:
            x = self.add(x, self.cross_attention_norm, lambda y: self.cross_attention(y, memory, memory_mask))
        return self.add(x, self.feed_forward_norm, self.feed_forward)


def positions(length, width, dtype):
    """pe[pos, 2i] = sin(pos / 10000^(2i/C)), pe[pos, 2i+1] = cos of the same; always computed in double."""
    angle = torch.arange(length, dtype=torch.float64)[:, None] * 10000.0 ** (
        -torch.arange(0, width, 2, dtype=torch.float64) / width)
    return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(-2).to(dtype)


class EncoderDecoder(nn.Module):
    def __init__(self, config):
        super().__init__()
        width, layers = config["width"], config["layers"]
        self.source_embedding = nn.Embedding(config["source_vocabulary"], width)
        self.target_embedding = nn.Embedding(config["target_vocabulary"], width)
        self.encoder = nn.ModuleList(Layer(config, cross=False) for _ in range(layers))
        self.decoder = nn.ModuleList(Layer(config, cross=True) for _ in range(layers))
        final_norm = (lambda: nn.LayerNorm(width)) if config["norm_first"] else nn.Identity
        self.encoder_norm, self.decoder_norm = final_norm(), final_norm()
        self.head = nn.Linear(width, config["target_vocabulary"])

    def embed(self, embedding, ids):
        x = embedding(ids) * math.sqrt(embedding.embedding_dim)
        return x + positions(ids.shape[1], embedding.embedding_dim, x.dtype)

    def forward(self, source, source_may_attend, target_in):
        memory_mask = source_may_attend[:, None, None, :]
        causal = torch.ones(target_in.shape[1], target_in.shape[1], dtype=torch.bool).tril()
        memory = self.embed(self.source_embedding, source)
        for layer in self.encoder:
            memory = layer(memory, memory_mask)
        memory = self.encoder_norm(memory)
        x = self.embed(self.target_embedding, target_in)
        for layer in self.decoder:
            x = layer(x, causal, memory, memory_mask)
        return self.head(self.decoder_norm(x))
