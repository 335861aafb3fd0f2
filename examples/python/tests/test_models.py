"""Layers' configurations and states, models, optimizers, generation."""

import json
import pathlib
import struct
import tempfile
import unittest

import numpy as np

import tapeformer as tf


def small(**fields):
    return tf.DecoderOnly(**{**dict(vocabulary=7, layers=1, width=8, heads=2, context=12), **fields})


def write_safetensors(path, arrays):
    header, data = {}, b""
    for name, array in arrays.items():
        end = len(data) + array.nbytes
        header[name] = {"dtype": "F32", "shape": array.shape, "data_offsets": [len(data), end]}
        data += array.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


class Layers(unittest.TestCase):
    def test_fields_are_those_of_the_table(self):
        model = small(attention="gqa", groups=1, norm="rms", positions="rotary", dtype="f64", seed=3)
        self.assertEqual((model.config["groups"], model.config["norm"]), (1, "rms"))
        for wrong, error in [
            (dict(hats=2), TypeError), (dict(heads="two"), TypeError), (dict(heads=True), TypeError),
            (dict(heads=-1), tf.Error), (dict(heads=3), tf.Error), (dict(norm="best"), tf.Error), (dict(dtype="i32"), ValueError),
        ]:
            with self.assertRaises(error):
                small(**wrong)
        with self.assertRaisesRegex(ValueError, "kind of another class"):
            tf.LatentAttention(width=8, heads=2, attention="mha")
        self.assertIn("heads: int = 4", tf.DecoderOnly.__init__.__doc__)

    def test_the_seed_decides_the_values(self):
        a, b, c = (small(seed=seed).state() for seed in (1, 1, 2))
        for name in a:
            np.testing.assert_array_equal(a[name], b[name])
        self.assertFalse(np.array_equal(a["embedding.weight"], c["embedding.weight"]))

    def test_states_are_loaded_whole_or_not_at_all(self):
        from_model, to_model = small(seed=1), small(seed=2, dtype="f64")
        state, before = from_model.state(), to_model.state()
        for wrong in [
            {**state, "more": np.ones(2)}, {**state, "embedding.weight": np.ones((7, 7))},
            {name: value for name, value in state.items() if name != "norm.bias"},
        ]:
            with self.assertRaisesRegex(tf.ShapeError, "nothing was loaded"):
                to_model.load_state(wrong)
        np.testing.assert_array_equal(to_model.state()["embedding.weight"], before["embedding.weight"])
        to_model.load_state(state)
        for name, value in to_model.state().items():
            np.testing.assert_array_equal(value, state[name])
            self.assertEqual(value.dtype, np.float64)

    def test_loaded_arrays_are_not_written_to(self):
        layer, weight = tf.Linear(2, 2, bias=False, dtype="f64"), np.eye(2)
        layer.load_state({"weight": weight})
        optimizer = tf.AdamW(layer)
        with tf.Tape() as tape:
            tape.backward(layer(np.ones((1, 2))).sum())
        optimizer.step(0.1)
        np.testing.assert_array_equal(weight, np.eye(2))
        self.assertFalse(np.array_equal(layer.state()["weight"], weight))


class Models(unittest.TestCase):
    def test_optimizers_train(self):
        ids = np.array([[1, 2, 3, 1, 2, 3, 1, 2]])
        for optimizer_of, rate in [(tf.AdamW, 3e-2), (tf.Muon, 1e-1)]:
            model = small()
            optimizer = optimizer_of(model, weight_decay=0.01)
            losses = []
            for _ in range(60):
                optimizer.clear_gradients()
                with tf.Tape() as tape:
                    loss = model.loss(ids[:, :-1], ids[:, 1:])
                    tape.backward(loss)
                optimizer.clipped_step(rate, 1.0)
                losses.append(float(loss))
            self.assertLess(losses[-1], losses[0] / 4)
            self.assertEqual(model.generate([1, 2, 3], max_tokens=4, temperature=0), [[1, 2, 3, 1]])
        with self.assertRaisesRegex(tf.Error, "colour"):
            tf.AdamW(model, colour=1)

    def test_generation_heeds_its_arguments(self):
        model = small()
        model.eval()
        drawn = model.generate([1], max_tokens=5, samples=3, seed=4)
        self.assertEqual([len(sample) for sample in drawn], [5, 5, 5])
        self.assertEqual(drawn, model.generate([1], max_tokens=5, samples=3, seed=4))
        for wrong in [dict(ids=[]), dict(ids=[99]), dict(ids=[1], top_p=-1.0), dict(ids=[1], samples=-1)]:
            with self.assertRaises(tf.Error):
                model.generate(**wrong)

    def test_encoder_decoder(self):
        model = tf.EncoderDecoder(source_vocabulary=9, target_vocabulary=9, encoder_layers=1, decoder_layers=1, width=8, heads=2)
        source, target = np.array([[4, 5, 3], [4, 3, 0]]), np.array([[2, 6], [2, 7]])
        self.assertEqual(model(source, source != 0, target).shape, (2, 2, 9))
        self.assertGreater(float(model.loss(source, None, target, target)), 0)
        model.eval()
        self.assertEqual(len(model.generate([[4, 5], [6]], beam=2, max_tokens=4)), 2)
        self.assertEqual(len(model.generate([[4, 5]], temperature=1.0, max_tokens=4)[0]) <= 4, True)

    def test_run_folders_are_loaded(self):
        models = [small(attention="mla", positions="rotary"), tf.EncoderDecoder(
            source_vocabulary=9, target_vocabulary=9, encoder_layers=1, decoder_layers=1, width=8, heads=2)]
        for model, kind in zip(models, ["decoder_only", "encoder_decoder"]):
            with tempfile.TemporaryDirectory() as folder:
                pathlib.Path(folder, "config.json").write_text(json.dumps({"model": kind, **model.config}))
                write_safetensors(pathlib.Path(folder, "weights.safetensors"), model.state())
                loaded = tf.load_checkpoint(folder)
            self.assertIs(type(loaded), type(model))
            self.assertEqual(loaded.config, model.config)
            for name, value in loaded.state().items():
                np.testing.assert_array_equal(value, model.state()[name])

    def test_run_folders_that_are_none(self):
        with tempfile.TemporaryDirectory() as folder:
            with self.assertRaises(tf.CheckpointError):
                tf.DecoderOnly.load(folder)
            for text in ['{"model": "encoder_decoder"}', '{"model": "other"}', "[]", "{"]:
                with open(folder + "/config.json", "w") as file:
                    file.write(text)
                with self.assertRaises(tf.CheckpointError):
                    tf.load_checkpoint(folder)


if __name__ == "__main__":
    unittest.main()
