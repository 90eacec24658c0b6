"""The steps of a sequence agree with its array: tasks end once, objects are whole, words come before their barrier."""

import attrs
import pytest

from iron_core.array.sequence import Await, AwaitToken, Free, SetBarrier, Transfer, WriteWord
from iron_core.array.spec import check
from iron_core.errors import DeclarationError


def refused(words, design):
    with pytest.raises(DeclarationError, match=words):
        check(design)


def steps(design, change):
    sequence = design.sequence
    return attrs.evolve(design, sequence=attrs.evolve(sequence, steps=tuple(change(list(sequence.steps)))))


def test_every_task_ends_once(plain):
    awaited = next(s for s in plain.sequence.steps if isinstance(s, Await))
    freed = next(s for s in plain.sequence.steps if isinstance(s, Free))
    refused("neither awaited nor freed", steps(plain, lambda all: [s for s in all if s is not freed]))
    refused("after it was awaited or freed", steps(plain, lambda all: [*all, awaited]))
    refused("before it starts", steps(plain, lambda all: [awaited, *all]))
    refused("gives no token", steps(plain, lambda all: [Await(freed.task) if s is freed else s for s in all]))


def test_whole_objects_are_moved(plain):
    def shorten(all):
        cut = next(s for s in all if isinstance(s, Transfer))
        one = cut.descriptors[0]
        short = attrs.evolve(one, sizes=(*one.sizes[:3], one.sizes[3] - 2))
        return [attrs.evolve(s, descriptors=(short,)) if s is cut else s for s in all]

    refused("bytes go through fifo y0; legal: whole multiples of 512", steps(plain, shorten))


def test_per_call_lengths_count_whole_objects(add):
    def odd(all):
        return [attrs.evolve(s, unit=128) if isinstance(s, Transfer) and s.task == 0 else s for s in all]

    refused("moves units of 256 bytes", steps(add, odd))


def test_transfers_go_where_their_fifo_does(plain):
    first = next(s for s in plain.sequence.steps if isinstance(s, Transfer))
    for change, words in (
        (dict(way="fill"), "only a drain"),
        (dict(fifo="nothing"), "no such fifo"),
        (dict(operand="z"), "z is no tensor"),
        (dict(descriptors=()), "no descriptors"),
        (dict(descriptors=(first.descriptors[0].shifted(4096),)), "reaches elements"),
    ):
        refused(words, steps(plain, lambda all, c=change: [attrs.evolve(s, **c) if s is first else s for s in all]))


def test_words_are_written_before_the_barrier_opens(plain):
    opening = [s for s in plain.sequence.steps if isinstance(s, SetBarrier)]
    writes = [s for s in plain.sequence.steps if isinstance(s, WriteWord)]
    refused("written after the barrier of core core0", steps(plain, lambda all: [*opening, *(s for s in all if s not in opening)]))
    refused("reads word 0 of words_core0, which nothing writes", steps(plain, lambda all: [s for s in all if s is not writes[0]]))
    refused("which nothing sets it to", steps(plain, lambda all: [s for s in all if s is not opening[0]]))


def test_packets_drive_what_no_fill_does(gather):
    control = gather.array.controls[0]
    fill = next(s for s in gather.sequence.steps if isinstance(s, Transfer) and s.fifo == control.name)
    other = next(f.name for f in gather.array.fifos if f.name != control.fifo)

    def instead(change):
        return steps(gather, lambda all: [attrs.evolve(s, **change) if s is fill else s for s in all])

    refused("control packets drive its channel", instead(dict(fifo=control.fifo)))
    refused("a control flow is filled", instead(dict(way="drain")))
    words = "whose channel no control flow drives"
    refused(words, steps(gather, lambda all: [AwaitToken(other) if isinstance(s, AwaitToken) else s for s in all]))
