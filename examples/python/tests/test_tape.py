"""The tape, and gradcheck of Python functions."""

import os
import signal
import threading
import unittest

import numpy as np

import tapeformer as tf


class Tape(unittest.TestCase):
    def test_gradients_of_watched_tensors(self):
        x = tf.Tensor(np.array([1.0, 2.0, 3.0]))
        with tf.Tape() as tape:
            tape.watch(x)
            dx, = tape.gradients((x * x).sum(), [x], recorded=True)
            ddx, = tape.gradients(dx.sum(), [x])
        np.testing.assert_allclose(dx.numpy(), [2, 4, 6])
        np.testing.assert_allclose(ddx.numpy(), [2, 2, 2])

    def test_backward_fills_the_parameters_gradients(self):
        layer = tf.Linear(3, 2, dtype="f64")
        self.assertIsNone(layer.parameters()["bias"].gradient)
        with tf.Tape() as tape:
            tape.backward(layer(np.ones((5, 3))).sum())
        np.testing.assert_allclose(layer.parameters()["bias"].gradient.numpy(), [5, 5])
        with tf.no_grad():
            layer(np.ones((5, 3)))

    def test_misuse_raises(self):
        x = tf.Tensor(np.ones(3))
        tape = tf.Tape()
        with self.assertRaisesRegex(tf.TapeError, "inside its `with` block"):
            tape.watch(x)
        with tape:
            tape.watch(x)
            with self.assertRaises(tf.TapeError):
                tape.backward(x * x)  # of several elements
            with self.assertRaises(TypeError):
                tape.watch(np.ones(3))
            with self.assertRaises(TypeError):
                tape.gradients((x * x).sum(), [np.ones(3)])
            with self.assertRaises(tf.TapeError):
                tape.__enter__()
            failures = []

            def elsewhere():
                try:
                    tape.watch(x)
                except tf.TapeError as error:
                    failures.append(str(error))

            thread = threading.Thread(target=elsewhere)
            thread.start()
            thread.join()
            self.assertIn("another thread", failures[0])

    def test_threads_compute_side_by_side(self):
        found = {}

        def train(seed):
            layer, x = tf.FeedForward(16, seed=seed, dtype="f64"), np.random.default_rng(seed).normal(size=(8, 16))
            for _ in range(20):
                layer.clear_gradients()
                with tf.Tape() as tape:
                    tape.backward(layer(x).sum())
            found[seed] = layer.parameters()["up.weight"].gradient.numpy().copy()

        threads = [threading.Thread(target=train, args=(seed % 2,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for seed in (0, 1):
            kept = found[seed]
            train(seed)
            np.testing.assert_array_equal(found[seed], kept)


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
        with self.assertRaisesRegex(tf.DTypeError, "must be f64"):
            tf.gradcheck(lambda x: x, [np.ones(2, np.float32)])


if __name__ == "__main__":
    unittest.main()
