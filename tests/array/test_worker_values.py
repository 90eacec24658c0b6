"""`Worker(core, args, values=)`: what is made for the values a core reads."""

from __future__ import annotations

import pytest

from iron_core.array import Buffer, Tile, Worker, WorkerRuntimeBarrier
from iron_core.array.builder import building
from iron_core.array.design import LockData, ValueData
from iron_core.array.program import Load, Local, RaiseBarrier, SetRounding, WaitBarrier
from iron_core.array.worker import BoundValue
from iron_core.declare.objects import ObjectType
from iron_core.errors import DeclarationError

ROWS, TILES = BoundValue("rows"), BoundValue("tiles")


def frozen(make):
    """The design that `make()` builds."""
    with building() as parts:
        make()
    return parts.freeze("made", "npu2")


def test_the_core_function_gets_the_numbers_behind_its_arguments():
    """In the order of `values`, each a word that the core has read."""
    given = []
    with building():
        Worker(lambda *args: given.extend(args), [7], values=[ROWS, TILES])
    assert given[0] == 7 and [str(number) for number in given[1:]] == ["v0", "v1"]


def test_a_run_begins_by_rounding_to_even_and_reading_its_words():
    """The barrier is waited for, every word is read, and the barrier is armed for the next call; then the function runs."""

    def make():
        mine = Buffer(1, "int32", name="mine")

        def core(buffer, rows, tiles):
            buffer[0] = rows + tiles

        Worker(core, [mine], values=[ROWS, TILES], name="sum")

    words = Local("words_sum", ObjectType.of(2, "int32"))
    *start, _ = frozen(make).cores[0].program
    assert [type(statement) for statement in start] == [SetRounding, WaitBarrier, Load, Load, RaiseBarrier]
    assert start[0] == SetRounding("conv_even")
    assert start[1] == WaitBarrier("ready_sum", 1) and start[-1] == RaiseBarrier("ready_sum", 1)
    assert [(load.memory, str(load.index)) for load in start[2:4]] == [(words, "0"), (words, "1")]


def test_every_worker_has_words_and_a_lock_of_its_own():
    """Two workers may read one value at different places; the design says where each does."""

    def make():
        Worker(lambda *numbers: None, values=[ROWS, TILES], tile=Tile("core", 0, 2))
        Worker(lambda *numbers: None, values=[TILES], tile=Tile("core", 0, 3))

    array = frozen(make)
    assert [(b.name, b.type.elements, b.written) for b in array.buffers] == [("words_core0", 2, True), ("words_core1", 1, True)]
    assert [b.tile for b in array.buffers] == [core.tile for core in array.cores]
    assert array.locks == (
        LockData("ready_core0", "core0", 0, "barrier"),
        LockData("ready_core1", "core1", 0, "barrier"),
    )
    assert array.values == (
        ValueData("rows", (("words_core0", 0),)),
        ValueData("tiles", (("words_core0", 1), ("words_core1", 0))),
    )


def test_a_worker_without_values_begins_with_its_function():
    """No words, no barrier, no rounding."""
    array = frozen(lambda: Worker(lambda: None))
    assert array.cores[0].program == () and not (array.buffers or array.locks or array.values)


def test_a_barrier_of_ones_own_stands_beside_it():
    def make():
        own = WorkerRuntimeBarrier(name="own")
        Worker(lambda barrier, rows: barrier.wait_for_value(2), [own], values=[ROWS], name="one")

    assert [lock.name for lock in frozen(make).locks] == ["own_one", "ready_one"]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([ROWS, ROWS], "worker core0: values= names rows twice"),
        (ROWS, r"worker core0: values=BoundValue\(name='rows'\); legal: a list of Values"),
        ([4], r"worker core0: values= has 4; legal: Values of the operator as array\(\) sees them"),
    ],
)
def test_what_values_takes(values, words):
    """Values by the view's name for them; a number is no word."""
    with building(), pytest.raises(DeclarationError, match=words):
        Worker(lambda *numbers: None, values=values)


@pytest.mark.parametrize("size", [0, "1024", 1024.0])
def test_a_stack_is_bytes(size):
    """Told where the worker is made."""
    with building(), pytest.raises(DeclarationError, match=r"worker core0: stack_size=.*; legal: bytes, at least 1"):
        Worker(lambda: None, stack_size=size)
