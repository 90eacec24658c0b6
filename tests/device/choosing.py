"""Tests of a device: markers that choose them, options, and the fixtures that bind one. A plugin of pytest, for all of tests/.

    @pytest.mark.supported_devices("npu1", "npu2")
    def test_something(npu):
        compiled = npu.take(Something().compile(x=(64,), **npu.options))

Such a test is one for each family that it names, marked with it (`-m npu2`), and skips with what the backend's probe says where the
device is not here. `npu` is a `Target`. A fixture `npu1` or `npu2` asks for one of them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from iron_core.devices import using_device
from tests.device.figures import append
from tests.device.target import DEVICE, FAMILIES, Target, absent

_PASSED = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("devices", "tests of an NPU")
    group.addoption("--extensive", action="store_true", help="the cases beyond the default suite too, as `iron sim --extensive`")
    group.addoption("--csv-output", metavar="FILE", type=Path, help="append what is measured; `iron bench history FILE` draws it")
    group.addoption("--random-weights", metavar="SEED", type=int, help="the full Llama's weights are drawn, in place of a checkpoint's")
    group.addoption("--max-seq-len", metavar="N", type=int, help="tokens of the full Llama's context (default: 2048)")
    group.addoption("--cost-table", metavar="FILE", type=Path, help="what `iron tune` measured, by which Llamas are compiled")
    group.addoption("--npu-backend", metavar="NAME", default=DEVICE, help="what stands in for the device, as sim (default: npu)")


def pytest_sessionstart(session: pytest.Session) -> None:
    """A device that has to be here is, or nothing runs: thousands of skips would look like a success."""
    for family in set(FAMILIES) & set(os.environ.get("IRON_TESTS_REQUIRE", "").split(",")):
        why = absent(session.config.getoption("--npu-backend"), family)
        if why:
            raise pytest.UsageError(f"IRON_TESTS_REQUIRE names {family}: {why}")


# -- which tests there are, and which are chosen -------------------------------------------------------


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test for each family; those that a test's own parametrization gives are left."""
    mark = metafunc.definition.get_closest_marker("supported_devices")
    if mark is None:
        return
    wrong = [name for name in mark.args if name not in FAMILIES]
    if wrong or not mark.args:
        named = repr(wrong[0]) if wrong else "nothing"
        pytest.fail(f"{metafunc.definition.nodeid}: supported_devices names {named}; legal: {', '.join(FAMILIES)}.", pytrace=False)
    if "npu" not in metafunc.fixturenames:
        pytest.fail(f"{metafunc.definition.nodeid} is marked supported_devices; legal: with a parameter npu.", pytrace=False)
    if not any("npu" in _argnames(given) for given in metafunc.definition.iter_markers("parametrize")):
        metafunc.parametrize("npu", mark.args, indirect=True)


def _argnames(mark: pytest.Mark) -> list[str]:
    names = mark.args[0] if mark.args else mark.kwargs["argnames"]
    return [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)


@pytest.hookimpl(tryfirst=True)  # before `-m` looks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        params = getattr(getattr(item, "callspec", None), "params", {})
        asked = {params.get("npu"), *getattr(item, "fixturenames", ())} & set(FAMILIES)
        for family in asked:
            item.add_marker(getattr(pytest.mark, family))
    if config.getoption("--extensive") or re.search(r"\bextensive\b", config.getoption("markexpr")):
        return
    left = [item for item in items if item.get_closest_marker("extensive")]
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if not item.get_closest_marker("extensive")]


# -- the device ----------------------------------------------------------------------------------------


def _target(request: pytest.FixtureRequest, dev: str) -> Iterator[Target]:
    """A device while a test has it."""
    target = Target(dev, request.config.getoption("--npu-backend"))
    why = absent(target.backend, dev)
    if why:
        pytest.skip(why)
    try:
        with using_device(dev):
            yield target
    finally:
        target.release()
        suite = f"{target.backend}-{dev}"
        rows = [(suite, operator, case, target.backend, metric, value) for operator, case, metric, value in target.figures]
        request.node.user_properties += [("figure", row) for row in rows]


@pytest.fixture
def npu(request: pytest.FixtureRequest) -> Iterator[Target]:
    """The device of a test that is marked `supported_devices`, which is the current one. An error where a test that passed never took
    it: it may have run beside another, or nowhere."""
    for target in _target(request, request.param):
        yield target
        if request.node.stash.get(_PASSED, False) and not target.taken:
            pytest.fail("never took the device: npu.take(what was compiled) before it is called", pytrace=False)


@pytest.fixture
def npu1(request: pytest.FixtureRequest) -> Iterator[Target]:
    """A Phoenix or Hawk Point NPU."""
    yield from _target(request, "npu1")


@pytest.fixture
def npu2(request: pytest.FixtureRequest) -> Iterator[Target]:
    """A Strix or Krackan NPU."""
    yield from _target(request, "npu2")


# -- what was measured ---------------------------------------------------------------------------------


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report = yield
    if report.when == "call":
        item.stash[_PASSED] = report.passed
    return report


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption("--csv-output")
    if path is not None and "PYTEST_XDIST_WORKER" not in os.environ:
        config.pluginmanager.register(_Writer(path), "figures")


class _Writer:
    """Adds a test's figures to a file when it ends, so that whatever ends the session loses none."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        rows = [tuple(row) for name, row in report.user_properties if name == "figure"]
        if report.when == "teardown" and rows:
            append(self.path, rows)
