"""Memory that knows what was written, and how a core's stores round."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from iron_core import bfloat16
from iron_core.array import ObjectType
from iron_core.declare.formats import Q4_1, as_format
from iron_core.errors import ShapeError
from iron_core.image.plan import BufferRef, Plan, Resident, VersionPlan
from iron_core.image.planner import Draft, adopt
from iron_sim.errors import PoisonError
from iron_sim.host import SimMemory, region, spread, unwritten
from iron_sim.memory import Mem, store

BF16 = as_format("bfloat16")


# -- tiles -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float16"])
def test_fresh_memory_is_poison_and_not_a_number(dtype):
    mem = Mem.fresh(ObjectType((4, 2), dtype))
    assert mem.mask.all() and mem.data.shape == (8,) and np.isnan(mem.data.astype(np.float32)).all()


def test_fresh_integers_are_poison():
    mem = Mem.fresh(ObjectType((4,), "int32"))
    assert mem.mask.all() and (mem.data == -1).all()


def test_memory_that_starts_with_numbers():
    mem = Mem.holding(ObjectType((2, 2), "int32"), (1, 2, 3, 4))
    assert not mem.mask.any() and mem.data.tolist() == [1, 2, 3, 4]


def test_a_part_is_the_same_memory():
    mem = Mem.fresh(ObjectType((8,), "int32"))
    part = mem.part(2, 4)
    part.data[:], part.mask[:] = 7, False
    assert mem.data.tolist() == [-1, -1, 7, 7, 7, 7, -1, -1] and mem.mask.tolist() == [True] * 2 + [False] * 4 + [True] * 2


# -- rounding --------------------------------------------------------------------------------------


@pytest.mark.parametrize("values", [np.array([1.001, -1.001], np.float32), np.array([1.001, -1.001], np.float64), [1.001, -1.001]])
def test_stores_round_as_the_core_is_set(values):
    for mode, want in (("floor", [1.0, -1.0078125]), ("conv_even", [1.0, -1.0])):
        into = np.zeros(2, bfloat16)
        store(into, values, mode)
        assert into.astype(np.float32).tolist() == want


def test_what_is_bfloat16_already_is_stored_as_it_is():
    values = np.array([1.0078125, -1.0078125], bfloat16)
    for mode in ("floor", "conv_even"):
        into = np.zeros(2, bfloat16)
        store(into, values, mode)
        assert (into == values).all()


def test_other_dtypes_know_no_mode():
    into = np.zeros(3, np.float32)
    store(into, np.array([1 / 3, 1e-50, 2], np.float64), "floor")
    assert into.tolist() == [np.float32(1 / 3), 0, 2]
    words = np.zeros(2, np.int32)
    store(words, np.array([[3], [-4]]), "floor")
    assert words.tolist() == [3, -4]


# -- the host's memory -----------------------------------------------------------------------------


def planned(*residents, banks=(), after=None):
    """A plan with these residents and banks, added to one there was."""
    plan = after or Plan("p", "sim", "npu2", None, (), (), ())
    return adopt(plan, Draft("p", VersionPlan((len(plan.versions),), (), (), (), ()), residents, banks))


def memory(*residents, banks=()):
    return SimMemory(planned(*residents, banks=banks))


def place(made, name):
    return made.places[[resident.name for resident in made.residents].index(name)]


def test_states_start_at_zero_and_weights_as_given():
    data = np.arange(6, dtype=np.float32).astype(bfloat16).reshape(2, 3)
    made = memory(Resident("s", "state", (2, 3), BF16), Resident("w", "weight", (2, 3), BF16, data))
    assert not made.read("s").any() and (made.read("w") == data).all()


def test_writing_a_weight_leaves_the_callers_array_alone():
    data = np.ones((2, 2), bfloat16)
    made = memory(Resident("w", "weight", (2, 2), BF16, data))
    made.write("w", np.full((2, 2), 3, bfloat16))
    assert (data == 1).all() and (made.read("w") == 3).all()


@pytest.mark.parametrize("array", [np.zeros((3, 2), bfloat16), np.zeros((2, 3), np.float32)])
def test_a_resident_keeps_its_shape_and_format(array):
    made = memory(Resident("s", "state", (2, 3), BF16))
    with pytest.raises(ShapeError, match=r"`s` is bfloat16 of shape \(2, 3\); got"):
        made.write("s", array)


def test_reading_what_nobody_wrote():
    """A state that a call filled with poison is not handed out."""
    made = memory(Resident("s", "state", (2, 3), BF16))
    place(made, "s").marks[6:8] = True
    with pytest.raises(PoisonError, match="s holds data nobody wrote, first at byte 6"):
        made.read("s")


def test_memory_grows_and_keeps_what_it_has():
    """Another version of the graph: its states and a larger arena."""
    first = planned(Resident("s", "state", (2,), BF16, key=1), banks=(8,))
    made = SimMemory(first)
    made.write("s", np.array([1, 2], bfloat16))
    kept = place(made, "s").base
    made.banks[0].raw[:], made.banks[0].marks[:] = 5, False
    base = made.banks[0].base
    made.grow(planned(*(Resident(name, "state", (2,), BF16, key=key) for key, name in ((1, "s"), (2, "t"))), banks=(16, 4), after=first))
    assert made.read("s").tolist() == [1, 2] and made.read("t").tolist() == [0, 0]
    assert [bank.raw.size for bank in made.banks] == [16, 4]
    assert (made.banks[0].raw[:8] == 5).all() and not made.banks[0].marks[:8].any() and made.banks[0].marks[8:].all()
    assert made.banks[0].base != base and place(made, "s").base == kept


def test_a_resident_has_the_address_the_plan_gives_it():
    """Its bank's, and its offset into it; the bytes themselves stay where the caller has them."""
    data = np.ones(100, bfloat16)
    plan = planned(Resident("s", "state", (3,), BF16), Resident("w", "weight", (100,), BF16, data), Resident("t", "state", (1,), BF16))
    made = SimMemory(plan)
    first = place(made, "s").base
    for resident in plan.residents:
        assert place(made, resident.name).base - first == resident.spot.offset and resident.spot.bank == 0
    assert np.shares_memory(place(made, "w").raw, data)


def test_regions_do_not_overlap():
    made = memory(*(Resident(f"s{i}", "state", (100,), BF16) for i in range(3)), banks=(4096, 1))
    spaces = [*made.places, *made.banks, made.space(*unwritten(10))]
    spans = sorted((s.base, s.base + s.raw.size) for s in spaces)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))


def test_a_region_has_a_mark_per_number():
    """And every byte of a number that was written is marked so."""
    made = memory(banks=(16,))
    ref = BufferRef("arena", 0, 4, (4,), BF16)
    found = region("x", made.banks[0], ref)
    assert found.data.size == found.mask.size == 4 and found.base == made.banks[0].base + 4
    found.mask[1] = False
    spread(found, made.banks[0], ref)
    assert made.banks[0].marks.tolist() == [True] * 6 + [False] * 2 + [True] * 8


def test_a_block_format_is_bytes():
    packed = Q4_1.quantize(np.ones((2, 32), np.float32))
    made = memory(Resident("w", "weight", (2, 32), Q4_1, packed))
    found = region("w", place(made, "w"), BufferRef("resident", 0, 0, (2, 32), Q4_1))
    assert found.data.dtype == np.uint8 and found.data.size == packed.data.nbytes and found.mask is None
