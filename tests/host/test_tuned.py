"""Tuned values of this machine: kept in the cache, taken up by what is compiled from then on, said by `explain()`."""

from __future__ import annotations

import json

import numpy as np
import pytest

import iron_core as iron
from iron_core import OperatorImage, Profile
from iron_core.cache.keys import digest
from iron_core.compiled.explain import explain
from iron_core.devices import device
from iron_core.errors import CallError
from iron_host import tuned
from iron_host.backend import HostBackend
from iron_ops_aie import GEMV, RMSNorm, Softmax

HOST = device("host")
NORM = RMSNorm(rows=64, cols=512)


@pytest.fixture(autouse=True)
def key(monkeypatch, tmp_path):
    """A key of this test's own, so that what it keeps is nobody else's."""
    real = tuned.key
    monkeypatch.setattr(tuned, "key", lambda threads: digest(str(tmp_path), real(threads)))


def profile(cls=RMSNorm, **entry):
    found = Profile()
    found.add(cls, **entry)
    return found


def threads(op=NORM, backend=None):
    """How many threads the compiled step takes."""
    return OperatorImage(op, backend=backend or HostBackend(threads=2)).image.steps[0].threads


def test_what_is_kept_is_compiled_from_then_on():
    """In the entry of the operator that matches; explain() says so, by the tunables' names."""
    backend = HostBackend(threads=2)
    assert threads() == 4
    where = backend.keep(profile(rows=64, cols=512, **{"host.grain": 1 << 30}), HOST)
    assert (threads(), threads(RMSNorm(rows=32, cols=512))) == (1, 2)
    assert where.name == "host.json" and json.loads(where.read_text())["platform"]["name"] == backend.platform(HOST).name
    assert f"kernel rms_norm, tuned: grain={1 << 30}" in explain(OperatorImage(NORM, backend=backend)._program)


def test_a_backend_may_leave_it_aside():
    """As a benchmark does that compares the two."""
    HostBackend(threads=2).keep(profile(rows=64, **{"host.grain": 1 << 30}), HOST)
    assert (threads(), threads(backend=HostBackend(threads=2, tuned=False))) == (1, 4)
    with pytest.raises(CallError, match=r"tuned='no'; legal: True or False"):
        HostBackend(tuned="no")


def test_another_number_of_threads_is_another_machine():
    """What two threads gain by says nothing of one."""
    backend = HostBackend(threads=2)
    backend.keep(profile(rows=64, **{"host.grain": 1 << 30}), HOST)
    assert (threads(), threads(backend=HostBackend(threads=3))) == (1, 4)
    assert HostBackend(threads=3).kept(HOST).lines() == []


def test_entries_go_over_those_that_match_the_same():
    """Tunable by tunable; other entries stay as they are."""
    backend = HostBackend(threads=2)
    backend.keep(profile(rows=64, **{"host.grain": 4096}), HOST)
    backend.keep(profile(cls=GEMV, M=8, **{"host.grain": 9}), HOST)
    backend.keep(profile(rows=64, **{"host.grain": 8192, "host.other": 2}), HOST)
    assert backend.kept(HOST).lines() == [
        '{"operator": "RMSNorm", "rows": 64, "host.grain": 8192, "host.other": 2}',
        '{"operator": "GEMV", "M": 8, "host.grain": 9}',
    ]


def test_an_active_profile_goes_over_what_is_kept():
    """A model's own, or one that a user loads."""
    HostBackend(threads=2).keep(profile(rows=64, **{"host.grain": 1 << 30}), HOST)
    with profile(rows=64, **{"host.grain": 16384}):
        assert threads() == 2
    with profile(rows=64, **{"host.tile": 1}), pytest.raises(CallError, match=r"sets tile, which this lowering does not have"):
        threads()


class Weighed(iron.Graph):
    def body(self, x):
        return Softmax(x)


def test_a_graphs_profile_reaches_its_lowerings():
    """That of `compile(profile=)`, while its versions are compiled."""
    given = profile(cls=Softmax, **{"host.grain": 1 << 30})
    backend = HostBackend(threads=2)
    for one, want in ((given, 1), (None, 16)):
        (version,) = Weighed().compile(backend=backend, profile=one, x=((64, 1024), np.float32)).versions.values()
        assert version.image.steps[0].threads == want


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"entries": 3, "platform": {"name": "x"}}', None], ids=str)
def test_a_damaged_file_is_left_aside_with_a_line(content, capsys):
    """Whatever is in it, nothing runs otherwise than untuned, and what is kept next stands alone."""
    backend = HostBackend(threads=2)
    where = backend.keep(profile(rows=64, **{"host.grain": 1 << 30}), HOST)
    if content is None:  # as long as it was
        content = where.read_bytes().replace(b"2 threads", b"9 threads")
    where.write_bytes(content)
    assert threads() == 4
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "host.json" in line]
    assert line.startswith("iron: host: host.json of the cache: the file is left aside: ")
    with pytest.warns(match="host.json has another (size|content)"):
        backend.keep(profile(rows=32, **{"host.grain": 7}), HOST)
    assert len(backend.kept(HOST)) == 1


def test_a_file_of_another_machine_is_left_aside(monkeypatch, capsys):
    """Even where it stands under this one's key."""
    backend = HostBackend(threads=2)
    here = tuned.platform(2)
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(tuned, "platform", lambda threads: type(here)("a Z80, 2 threads", "unknown"))
        backend.keep(profile(rows=64, **{"host.grain": 1 << 30}), HOST)
    assert threads() == 4
    assert f"it is of a Z80, 2 threads, and this is {here.name}" in capsys.readouterr().err


def test_an_entry_that_fits_no_more_is_left_aside(capsys):
    """Of a tunable or a field that is gone; the others are used."""
    backend = HostBackend(threads=2)
    kept = profile(rows=64, **{"host.tile": 3})
    kept.add(RMSNorm, rows=32, **{"host.grain": 1 << 30})
    where = backend.keep(kept, HOST)
    assert (threads(), threads(RMSNorm(rows=32, cols=512))) == (4, 1)
    assert "an entry of RMSNorm is left aside: host.iron_ops_aie.RMSNorm: the profile sets tile" in capsys.readouterr().err
    assert where.is_file()


def test_entries_that_contradict_each_other_are_left_aside(capsys):
    """Two that match one operator equally, as ones tuned for other fields may: it runs as if nothing was kept, and that is said once."""
    backend = HostBackend(threads=2)
    kept = profile(rows=64, **{"host.grain": 1 << 30})
    kept.add(RMSNorm, cols=512, **{"host.grain": 1 << 20})
    backend.keep(kept, HOST)
    assert (threads(), threads(), threads(RMSNorm(rows=64, cols=256))) == (4, 4, 1)
    assert capsys.readouterr().err.count("an entry of RMSNorm is left aside: Profile is ambiguous") == 1


def test_only_what_the_host_takes_is_kept():
    """An array's tunables are no business of a CPU."""
    with pytest.raises(CallError, match=r"an entry for GEMV gives num_channels; legal: host\.<tunable>"):
        HostBackend().keep(profile(cls=GEMV, M=8, num_channels=2), HOST)
