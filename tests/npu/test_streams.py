"""A stream of a design starts the transfers and waits for the tokens that its recorded sequence asks for, in order."""

from __future__ import annotations

import attrs
import numpy as np
import pytest

import iron_ops_aie
from iron_core.array.build import build
from iron_core.array.fit import fit
from iron_core.declare.cases import cases
from iron_core.devices import device
from iron_core.errors import IronError
from iron_npu.catalog import items
from iron_npu.formats.instructions import Stream
from iron_npu.formats.operations import BlockWrite, Patch, UpdateRegister, Wait, Write
from iron_npu.formats.registers import Transfer
from iron_npu.streams import differences, transfers
from iron_npu.tools import gate
from tests.catalog import ARRAYS, named
from tests.npu.encoder import encoded

#: Designs of an operator and a device that the encoder makes streams of.
FEW = 4


def designs(cls, dev):
    """A few designs of an operator's cases: alone, and with all that a call may give."""
    found = {}
    for _, case, _ in cases([cls], (dev,)):
        try:
            op = cls(**case.fields).resolved(device(dev))
            for members in ((), (*op.extents, *op.scratchpads)):
                design = build(op, dev, members).design
                found.setdefault(design, fit(design))
        except IronError:
            continue
        if len(found) >= FEW:
            break
    return found.items()


@pytest.mark.parametrize("dev", ["npu1", "npu2"])
@pytest.mark.parametrize("cls", ARRAYS, ids=named)
def test_an_encoded_sequence_gives_its_transfers_back(cls, dev):
    """Shim, channel, direction, walk, argument, executions, token, per-call words, and the order of waits."""
    found = designs(cls, dev)
    if not found:
        pytest.skip(f"no array of {cls.__name__} on {dev}")
    for design, placement in found:
        stream = Stream.read(encoded(design, placement))
        expected = transfers(design, placement)
        assert differences(stream, expected, folded=True) == []
        assert sum(isinstance(one, Wait) for one in expected) > 0 < sum(isinstance(one, Transfer) for one in expected)


def test_packets_of_a_gather_and_the_tokens_of_what_they_start_are_asked_for():
    """Control words leave in packets by a channel of their own; the tokens are those of the channel that they drive."""
    op = iron_ops_aie.Copy(input_size=96, gather=True, table_rows=12, rows=5, X=np.float32).resolved(device("npu2"))
    design = build(op, "npu2").design
    placement = fit(design)
    expected = transfers(design, placement)
    assert differences(Stream.read(encoded(design, placement)), expected) == []
    sent = [one for one in expected if isinstance(one, Transfer) and one.descriptors[0].packet is not None]
    (control,) = design.array.controls
    assert {(one.column, one.descriptors[0].packet) for one in sent} == {(placement[control.source][0], (1, 0))}
    assert Wait(placement[control.target][0], 0, 1, control.channel) in expected


@pytest.fixture(scope="module")
def gemv():
    """A product's stream on npu2, and what its sequence asks for."""
    op = iron_ops_aie.GEMV(M=256, K=256).resolved(device("npu2"))
    design = build(op, "npu2").design
    placement = fit(design)
    return Stream.read(encoded(design, placement)), transfers(design, placement)


def changed(stream, kind, **fields):
    """The stream with these fields of its first operation of a kind on a shim."""
    at = next(k for k, one in enumerate(stream.operations) if type(one) is kind and not getattr(one, "address", 0) >> 20 & 31)
    operations = list(stream.operations)
    operations[at] = attrs.evolve(operations[at], **{name: change(operations[at]) for name, change in fields.items()})
    return attrs.evolve(stream, operations=tuple(operations))


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (BlockWrite, {"data": lambda one: (one.data[0] + 1, *one.data[1:])}),
        (BlockWrite, {"data": lambda one: (*one.data[:2], 1 << 30 | 3 << 19, *one.data[3:])}),
        (BlockWrite, {"data": lambda one: (*one.data[:3], one.data[3] + 1, *one.data[4:])}),
        (Patch, {"argument": lambda one: one.argument + 1}),
        (Patch, {"offset": lambda one: one.offset + 4}),
        (Write, {"value": lambda one: one.value ^ 1 << 31}),
        (Write, {"value": lambda one: one.value + (1 << 16)}),
        (Write, {"address": lambda one: one.address + 8}),
        (Wait, {"column": lambda one: one.column + 1}),
        (Wait, {"direction": lambda one: 1 - one.direction}),
        (Wait, {"channel": lambda one: one.channel + 1}),
    ],
)
def test_a_stream_that_does_otherwise_is_told(gemv, kind, fields):
    """One line, with what it does and what was expected."""
    stream, expected = gemv
    found = differences(changed(stream, kind, **fields), expected)
    assert found and all(line.startswith("step ") and "; expected: " in line for line in found)


def test_a_step_too_few_or_in_another_order_is_told(gemv):
    stream, expected = gemv
    waits = [k for k, one in enumerate(stream.operations) if isinstance(one, Wait)]
    fewer = attrs.evolve(stream, operations=stream.operations[: waits[-1]])
    assert differences(fewer, expected)[-1].startswith(f"{len(expected) - 1} steps; expected: {len(expected)}; the first one over: wait ")
    assert differences(attrs.evolve(stream, operations=stream.operations[::-1]), expected)


def test_a_word_of_the_scratchpad_that_is_another_is_told(arrays):
    design = arrays.calls()
    placement = fit(design)
    stream, expected = Stream.read(encoded(design, placement)), transfers(design, placement)
    assert differences(stream, expected) == []
    at = [k for k, one in enumerate(stream.operations) if isinstance(one, UpdateRegister) and not one.address >> 20 & 31]
    assert len(at) == 3  # a length of each way, and a start
    for k in at:
        for field in ("index", "argument"):
            one = attrs.evolve(stream.operations[k], **{field: getattr(stream.operations[k], field) + 1})
            other = attrs.evolve(stream, operations=(*stream.operations[:k], one, *stream.operations[k + 1 :]))
            assert differences(other, expected)


def compared(found, folder):
    """How many of the catalog's streams were compared, and a line for each difference. The tools leave each in a folder of its own."""
    wrong, seen = [], 0
    for number, item in enumerate(found):
        if item.printed is None or item.printed.dynamic:
            continue
        place = folder / str(number)
        place.mkdir()
        said = gate.gate(item.printed, place)
        assert said is None, f"{item.name}: {said}"
        file = gate.stream(place)
        assert file is not None, f"{item.name}: no stream"
        wrong += [f"{item.name}: {line}" for line in differences(Stream.read(file.read_bytes()), transfers(item.design), folded=True)]
        seen += 1
    return seen, wrong


def test_streams_that_the_tools_leave_are_compared(tmp_path, monkeypatch):
    """With an encoder in the compiler's place: all of them are, and one that begins a word late is told with its case."""
    found = [one for one in items([iron_ops_aie.GEMV], ["npu1", "npu2"]) if one.printed is not None][:6]
    short: list[int] = []

    def compile(printed, folder):
        design = next(one.design for one in found if one.printed is printed)
        stream = Stream.read(encoded(design, fit(design)))
        if short:
            stream = changed(stream, Patch, offset=lambda one: one.offset + 4)
        (folder / "out" / "tmp").mkdir(parents=True)
        (folder / "out" / "insts_0.bin").write_bytes(stream.write())

    monkeypatch.setattr(gate, "gate", compile)
    for folder in ("right", "wrong"):
        (tmp_path / folder).mkdir()
    static = sum(not one.printed.dynamic for one in found)
    assert compared(found, tmp_path / "right") == (static, []) and static > 2
    short.append(1)
    seen, wrong = compared(found, tmp_path / "wrong")
    assert seen == len(wrong) == static and wrong[0].startswith(f"{found[0].name}: step 0: ")


needs_tools = pytest.mark.skipif(gate.missing() is not None, reason=gate.missing() or "")


@pytest.mark.toolchain
@needs_tools
@pytest.mark.parametrize("dev", ["npu1", "npu2"])
@pytest.mark.parametrize("cls", ARRAYS, ids=named)
def test_the_compilers_stream_does_what_was_recorded(cls, dev, tmp_path):
    """Of every case of the catalog whose stream is the same at every call; those that differ are listed together."""
    found = list(items([cls], [dev]))
    if not any(item.printed for item in found):
        pytest.skip(f"no array of {cls.__name__} on {dev}")
    seen, wrong = compared(found, tmp_path)
    assert seen and not wrong, "\n".join(wrong)
