"""Tapeformer's tensors, attention layers, gradient check and trained models, to check other implementations against them in double."""

from ._tapeformer import *  # noqa: F403

for _public in list(globals().values()):
    if isinstance(_public, type):
        _public.__module__ = __name__  # as messages and help() show it
