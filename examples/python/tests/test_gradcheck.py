"""gradcheck of Python functions and of layers, and the states of layers."""

import os
import signal
import unittest

import numpy as np

import tapeformer as tf


class Gradcheck(unittest.TestCase):
    def test_right_functions_pass(self):
        report = tf.gradcheck(lambda x, w: tf.gelu(x @ w), [np.ones((2, 3)), np.eye(3)], second_order=True)
        self.assertTrue(report)
        self.assertLess(report.worst_relative_error, 1e-7)
        self.assertEqual([found.name for found in report.inputs], ["input 0", "input 1"])
        self.assertIn("ok", str(report))

    def test_wrong_gradients_are_found(self):
        report = tf.gradcheck(lambda x: x * x.detach(), {"x": np.array([1.0, 2.0])})
        self.assertFalse(report)
        self.assertEqual((report.inputs[0].name, report.inputs[0].checked), ("x", 2))

    def test_parameters_are_checked_and_put_back(self):
        layer = tf.LayerNorm(4, dtype="f64")
        before, inputs = layer.state(), [np.arange(8.0).reshape(2, 4) ** 2]
        report = tf.gradcheck(layer, inputs, module=layer)
        self.assertTrue(report, report)
        self.assertEqual(len(report.inputs), 3)
        calls = []

        def interrupted(x):
            calls.append(x)
            if len(calls) == 45:
                os.kill(os.getpid(), signal.SIGINT)
            return layer(x)

        with self.assertRaises(KeyboardInterrupt):
            tf.gradcheck(interrupted, inputs, module=layer)
        self.assertLess(len(calls), 50)
        for name, value in layer.state().items():
            np.testing.assert_array_equal(value, before[name])

    def test_exceptions_pass_through(self):
        with self.assertRaises(ZeroDivisionError):
            tf.gradcheck(lambda x: 1 / 0, [np.ones(2)])
        with self.assertRaisesRegex(TypeError, "must return a tensor"):
            tf.gradcheck(lambda x: x.numpy(), [np.ones(2)])
        with self.assertRaisesRegex(TypeError, "must be a list or a dict"):
            tf.gradcheck(lambda x: x, tf.Tensor(np.ones(2)))
        with self.assertRaises(TypeError):
            tf.gradcheck(lambda x: x, [np.ones(2)], module="layer")
        with self.assertRaisesRegex(TypeError, "keyword"):
            tf.gradcheck(lambda x: x, {1: np.ones(2)})
        with self.assertRaisesRegex(tf.DTypeError, "must be f64"):
            tf.gradcheck(lambda x: x, [np.ones(2, np.float32)])


class Layers(unittest.TestCase):
    def test_fields_are_those_of_the_table(self):
        for wrong, error in [
            (dict(hats=2), TypeError), (dict(heads="two"), TypeError), (dict(heads=True), TypeError),
            (dict(heads=-1), tf.Error), (dict(heads=3), tf.Error), (dict(dtype="i32"), ValueError), (dict(attention="mha"), ValueError),
        ]:
            with self.assertRaises(error):
                tf.LatentAttention(**{**dict(width=8, heads=2), **wrong})
        self.assertIn("heads: int = ", tf.MultiHeadAttention.__init__.__doc__)
        self.assertIn("output_bias: bool | None = None", tf.MultiHeadAttention.__init__.__doc__)
        tf.MultiHeadAttention(width=8, heads=2, output_bias=None)

    def test_the_seed_decides_the_values(self):
        a, b, c = (tf.Linear(3, 2, seed=seed).state() for seed in (1, 1, 2))
        np.testing.assert_array_equal(a["weight"], b["weight"])
        self.assertFalse(np.array_equal(a["weight"], c["weight"]))

    def test_states_are_loaded_whole_or_not_at_all(self):
        from_layer, to_layer = tf.Linear(3, 2, seed=1), tf.Linear(3, 2, seed=2, dtype="f64")
        state, before = from_layer.state(), to_layer.state()
        for wrong in [{**state, "more": np.ones(2)}, {**state, "weight": np.ones((7, 7))}, {"weight": state["weight"]}]:
            with self.assertRaisesRegex(tf.ShapeError, "nothing was loaded"):
                to_layer.load_state(wrong)
        np.testing.assert_array_equal(to_layer.state()["weight"], before["weight"])
        to_layer.load_state(state)
        for name, value in to_layer.state().items():
            np.testing.assert_array_equal(value, state[name])
            self.assertEqual(value.dtype, np.float64)


if __name__ == "__main__":
    unittest.main()
