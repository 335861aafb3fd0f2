"""Arrays converted to tensors and back: sharing, copies, refusals."""

import gc
import unittest
import weakref

import numpy as np

import tapeformer as tf


class Arrays(unittest.TestCase):
    def test_dense_arrays_of_our_types_are_shared(self):
        for dtype, name in [(np.float32, "f32"), (np.float64, "f64"), (np.int32, "i32"), (np.bool_, "bool")]:
            x = np.ones((2, 3), dtype)
            tensor = tf.Tensor(x)
            self.assertEqual((tensor.dtype, tensor.shape), (name, (2, 3)))
            self.assertEqual(tensor.numpy().ctypes.data, x.ctypes.data)
            self.assertEqual(tensor.numpy().dtype, dtype)
            self.assertNotEqual(tf.Tensor(x, copy=True).numpy().ctypes.data, x.ctypes.data)

    def test_the_tensor_keeps_the_array_and_the_view_keeps_the_tensor(self):
        x = np.arange(6.0)
        alive = weakref.ref(x)
        view = tf.Tensor(x).numpy()
        del x
        gc.collect()
        self.assertIsNotNone(alive())
        np.testing.assert_array_equal(view, np.arange(6.0))
        del view
        gc.collect()
        self.assertIsNone(alive())

    def test_views_are_read_only(self):
        with self.assertRaises(ValueError):
            tf.Tensor(np.ones(3)).numpy()[0] = 2

    @unittest.skipIf(np.__version__ < "2", "NumPy 1 may copy all the same")
    def test_a_copy_that_is_forbidden_is_not_made(self):
        with self.assertRaises(ValueError):
            np.array(tf.Tensor(np.ones(3)), np.float32, copy=False)

    def test_other_layouts_are_copied(self):
        x = np.arange(24.0).reshape(2, 3, 4)
        for view in [x.T, x[:, ::2], x[::-1], x[..., 1], np.broadcast_to(x, (2, 2, 3, 4)), np.ones((0, 3)), x[0, 0, 0]]:
            np.testing.assert_array_equal(tf.Tensor(view).numpy(), view)
        misaligned = np.frombuffer(b"\0" * 4 + np.arange(3.0).tobytes(), np.float64, offset=4)
        np.testing.assert_array_equal(tf.Tensor(misaligned).numpy(), [0, 1, 2])
        constant = np.ones(3)
        constant.flags.writeable = False
        self.assertEqual(tf.Tensor(constant).numpy().ctypes.data, constant.ctypes.data)

    def test_other_integers_become_i32(self):
        for dtype in [np.int64, np.int16, np.int8, np.uint64, np.uint32, np.uint16, np.uint8]:
            np.testing.assert_array_equal(tf.Tensor(np.array([[1, 2]], dtype)).numpy(), [[1, 2]])
        for beyond in [np.array([2**31]), np.array([2**32 - 1], np.uint32), np.array([-(2**40)])]:
            with self.assertRaisesRegex(ValueError, "holds i32; got"):
                tf.Tensor(beyond)

    def test_what_is_no_tensor_is_refused(self):
        objects = np.array([1.0, "a"], object)
        for wrong in [objects, np.ones(2, complex), np.ones(2, np.float16), np.ones(2, ">f8"), "text", object(), {}]:
            with self.assertRaises(TypeError):
                tf.Tensor(wrong)
            with self.assertRaises(TypeError):
                tf.softmax(wrong)
        with self.assertRaises(tf.ShapeError):
            tf.Tensor(np.ones((1,) * 9))
        with self.assertRaises(ValueError):
            tf.Tensor(np.ones(2), dtype="float64")

    def test_numbers_and_lists(self):
        self.assertEqual(float(tf.Tensor(2.5)), 2.5)
        np.testing.assert_array_equal(np.asarray(tf.Tensor([[1, 2]], dtype="f64")), [[1.0, 2.0]])
        self.assertEqual(repr(tf.Tensor(np.float32([1, 2]))), "tapeformer.Tensor(f32[2])")


class Arithmetic(unittest.TestCase):
    def test_with_arrays_and_numbers(self):
        x, y = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([2.0, 4.0])
        tensor = tf.Tensor(x)
        for ours, numpys in [
            (tensor + y, x + y), (y - tensor, y - x), (2 * tensor, 2 * x), (tensor / y, x / y), (1 / tensor, 1 / x),
            (-tensor, -x), (tensor**2, x**2), (tensor @ x, x @ x), (x @ tensor, x @ x), (tensor - 1, x - 1),
        ]:
            self.assertIsInstance(ours, tf.Tensor)
            np.testing.assert_allclose(ours.numpy(), numpys, rtol=1e-15)

    def test_functions(self):
        x = np.linspace(-1, 1, 12).reshape(3, 4)
        for ours, numpys in [
            (tf.sum(x), x.sum()), (tf.mean(x, [0]), x.mean(0)), (tf.sum(x, [1], keep_axes=True), x.sum(1, keepdims=True)),
            (tf.reshape(x, (2, 6)), x.reshape(2, 6)), (tf.permute(x, (1, 0)), x.T), (tf.exp(x), np.exp(x)), (tf.tanh(x), np.tanh(x)),
        ]:
            np.testing.assert_allclose(ours.numpy(), numpys, rtol=1e-14, atol=1e-15)

    def test_errors_have_classes(self):
        for error in [tf.ShapeError, tf.DTypeError, tf.DeviceError, tf.TapeError, tf.DataError, tf.CheckpointError]:
            self.assertTrue(issubclass(error, tf.Error))
        with self.assertRaisesRegex(tf.ShapeError, r"\[matmul\] inner sizes must match"):
            tf.matmul(np.ones((2, 3)), np.ones((2, 3)))
        with self.assertRaises(tf.DTypeError):
            tf.Tensor(np.ones(2)) + np.ones(2, np.float32)
        with self.assertRaises(OverflowError):
            tf.Tensor(np.ones(2)) + 10**400
        with self.assertRaises(tf.CheckpointError):
            tf.load_checkpoint("no such folder")


if __name__ == "__main__":
    unittest.main()
