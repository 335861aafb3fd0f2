"""Every kind of attention against PyTorch in double."""

import pathlib
import subprocess
import sys
import unittest

import numpy as np

import tapeformer as tf

try:
    import torch
    from torch.nn import functional
except ImportError:
    torch = None

B, T, S, C, H, G = 2, 5, 7, 12, 6, 2
random = np.random.default_rng(1)


def heads(x, count):
    return x.unflatten(-1, (count, -1)).transpose(1, 2)


def joined(x):
    return x.transpose(1, 2).flatten(2)


def turned(x, base=10000.0):
    """Interleaved rotary positions of [B, H, T, D]."""
    angles = torch.arange(x.shape[2], dtype=x.dtype)[:, None] * base ** (
        -torch.arange(0, x.shape[3], 2, dtype=x.dtype) / x.shape[3])
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], -1).flatten(-2)


@unittest.skipIf(torch is None, "PyTorch is not installed")
class AgainstTorch(unittest.TestCase):
    def compare(self, ours, theirs, inputs, module=None, tolerance=1e-12):
        """ours(*inputs) and theirs(weights, *inputs) of the same inputs; our gradients by differences."""
        weights = {}
        if module is not None:
            state = {name: random.normal(size=value.shape) * 0.4 for name, value in module.state().items()}
            module.load_state(state)
            weights = {name: torch.from_numpy(value) for name, value in state.items()}
        expected = theirs(weights, *(torch.from_numpy(x) for x in inputs))
        y, expected = ours(*inputs).numpy(), expected.detach().numpy()
        self.assertLess(np.abs(y - expected).max() / max(np.abs(expected).max(), 1.0), tolerance)
        self.assertTrue(tf.gradcheck(ours, inputs, module=module, most_elements=2))

    def x(self, *shape):
        return random.normal(size=shape)

    def test_multi_head_self_attention(self):
        for causal in (False, True):
            layer = tf.MultiHeadAttention(width=C, heads=H, dtype="f64")
            theirs = torch.nn.MultiheadAttention(C, H, batch_first=True, dtype=torch.float64)
            padding = np.arange(T) < np.array([[T], [3]])

            def reference(w, x):
                state = {"in_proj_weight": w["query_key_value.weight"], "in_proj_bias": w["query_key_value.bias"],
                         "out_proj.weight": w["output.weight"], "out_proj.bias": w["output.bias"]}
                options = dict(key_padding_mask=~torch.from_numpy(padding), need_weights=False)
                if causal:
                    options["attn_mask"] = torch.ones(T, T, dtype=torch.bool).triu(1)
                return torch.func.functional_call(theirs, state, (x, x, x), options)[0]

            self.compare(lambda x: layer(x, key_mask=padding, causal=causal), reference, [self.x(B, T, C)], layer)

    def test_cross_attention(self):
        layer = tf.MultiHeadAttention(width=C, heads=H, cross=True, dtype="f64")

        def reference(w, x, memory):
            query, key, value = (
                heads(functional.linear(z, w[name + ".weight"], w[name + ".bias"]), H)
                for name, z in [("query", x), ("key", memory), ("value", memory)])
            y = functional.scaled_dot_product_attention(query, key, value)
            return functional.linear(joined(y), w["output.weight"], w["output.bias"])

        self.compare(layer, reference, [self.x(B, T, C), self.x(B, S, C)], layer)

    def test_grouped_and_multi_query_attention_with_rotary_positions(self):
        for kind, groups, rotary in [("gqa", G, False), ("gqa", G, True), ("mqa", 1, False), ("mqa", 1, True)]:
            fields = {"groups": groups} if kind == "gqa" else {}
            layer = tf.MultiHeadAttention(attention=kind, width=C, heads=H, rotary=rotary, dtype="f64", **fields)

            def reference(w, x):
                packed = functional.linear(x, w["query_key_value.weight"], w["query_key_value.bias"])
                query, key, value = packed.split([C, C // H * groups, C // H * groups], -1)
                query, key, value = heads(query, H), heads(key, groups), heads(value, groups)
                if rotary:
                    query, key = turned(query), turned(key)
                y = functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
                return functional.linear(joined(y), w["output.weight"], w["output.bias"])

            self.compare(lambda x: layer(x, causal=True), reference, [self.x(B, T, C)], layer)

    def test_latent_attention(self):
        for form in ("naive", "absorbed"):
            layer = tf.LatentAttention(width=C, heads=H, latent_width=5, rotary_width=4, form=form, dtype="f64")

            def reference(w, x):
                latent = functional.linear(x, w["key_value_down.weight"])
                latent = functional.rms_norm(latent, (5,), w["key_value_norm.weight"], 1e-6)
                turned_key = turned(heads(functional.linear(x, w["key_rotary.weight"]), 1)).expand(-1, H, -1, -1)
                key = torch.cat([heads(functional.linear(latent, w["key_up.weight"]), H), turned_key], -1)
                query = torch.cat([heads(functional.linear(x, w["query_up.weight"]), H),
                                   turned(heads(functional.linear(x, w["query_rotary.weight"]), H))], -1)
                value = heads(functional.linear(latent, w["value_up.weight"]), H)
                y = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
                return functional.linear(joined(y), w["output.weight"])

            self.compare(lambda x: layer(x, causal=True), reference, [self.x(B, T, C)], layer)

    def test_additive_attention(self):
        layer = tf.AdditiveAttention(width=C, heads=H, cross=True, dtype="f64")

        def reference(w, x, memory):
            query = heads(functional.linear(x, w["query.weight"], w["query.bias"]), H)
            key = heads(functional.linear(memory, w["key.weight"]), H)
            value = heads(functional.linear(memory, w["value.weight"], w["value.bias"]), H)
            hidden = torch.tanh(query[:, :, :, None] + key[:, :, None])
            scores = (hidden * w["score"][None, :, None, None]).sum(-1)
            return functional.linear(joined(scores.softmax(-1) @ value), w["output.weight"], w["output.bias"])

        self.compare(layer, reference, [self.x(B, T, C), self.x(B, S, C)], layer)

    def test_one_head_bare_matrices_and_no_weights(self):
        attend = functional.scaled_dot_product_attention
        single = tf.SingleHeadAttention(C, key_width=4, value_width=3, causal=True, dtype="f64")
        self.compare(
            single, lambda w, x: attend(*(functional.linear(x, w[n + ".weight"]) for n in ("query", "key", "value")), is_causal=True),
            [self.x(B, T, C)], single)
        bare = tf.MatrixSelfAttention(C, key_width=4, value_width=3, dtype="f64")
        self.compare(bare, lambda w, x: attend(*(x @ w[n] for n in ("query", "key", "value"))), [self.x(B, T, C)], bare)
        self.compare(tf.self_attention, lambda w, x: attend(x, x, x, scale=1.0), [self.x(B, T, C)])

    def test_the_operation_and_its_weights(self):
        query, key, value = self.x(B, T, H, 4), self.x(B, S, G, 4), self.x(B, S, G, 3)
        visible, bias = random.random((B, 1, T, S)) > 0.3, self.x(B, H, T, S)
        visible[..., 0] = True
        for mask in (visible, bias):
            self.compare(
                lambda *qkv: tf.attention(*qkv, mask=mask),
                lambda w, *qkv: functional.scaled_dot_product_attention(
                    *(z.transpose(1, 2) for z in qkv), attn_mask=torch.from_numpy(mask), enable_gqa=True).transpose(1, 2),
                [query, key, value])
        _, weights = tf.attention(query, key, value, return_weights=True, scale=0.3)
        q, k = (torch.from_numpy(z).transpose(1, 2) for z in (query, np.repeat(key, H // G, 2)))
        np.testing.assert_allclose(weights.numpy(), (q @ k.mT * 0.3).softmax(-1), rtol=1e-12)

    def test_layers(self):
        for module, theirs in [
            (tf.Linear(C, 4, dtype="f64"), lambda w, x: functional.linear(x, w["weight"], w["bias"])),
            (tf.LayerNorm(C, dtype="f64"), lambda w, x: functional.layer_norm(x, (C,), w["weight"], w["bias"])),
            (tf.RMSNorm(C, dtype="f64"), lambda w, x: functional.rms_norm(x, (C,), w["weight"], 1e-6)),
            (tf.FeedForward(C, 8, "gelu", dtype="f64"), lambda w, x: functional.linear(
                functional.gelu(functional.linear(x, w["up.weight"], w["up.bias"])), w["down.weight"], w["down.bias"])),
        ]:
            self.compare(module, theirs, [self.x(B, T, C)], module)

    def test_dlpack_shares_memory_both_ways(self):
        x = torch.arange(6.0, dtype=torch.float64).reshape(2, 3)
        tensor = tf.Tensor(x)
        self.assertEqual(tensor.numpy().ctypes.data, x.data_ptr())
        self.assertEqual(torch.from_dlpack(tensor).data_ptr(), x.data_ptr())
        torch.testing.assert_close(torch.from_dlpack(tensor + 1), x + 1)
        np.testing.assert_array_equal(tf.Tensor(x.T).numpy(), x.T)
        self.assertEqual(tf.Tensor(torch.ones(2, requires_grad=True)).shape, (2,))

    def test_either_may_be_imported_first(self):
        for order in ("torch, tapeformer", "tapeformer, torch"):
            program = f"""if True:
                import {order}, numpy as np
                x = np.random.default_rng(0).normal(size=(300, 300))
                products = [tapeformer.matmul(x, x).numpy(), (torch.from_numpy(x) @ torch.from_numpy(x)).numpy(), x @ x]
                assert max(np.abs(y - products[2]).max() for y in products) < 1e-10"""
            subprocess.run([sys.executable, "-c", program], check=True, timeout=120)

    def test_the_readmes_example_runs(self):
        text = (pathlib.Path(__file__).parents[1] / "README.md").read_text()
        example = text.split("```python\n")[1].split("```")[0]
        found = {}
        exec(example, found)
        self.assertLess(found["error"], 1e-12)


if __name__ == "__main__":
    unittest.main()
