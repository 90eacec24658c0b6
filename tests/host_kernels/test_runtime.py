"""The runtime Python calls: one pool for a thread count, whoever calls it."""

from __future__ import annotations

import os
import threading
import warnings

import numpy as np
import pytest

import iron_core as iron
from iron_host.backend import HostBackend
from iron_host.runtime import Runtime, runtime
from iron_ops_aie import GEMV, ElementwiseAdd


class Twice(iron.Graph):
    def body(self, W, x):
        y = GEMV(W, x)
        return ElementwiseAdd(y, y)


@pytest.fixture
def call(rng):
    """A graph of two threads, compiled and called once; and what it answers."""
    W, x = rng.standard_normal((600, 512)).astype(np.float32), rng.standard_normal(512).astype(np.float32)
    compiled = Twice().compile(backend=HostBackend(threads=2), W=((600, 512), np.float32), x=((512,), np.float32))
    return lambda: np.array(compiled(W, x))


def test_a_runtime_belongs_to_the_process():
    """One for each number of threads."""
    assert runtime(2) is runtime(2)
    assert runtime(2) is not runtime(3)
    assert isinstance(runtime(2), Runtime)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform does not fork")
def test_a_forked_child_computes(call):
    """It has none of its parent's threads, so it starts its own; the parent goes on."""
    want = call()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python warns of forking with threads, which is the point
        child = os.fork()
    if child == 0:
        os._exit(0 if np.array_equal(call(), want) else 3)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert np.array_equal(call(), want)


def test_threads_of_one_process_take_turns(call):
    """Calls from several Python threads each get their own answer."""
    want, wrong = call(), []

    def work():
        for _ in range(200):
            if not np.array_equal(call(), want):
                wrong.append(1)

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong
