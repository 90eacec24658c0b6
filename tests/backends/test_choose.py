"""Choosing a backend: the argument, then IRON_BACKEND, then the first available of npu and host, with reasons."""

from __future__ import annotations

import numpy as np
import pytest

from iron_core.backends import choose
from iron_core.backends.null import NullBackend
from iron_core.backends.pricing import pricing_backend
from iron_core.backends.protocol import Available, Backend, Unavailable
from iron_core.backends.reference import ReferenceBackend
from iron_core.cli.listing import probed, says
from iron_core.errors import BackendUnavailable, UnknownName, UnsupportedError
from iron_core.plugins.record import Record
from iron_core.plugins.registry import Registry
from tests.fresh import modules_after


class Fake(NullBackend):
    """A backend that says what it is told to."""

    def __init__(self, name, preference=None, state=None, devices=("host",)):
        self.name, self.preference = name, preference
        self._state, self._devices = state or Available(f"{name} is here"), devices

    def probe(self):
        return self._state

    def devices(self):
        return self._devices


class Entry:
    """An entry point that gives a backend; an exception stands for a plugin that fails to load."""

    def __init__(self, found):
        self.found = found

    def load(self):
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


@pytest.fixture
def install(monkeypatch):
    """install(name=backend...): distributions iron-<name> that provide these and nothing else."""
    monkeypatch.delenv("IRON_BACKEND", raising=False)

    def install(**backends):
        records = [Record("backends", 1, n, f"iron_{n}.backend:It", f"iron-{n}", "1", Entry(b)) for n, b in backends.items()]
        installed = Registry(records)
        monkeypatch.setattr("iron_core.backends.choose.registry", lambda: installed)
        return backends

    return install


HOST = {"host": Fake("host", 10)}
NO_NPU = {"npu": Fake("npu", 0, Unavailable("no device node", "Load the driver."), ("npu2", "npu1"))}
NPU = {"npu": Fake("npu", 0, devices=("npu2", "npu1"))}


def test_the_argument_decides(install, monkeypatch):
    """A name or a backend object given wins over the environment, and the reason says so."""
    install(**HOST, **NPU)
    monkeypatch.setenv("IRON_BACKEND", "npu")
    choice = choose.choose("reference")
    assert isinstance(choice.backend, ReferenceBackend)
    assert choice.reasons[0] == "backend=reference was asked for."
    mine = Fake("mine")
    assert choose.choose(mine).backend is mine


def test_the_environment_comes_next(install, monkeypatch):
    """IRON_BACKEND names it for a whole process."""
    backends = install(**HOST, **NPU)
    monkeypatch.setenv("IRON_BACKEND", "host")
    choice = choose.choose()
    assert choice.backend is backends["host"]
    assert "IRON_BACKEND=host" in choice.reasons[0]


def test_npu_comes_before_host(install):
    """An NPU that is there is used; the device is its first."""
    choice = (install(**HOST, **NPU), choose.choose())[1]
    assert (choice.backend.name, choice.dev) == ("npu", "npu2")


def test_the_first_available_says_what_was_passed_over(install):
    """Without an NPU it is the host, and the reasons name why not the NPU."""
    choice = (install(**HOST, **NO_NPU), choose.choose())[1]
    assert choice.backend.name == "host"
    assert choice.reasons == ("host is the first available (host is here).", "npu: no device node.")


def test_a_plugin_that_fails_to_load_is_a_reason_not_an_end(install):
    """The next backend is taken."""
    choice = (install(**HOST, npu=OSError("no driver")), choose.choose())[1]
    assert choice.backend.name == "host"
    assert "failed to load: OSError: no driver" in choice.reasons[1]


def test_other_backends_are_a_last_resort(install):
    """One of a third party is taken only when neither npu nor host can run, and never one chosen only by name."""
    third, sim = Fake("gpu", 20), Fake("sim", None)
    assert (install(gpu=third, sim=sim, **HOST), choose.choose())[1].backend.name == "host"
    assert (install(gpu=third, sim=sim), choose.choose())[1].backend is third
    install(sim=sim)
    with pytest.raises(BackendUnavailable, match="backend='reference' runs anywhere"):
        choose.choose()


def test_a_third_partys_npu_is_a_last_resort_too(monkeypatch):
    """The order is of our backends: another's of such a name, whatever it prefers, takes nothing from the host."""
    monkeypatch.delenv("IRON_BACKEND", raising=False)
    ours = Record("backends", 1, "host", "iron_host.backend:It", "iron-host", "1", Entry(HOST["host"]))
    theirs = Record("backends", 1, "npu", "fast.npu:It", "fast-npu", "1", Entry(Fake("npu", -1)))
    installed = Registry([ours, theirs])
    monkeypatch.setattr("iron_core.backends.choose.registry", lambda: installed)
    assert choose.choose().backend.name == "host"
    assert choose.choose("npu").backend.name == "npu"


def test_a_backend_that_cannot_run_here_is_refused_by_name(install):
    """The reason and the fix are its probe's."""
    install(**NO_NPU)
    with pytest.raises(BackendUnavailable, match=r"npu cannot run here: no device node\. Load the driver\."):
        choose.choose("npu")


@pytest.mark.parametrize(("reason", "said"), [("nothing in ../lib", "nothing in ../lib."), ("not yet.", "not yet.")])
def test_a_reason_is_told_as_it_was_given(install, reason, said):
    """With one full stop at its end, whoever set it."""
    install(**HOST, npu=Fake("npu", 0, Unavailable(reason), ("npu2",)))
    with pytest.raises(BackendUnavailable) as caught:
        choose.choose("npu")
    assert str(caught.value) == f"backend npu cannot run here: {said}"
    assert choose.choose().reasons[1] == f"npu: {said}"
    assert next(says(facts) for facts in probed() if facts["name"] == "npu") == said


def test_an_unknown_name_lists_what_there_is(install):
    """With the nearest name first."""
    install(**HOST)
    with pytest.raises(UnknownName, match=r"backend='hots'.*Did you mean host\? Known: host, reference, null"):
        choose.choose("hots")


def test_a_device_narrows_the_choice(install):
    """dev= alone finds a backend that takes it; with a backend that does not, both are named."""
    install(**HOST, **NPU)
    assert choose.choose(dev="npu1").backend.name == "npu"
    assert choose.choose("reference", "npu2_4col").dev == "npu2_4col"
    with pytest.raises(UnsupportedError, match="dev='npu2': backend host takes host"):
        choose.choose("host", "npu2")
    with pytest.raises(UnknownName, match="no such device"):
        choose.choose("host", "npu9")


def test_no_backend_for_a_device_says_why_each_was_passed_over(install):
    """Nothing here drives an NPU: the message names each backend's reason."""
    install(**HOST, **NO_NPU)
    with pytest.raises(BackendUnavailable, match=r"for dev=npu2.*npu: no device node.*host: does not take dev=npu2"):
        choose.choose(dev="npu2")


@pytest.mark.parametrize("backend", [ReferenceBackend(), NullBackend()], ids=lambda b: b.name)
def test_the_built_in_ones_keep_the_protocol(backend):
    """They are available anywhere, take any device, and are chosen only by name."""
    assert isinstance(backend, Backend)
    assert isinstance(backend.probe(), Available)
    assert {"host", "npu1", "npu2"} <= set(backend.devices())
    assert backend.preference is None


def test_null_hands_out_no_data():
    """It plans; asked for numbers it says what to use instead."""
    import iron_core as iron
    from iron_ops_aie import SiLU

    class One(iron.Graph):
        def __init__(self):
            self.seen = iron.state((4,))

        def body(self, x):
            return SiLU(x)

    compiled = One().compile(x=(4,), backend="null", dev="npu2")
    with pytest.raises(UnsupportedError, match="backend='reference' or 'host'"):
        compiled(np.zeros(4, iron.bfloat16))


def test_prices_are_asked_of_the_simulator_first():
    """Where it knows the device no other backend is loaded for it; a device that nobody prices has none."""
    pytest.importorskip("iron_sim")
    code = "from iron_core.backends.pricing import pricing_backend; assert pricing_backend('npu1').name == 'sim'"
    assert not {"iron_host.backend", "iron_npu.backend", "iron_sim.machine"} & modules_after(code)[code]
    assert pricing_backend("npu2") is choose.get("sim") and pricing_backend("host") is None
