"""Backends with a mistake each, under the suite that backends inherit: `test_backend_mistakes.py` runs this and reads what failed."""

from __future__ import annotations

import itertools

import attrs
import numpy as np

from iron_core import Available, No, Yes
from iron_core.testing import BackendConformance
from tests.backends.tiny_backend import TinyBackend, TinyExecutable


class TestRight(BackendConformance):
    backend = TinyBackend()


class Raises(TinyBackend):
    def probe(self):
        raise OSError("no such driver")


class TestRaises(BackendConformance):
    backend = Raises()


class Lines(TinyBackend):
    def probe(self):
        return Available("two\nlines")


class TestLines(BackendConformance):
    backend = Lines()


class Nowhere(TinyBackend):
    def devices(self):
        return ("host", "abacus")


class TestNowhere(BackendConformance):
    backend = Nowhere()


class Shrugs(TinyBackend):
    def supports(self, op, dev):
        return super().supports(op, dev) if type(op).__name__ in ("ReLU", "ElementwiseAdd") else No("")


class TestShrugs(BackendConformance):
    backend = Shrugs()


class Chokes(TinyBackend):
    def supports(self, op, dev):
        return Yes("numpy") if op.size else No("nothing")


class TestChokes(BackendConformance):
    backend = Chokes()


class Anything(TinyBackend):
    def __new__(cls, **options):
        return object.__new__(cls)

    def __init__(self, **options):
        super().__init__()


class TestAnything(BackendConformance):
    backend = Anything()


@attrs.frozen(eq=False)
class Identity(TinyBackend):
    __eq__ = object.__eq__
    __hash__ = object.__hash__


class TestIdentity(BackendConformance):
    backend = Identity()


class Numbered(TinyBackend):
    made = itertools.count()

    def compile(self, plan, signature):
        image = super().compile(plan, signature)
        first = image.inputs[:1]
        return attrs.evolve(image, inputs=tuple(attrs.evolve(p, name=f"{p.name}{next(self.made)}") for p in first) + image.inputs[1:])


class TestNumbered(BackendConformance):
    backend = Numbered()


class _Careless(TinyExecutable):
    def run(self, inputs, outputs, values):
        super().run(inputs, outputs, values)
        for data in outputs:
            data += np.ones((), data.dtype)


class OffByOne(TinyBackend):
    def load(self, image, memory):
        return _Careless(image, memory, self.most)


class TestOffByOne(BackendConformance):
    backend = OffByOne()


class Greedy(TinyBackend):
    def compile(self, plan, signature, feeds=None, coresident=()):
        return super().compile(plan, signature)


class TestGreedy(BackendConformance):
    backend = Greedy()
