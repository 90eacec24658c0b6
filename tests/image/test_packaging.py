"""Packaging: which image a graph becomes on a device, and the sentences that say why."""

from __future__ import annotations

import pytest

import iron_core as iron
from iron_core.errors import CallError, UnknownName, UnsupportedError
from iron_core.graph.traced import PerCallValue
from iron_core.image.packaging import CONTEXTS, ELF, XCLBIN, decide, each_step
from iron_ops_aie import ElementwiseAdd

SCRATCHPAD = PerCallValue("n", "scratchpad", "int32")
CARRIED = PerCallValue("token", "carried", "int32")
DISPATCH = PerCallValue("size", "dispatch", "int32")


def test_npu2_takes_one_full_elf():
    """The default on npu2: the whole graph in one dispatch."""
    packaging = decide("npu2", [SCRATCHPAD])
    assert (packaging.image, packaging.dispatch) == ("elf", "fused")
    assert packaging.reasons


def test_npu1_takes_an_xclbin_chain():
    """npu1 has no parameter scratchpad, so every step is a dispatch of its own."""
    packaging = decide("npu1")
    assert (packaging.image, packaging.dispatch) == ("xclbin", "separate")
    assert "no parameter scratchpad" in packaging.reasons[0]


def test_each_step_forces_a_chain_on_npu2():
    """`boundaries=iron.each_step` builds npu1's form on npu2."""
    packaging = decide("npu2", boundaries=each_step)
    assert packaging.image == "xclbin"
    assert "each_step" in packaging.reasons[0]


def test_a_dispatch_time_value_forces_a_chain():
    """It regenerates the sequence, and the reason names the value."""
    packaging = decide("npu2", [SCRATCHPAD, DISPATCH])
    assert packaging.image == "xclbin"
    assert "`size`" in packaging.reasons[0]


def test_every_rule_that_decided_is_a_reason():
    """On npu1 with a DispatchTime value and each_step, all three say so, in the order of the rules."""
    reasons = decide("npu1_2col", [DISPATCH], boundaries=each_step).reasons
    assert ["DispatchTime" in reasons[0], "npu1_2col" in reasons[1], "each_step" in reasons[2]] == [True] * 3


@pytest.mark.parametrize("dev, kwargs", [("npu1", {}), ("npu2", dict(boundaries=each_step)), ("npu2", dict(values=[DISPATCH]))])
def test_asking_for_an_elf_against_a_rule_is_refused(dev, kwargs):
    """The message lists the rules that forbid it."""
    with pytest.raises(UnsupportedError, match="image='elf'") as caught:
        decide(dev, image=ELF, **kwargs)
    assert decide(dev, **kwargs).reasons[0] in str(caught.value)


def test_an_xclbin_that_fuses_steps_is_refused():
    """On npu2 an xclbin means one dispatch per step, and the message says how to ask for that."""
    with pytest.raises(UnsupportedError, match=r"boundaries=iron.each_step too, or image=iron.CONTEXTS"):
        decide("npu2", image=XCLBIN)
    assert decide("npu2", image=XCLBIN, boundaries=each_step).image == "xclbin"
    assert decide("npu1", image=XCLBIN).image == "xclbin"


def test_the_host_runs_a_list_of_native_calls():
    """No image is linked, and each_step, which is about dispatches, changes nothing and says so."""
    assert (decide("host").image, decide("host").dispatch) == ("host", "fused")
    stepped = decide("host", boundaries=each_step)
    assert stepped.dispatch == "fused" and "changes nothing" in stepped.reasons[1]
    with pytest.raises(UnsupportedError, match="host"):
        decide("host", image=ELF)


def test_what_does_not_exist_is_refused():
    """Unknown boundaries, images and devices each name what is legal."""
    with pytest.raises(CallError, match=r"iron.each_step"):
        decide("npu2", boundaries="every")
    with pytest.raises(CallError, match=r"iron.ELF, iron.XCLBIN and iron.CONTEXTS"):
        decide("npu2", image="pdi")
    with pytest.raises(UnknownName, match="Did you mean npu2"):
        decide("npu3")


@pytest.mark.parametrize("dev, word", [("npu2", "parameter scratchpad"), ("npu1", "dispatch-time scalar"), ("host", "run list")])
def test_each_value_says_how_it_reaches_the_device(dev, word):
    """A line per per-call value, by the image that was chosen."""
    lowered = dict(decide(dev, [SCRATCHPAD, CARRIED]).lowered_values)
    assert list(lowered) == ["n", "token"]
    assert word in lowered["n"]


@pytest.mark.parametrize("dev", ["npu1", "npu2", "npu2_4col"])
@pytest.mark.parametrize("boundaries", [None, each_step])
def test_contexts_are_asked_for(dev, boundaries):
    """An xclbin per array on any NPU, one dispatch per step, with what per-call values become there; a DispatchTime value too."""
    packaging = decide(dev, [SCRATCHPAD, DISPATCH], image=CONTEXTS, boundaries=boundaries)
    assert (packaging.image, packaging.dispatch) == ("contexts", "separate")
    (reason,) = packaging.reasons
    assert "one xclbin per array, each in a hardware context of its own" in reason and reason.endswith("holds 8.") == ("npu2" in dev)
    assert packaging.lowered_values == decide(dev, [SCRATCHPAD, DISPATCH], boundaries=each_step).lowered_values


@pytest.mark.parametrize("backend", ["host", "reference"])
@pytest.mark.parametrize("image", [ELF, XCLBIN, CONTEXTS])
def test_what_has_no_array_has_no_image_of_arrays(backend, image):
    """On the host device, whoever runs it."""

    class Add(iron.Graph):
        def body(self, x):
            return ElementwiseAdd(x, x)

    with pytest.raises(UnsupportedError, match=rf"image='{image}' on host: it is no NPU .* Leave image= out, or pass dev='npu2'"):
        Add().compile(backend=backend, dev="host", x=(16,), image=image)
