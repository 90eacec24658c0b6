"""A warm start on the host lowers nothing: run lists that the cache has kept, of exactly the same."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest

import iron_core as iron
from iron_core.cache.store import Cache, CacheWarning
from iron_core.compiled import kept_images, warm
from iron_core.declare.formats import Q8_0
from iron_core.declare.profile import Profile
from iron_core.declare.rounding import widen
from iron_host import backend
from iron_host.backend import HostBackend
from iron_ops_aie import GEMM, GEMV, Copy, ElementwiseAdd, SiLU

F32 = np.float32


class Negate(iron.UnaryElementwise):
    """An operator nobody wrote a kernel for."""

    def reference(self, x: Any) -> Any:
        return -widen(x)


class Layer(iron.Graph):
    """A product by a matrix of blocks, added to a state that counts calls; rows up to `n`; another product where a row is given."""

    def __init__(self, seed: int = 0, other: bool = False) -> None:
        rng = np.random.default_rng(seed)
        self.w = iron.weight(Q8_0.quantize(rng.standard_normal((64, 64)).astype(F32)))
        self.more = iron.weight(rng.standard_normal((64, 64)).astype(F32))
        self.total = iron.state((64,), F32)
        self.other = other

    def body(self, x: Any, row: Any = None, *, n: iron.Scratchpad[np.int32]) -> Any:
        y = SiLU(GEMM(x[:n], self.w, b_col_maj=True))
        if row is None:
            return y
        z = ElementwiseAdd(GEMV(self.more, row), self.total)
        Copy(z, self.total)
        return y, z


SHAPES: dict[str, Any] = dict(x=((8, 64), F32))
MORE: dict[str, Any] = dict(SHAPES, row=((64,), F32))
X = np.random.default_rng(1).standard_normal((8, 64)).astype(F32)


class Own:
    """Images of one test in the session's cache, whose kernels are there."""

    def __init__(self, key: str) -> None:
        self.key, self.cache = key, Cache("host")
        self._before = {*self._all()}

    def _all(self) -> list[Path]:
        return list(self.cache.folder.glob("*/image.pickle"))

    def images(self) -> list[Path]:
        return [path for path in self._all() if path not in self._before]

    def made(self, shapes: dict[str, Any] = SHAPES, seed: int = 0, **options: Any) -> Any:
        return Layer(seed).compile(cache_key=self.key, **{"backend": "host"} | options, **shapes)


@pytest.fixture
def own(tmp_path: Path) -> Own:
    return Own(str(tmp_path))


@pytest.fixture
def lowered(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the backend was asked for since: "supports" and "compile"."""
    asked = list[str]()
    for name in ("supports", "compile"):
        whole = getattr(HostBackend, name)
        monkeypatch.setattr(HostBackend, name, lambda *a, name=name, whole=whole, **k: asked.append(name) or whole(*a, **k))
    return asked


def test_a_warm_start_lowers_nothing(own: Own, lowered: list[str]) -> None:
    """The same bits, of whatever weights the graph holds; a version added later is kept too, and states are shared."""
    cold = own.made()
    cold.add(**MORE)
    assert lowered.count("compile") == 2
    lowered.clear()
    again = own.made()
    again.add(**MORE)
    assert lowered == []
    for n in (3, 8):
        assert np.array_equal(again(X, n=n), cold(X, n=n))
    for row in (X[0], X[1], X[2]):
        for a, b in zip(again(X, row, n=5), cold(X, row, n=5), strict=True):
            assert np.array_equal(a, b)
    lowered.clear()
    others, fresh = own.made(seed=4), Layer(4).compile(backend="host", **SHAPES)
    assert lowered.count("compile") == 1  # the one without a key
    assert np.array_equal(others(X, n=8), fresh(X, n=8)) and not np.array_equal(others(X, n=8), cold(X, n=8))


def test_versions_in_another_order_have_images_of_their_own(own: Own, lowered: list[str]) -> None:
    """Residents are numbered as they come: a run list says by number where weights are."""
    first = own.made()
    first.add(**MORE)
    lowered.clear()
    second = own.made(MORE)
    second.add(**SHAPES)
    assert lowered.count("compile") >= 1
    for a, b in zip(second(X, X[0], n=4), first(X, X[0], n=4), strict=True):
        assert np.array_equal(a, b)
    assert np.array_equal(second(X, n=4), first(X, n=4))


def test_what_an_image_follows_from_is_its_key(own: Own, lowered: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads, tiles, a profile: each is lowered once, and found again."""

    def counted(**options: Any) -> int:
        lowered.clear()
        own.made(**options)
        return lowered.count("compile")

    profile = Profile()
    profile.add(GEMM, **{"host.grain": 64})
    assert (counted(), counted()) == (1, 0)
    for options in (dict(backend=HostBackend(threads=3)), dict(backend=HostBackend(tiles=False)), dict(profile=profile)):
        assert (counted(**options), counted(**options)) == (1, 0), options
    for name, value in (("IRON_THREADS", "5"), ("IRON_TILES", "0")):
        monkeypatch.setenv(name, value)
        assert (counted(), counted()) == (1, 0), name
        monkeypatch.delenv(name)
    assert counted() == 0


def test_what_the_machine_has_is_in_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler and its flags, and what is tuned here, unless the backend takes up none of it; without a compiler nothing is kept."""
    monkeypatch.setenv("NPU_CACHE_HOME", str(tmp_path))
    tuned, untuned = HostBackend(), HostBackend(tuned=False)
    plain = tuned.follows()
    assert plain is not None and tuned.follows() == plain == untuned.follows()
    profile = Profile()
    profile.add(GEMM, **{"host.grain": 64})
    tuned.keep(profile)
    assert tuned.follows() != plain and untuned.follows() == plain
    monkeypatch.setenv("IRON_HOST_CXXFLAGS", "-DANOTHER")
    assert untuned.follows() not in (plain, None)
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert tuned.follows() is None


def test_sources_that_changed_are_lowered_anew(own: Own, lowered: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the lowerings' package, and of the model by its key."""
    own.made()
    lowered.clear()
    Layer().compile(cache_key=own.key + "another", backend="host", **SHAPES)
    assert lowered.count("compile") == 1
    known = warm.known_sources
    monkeypatch.setattr(warm, "known_sources", lambda name: known(name) if name != "iron_host" else "changed")
    lowered.clear()
    own.made()
    assert lowered.count("compile") == 1


def test_a_damaged_image_is_made_again(own: Own, lowered: list[str]) -> None:
    """With a warning, and the next start finds it."""
    want = own.made()(X, n=8)
    (kept,) = own.images()
    kept.chmod(0o644)
    content = bytearray(kept.read_bytes())
    content[len(content) // 2] ^= 1
    kept.write_bytes(content)
    lowered.clear()
    with pytest.warns(CacheWarning, match="building it again"):
        assert np.array_equal(own.made()(X, n=8), want)
    assert lowered.count("compile") == 1
    lowered.clear()
    assert np.array_equal(own.made()(X, n=8), want) and lowered == []


class Evil:
    def __init__(self, *given: Any) -> None:
        self.given = given

    def __reduce__(self) -> Any:
        return os.mkdir, self.given


@pytest.mark.parametrize("what", ["a call", "another class", "no pickle", "a step that there is not"])
def test_what_is_no_image_is_not_run(own: Own, lowered: list[str], tmp_path: Path, what: str) -> None:
    """An entry that says all is well and holds something else."""
    want = own.made()(X, n=8)
    (kept,) = own.images()
    other = {
        "a call": pickle.dumps(Evil(str(tmp_path / "made"))),
        "another class": pickle.dumps(3),
        "no pickle": b"hello",
        "a step that there is not": b"\x80\x05K\xffQ.",
    }[what]
    own.cache.keep(kept.parent.name, "image.pickle", other, replace=True)
    lowered.clear()
    assert np.array_equal(own.made()(X, n=8), want) and lowered.count("compile") == 1 and not (tmp_path / "made").exists()
    lowered.clear()
    own.made()
    assert lowered == []


class Called(iron.Graph):
    def body(self, x: Any) -> Any:
        return Negate(x)


def test_what_is_said_at_each_start_is_said(own: Own, lowered: list[str], monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """A step without a kernel is announced once a process: its image is not kept."""
    for _ in range(2):
        monkeypatch.setattr(backend, "_announced", set())
        lowered.clear()
        assert (Called().compile(cache_key=own.key, backend="host", x=((8,), F32))(np.ones(8, F32)) == -1).all()
        assert lowered.count("compile") == 1 and "Negate runs its numpy reference" in capsys.readouterr().err
    assert not own.images()


def test_another_packs_lowering_is_asked_each_time(own: Own, lowered: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """It may look at whatever it likes."""
    whole = kept_images.registry()

    class Foreign:
        def owners(self, group: str, name: str) -> Any:
            return [attrs.evolve(record, distribution="iron-acme") for record in whole.owners(group, name)]

    monkeypatch.setattr(kept_images, "registry", Foreign)
    for _ in range(2):
        lowered.clear()
        own.made()
        assert lowered.count("compile") == 1
