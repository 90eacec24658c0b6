"""A whole language model on a simulated device: a prompt's version and a decode step's over one arena, and what is said is what the
simulator says."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest

from iron_npu.backend import NpuBackend

if find_spec("iron_llama") is None or find_spec("iron_sim") is None:
    pytest.skip("iron-llama, or iron-sim, which is the device here, is not installed", allow_module_level=True)

from iron_core.devices import device as named
from iron_llama.model import Llama
from iron_lm.generation.session import Session
from iron_lm.tunables import profile_of
from tests.lm.arrays.small_llama import loaded

PROMPT = [int(i) for i in np.random.default_rng(4).integers(0, 512, 9)]


@pytest.mark.slow
@pytest.mark.parametrize(("dev", "name"), [("npu2", "NPU Strix"), ("npu1", "NPU Phoenix")])
def test_a_model_says_what_it_says_on_the_simulator(device, builder, dev, name):
    """On npu2 one ELF in one context, a dispatch a token; on npu1 a chain, in lists where the host has nothing to do between."""
    xrt = device(name=name)
    with profile_of(Llama, named(dev)):
        both = NpuBackend(lists=dev == "npu1"), "sim"
        npu, sim = (Session(loaded((4, 1), 128).model(), backend=backend, dev=dev, fold=True) for backend in both)
        assert npu.logits(PROMPT).tobytes() == sim.logits(PROMPT).tobytes()
        calls = xrt.starts
        assert npu.generate(PROMPT, 3) == sim.generate(PROMPT, 3)
    assert (builder.builds, xrt.made) == (1, 1)
    assert xrt.starts - calls <= 4 if dev == "npu2" else xrt.handed > 0
