"""Trained models: loading and generation, on the runs that the other tests keep."""

import pathlib
import tempfile
import unittest

import numpy as np

import tapeformer as tf

RUNS = pathlib.Path(__file__).parents[3] / "tests/golden/runs"


class Models(unittest.TestCase):
    def test_language_model(self):
        model = tf.load_checkpoint(str(RUNS / "language_mha"))
        self.assertIs(type(model), tf.DecoderOnly)
        logits = model(np.array([[1, 2, 3]]))
        self.assertEqual(logits.shape[:2], (1, 3))
        likeliest = int(np.argmax(logits.numpy()[0, -1]))
        self.assertEqual(model.generate([1, 2, 3], max_tokens=1, temperature=0), [[likeliest]])
        drawn = model.generate([1], max_tokens=5, samples=3, seed=4)
        self.assertEqual([len(sample) for sample in drawn], [5, 5, 5])
        self.assertEqual(drawn, model.generate([1], max_tokens=5, samples=3, seed=4))
        for wrong in [dict(ids=[]), dict(ids=[1 << 20]), dict(ids=[1], top_p=-1.0), dict(ids=[1], samples=-1)]:
            with self.assertRaises(tf.Error):
                model.generate(**wrong)

    def test_translation_model(self):
        model = tf.load_checkpoint(str(RUNS / "translation_mha"))
        self.assertIs(type(model), tf.EncoderDecoder)
        source, target = np.array([[4, 5, 3], [4, 3, 0]]), np.array([[2, 6], [2, 7]])
        self.assertEqual(model(source, source != 0, target).shape[:2], (2, 2))
        self.assertEqual(len(model.generate([[4, 5], [6]], beam=2, max_tokens=4)), 2)
        self.assertLessEqual(len(model.generate([[4, 5]], temperature=1.0, max_tokens=4)[0]), 4)
        self.assertIs(type(tf.load_checkpoint(str(RUNS.parent / "hugging_face/marian"))), tf.EncoderDecoder)

    def test_folders_without_a_model_are_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            with self.assertRaises(tf.CheckpointError):
                tf.DecoderOnly.load(folder)
            for text in ['{"model": "encoder_decoder"}', '{"model": "other"}', "[]", "{"]:
                pathlib.Path(folder, "config.json").write_text(text)
                with self.assertRaises(tf.CheckpointError):
                    tf.load_checkpoint(folder)


if __name__ == "__main__":
    unittest.main()
