#!/usr/bin/env python3
"""Arrays as NumPy writes them, of every kind that is read or refused; see README.md.

Usage: python golden_npz.py [FOLDER]     (the folder of this script unless told otherwise)
"""

import pathlib
import sys

import numpy

ARRAYS = {
    "long": numpy.array([[[1.5], [-0.125]]], numpy.float32),
    "scalar": numpy.array(7.5),
    "half": numpy.array([1, 2], numpy.float16),
    "columns": numpy.asfortranarray(numpy.array([[1, 2], [3, 4]], numpy.float32)),
    "text": numpy.frombuffer(b"type: x\n\0", numpy.int8),
}

if __name__ == "__main__":
    here = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parent
    numpy.savez(here / "arrays.npz", **ARRAYS)
