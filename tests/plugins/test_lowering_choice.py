"""Where two packs lower one operator the user says which: by `lowerings=`, `IRON_LOWERINGS` or a profile; the rest is the owner's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import iron_core as iron
from iron_core import OperatorImage, Profile
from iron_core.declare.formats import as_format
from iron_core.devices import device
from iron_core.errors import CallError, PluginError, UsageError
from iron_core.plugins.registry import registry
from iron_host.backend import HostBackend
from iron_ops_aie import GEMV
from tests.layouts import TABLE

F32 = np.float32
NAME = "host.iron_ops_aie.GEMV"

#: A product of float32 of a pack's own, and of rows in whole 32s alone; one of the pack's own format; a row's reader of that.
KERNELS = """
#pragma once
#include "common.h"

namespace acme {
using namespace iron;

inline void gemv(const Gemv& g, int32_t tid, int32_t nt) {
  Share s = share(g.valid, tid, nt);
  for (int64_t r = s.begin; r < s.end; r++) {
    float sum = 0;
    for (int64_t i = 0; i < g.K; i++) sum += g.A[r * g.K + i] * g.B[i];
    g.C[r] = sum;
  }
}

inline void table(const Table& g, int32_t tid, int32_t nt) {
  static const float numbers[4] = {-1.0f, -0.25f, 0.25f, 1.0f};
  Share s = share(g.valid, tid, nt);
  for (int64_t r = s.begin; r < s.end; r++) {
    float sum = 0;
    for (int64_t i = 0; i < g.K; i++) sum += numbers[g.A[(r * g.K + i) / 4] >> 2 * (i % 4) & 3] * g.B[i];
    g.C[r] = sum;
  }
}

}  // namespace acme
"""
LOWERINGS = """
from pathlib import Path
from iron_core import Auto, No
from iron_host.lowering import FormatLowering, Header, Slots, TemplateLowering, View, takes

PLAIN = Slots("acme::Gemv", pointers={"A": "const float", "B": "const float", "C": "float"}, ints=("valid", "K"))
PACKED = Slots("acme::Table", pointers={"A": "const uint8_t", "B": "const float", "C": "float"}, ints=("valid", "K"))
HEADER = Header(Path(__file__).with_name("acme_kernels.h"), (PLAIN, PACKED))

class Plain(TemplateLowering):
    operator, header, template, slots, dtypes = "iron_ops_aie.GEMV", HEADER, "acme::gemv", PLAIN, ()
    width = Auto(1)
    def supports(self, op, dev):
        if op.K % 32:
            return No(f"K={op.K}: rows are whole 32s")
        return takes(op, "acme_gemv", T=("float32",), W=("float32",), O=("float32",))
    def step(self, op, operands, bindings, tunables):
        return No("M=7 has no kernel") if op.M == 7 else super().step(op, operands, bindings, tunables)

class Packed(TemplateLowering):
    operator, header, template, slots, dtypes = "iron_ops_aie.GEMV", HEADER, "acme::table", PACKED, ()
    def supports(self, op, dev):
        return takes(op, "acme_table", T=("float32",), W=("acme.table",), O=("float32",))

class Rows(FormatLowering):
    def view(self, format):
        return View("acme::Rows", Header(Path(__file__).with_name("acme_rows.h")))

class Broken(Plain):
    def supports(self, op, dev): return 1 / 0

class BrokenStep(Plain):
    def step(self, *given): return 1 / 0
"""
ROWS = """
#pragma once
#include "packed.h"
namespace acme {
struct Rows {
  static inline int64_t bytes(int64_t M, int64_t K) { return M * K / 4; }
  static inline void row(const uint8_t* w, int64_t M, int64_t K, int64_t m, float* y) {
    static const float numbers[4] = {-1.0f, -0.25f, 0.25f, 1.0f};
    for (int64_t k = 0; k < K; k++) y[k] = numbers[w[(m * K + k) / 4] >> 2 * (k % 4) & 3];
  }
};
}
"""
OPERATOR = "from iron_core import UnaryElementwise\nclass Twice(UnaryElementwise):\n    def reference(self, x): return x + x\n"
DEFAULT = f"{NAME}: iron-host 2.0.0, by default"


def pack(site: Any, name: str, lowerings: dict[str, str], **entries: Any) -> None:
    """A distribution with these lowerings of the module above, under a module of its own."""
    module = name.replace("-", "_")
    named = {key: f"{module}:{value}" for key, value in lowerings.items()}
    files = {f"{module}.py": LOWERINGS, "acme_kernels.h": KERNELS, "acme_rows.h": ROWS}
    site.add(name, entries={"iron.lowerings.v1": named, **entries}, modules=files)
    registry.cache_clear()


@pytest.fixture
def acme(site):
    """A pack that lowers Iron's own GEMV."""
    pack(site, "iron-acme", {NAME: "Plain"})
    return site


def ran(image: Any) -> set[str]:
    """The kernels of an image, "" for a call-back."""
    return {"" if step.unit is None else step.unit.template.partition("<")[0] for step in image.steps}


def lowered(M: int = 8, K: int = 64, T: Any = F32, **options: Any) -> tuple[set[str], str]:
    """What runs one GEMV, and how `explain()` says so; its result is the reference's."""
    op = GEMV(M=M, K=K, T=T)
    made = OperatorImage(op, backend="host", **options)
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((M, K)).astype(op.T), rng.standard_normal(K).astype(op.T)
    got = made(a, b)
    assert np.allclose(got.astype(F32), a.astype(F32) @ b.astype(F32), rtol=1e-2, atol=1e-2)
    return ran(made.image), made.explain()


def test_unless_told_the_owner_lowers_it_and_the_offer_is_named(acme):
    """A pack that is installed changes nothing by itself."""
    kernels, said = lowered()
    assert kernels == {"matmul"} and f"{DEFAULT}; iron-acme 1.0 offers one too (1 step)" in said


def test_nothing_is_said_where_there_is_no_choice():
    """Every other operator, and GEMV without such a pack."""
    assert "lowering" not in lowered()[1]


@pytest.mark.parametrize("name", ("host.GEMV", NAME))
def test_the_environment_chooses(acme, monkeypatch, name):
    """By the operator's name, as its entry point has it, or by the lowering's own."""
    monkeypatch.setenv("IRON_LOWERINGS", f" {name} = iron-acme ,")
    kernels, said = lowered()
    assert kernels == {"acme::gemv"} and f"{NAME}: iron-acme 1.0, by IRON_LOWERINGS (1 step)" in said


def test_the_argument_goes_over_the_environment_and_that_over_the_profile(acme, monkeypatch):
    """Each says in `explain()` that it was the one."""
    profile = Profile()
    profile.add(GEMV, M=8, **{"host.lowering": "iron-acme"})
    with profile:
        kernels, said = lowered()
        assert kernels == {"acme::gemv"} and "iron-acme 1.0, by the profile" in said
        assert lowered(M=16)[0] == {"matmul"}, "an entry chooses for the shapes that it matches"
        monkeypatch.setenv("IRON_LOWERINGS", "host.GEMV=iron-host")
        kernels, said = lowered()
        assert kernels == {"matmul"} and "iron-host 2.0.0, by IRON_LOWERINGS" in said
        kernels, said = lowered(lowerings={"host.GEMV": "iron-acme"})
        assert kernels == {"acme::gemv"} and "iron-acme 1.0, by lowerings=" in said
    monkeypatch.setenv("IRON_LOWERINGS", "host.GEMV=iron-acme")
    assert lowered()[0] == {"acme::gemv"} and lowered(lowerings={"host.GEMV": "iron-host"})[0] == {"matmul"}


def test_what_was_chosen_may_take_some_and_leave_the_rest(acme):
    """`supports()` says which; those it leaves are the owner's, with the rule, in one graph with those it takes."""
    rng = np.random.default_rng(0)

    class Two(iron.Graph):
        def __init__(self) -> None:
            self.a, self.b = (iron.weight(rng.standard_normal(shape).astype(F32)) for shape in ((64, 24), (32, 64)))

        def body(self, x):
            return GEMV(self.b, GEMV(self.a, x))

    two = Two()
    compiled = two.compile(backend="host", x=((24,), F32), lowerings={"host.GEMV": "iron-acme"})
    assert ran(compiled.versions[next(iter(compiled.versions))].image) == {"matmul", "acme::gemv"}
    said = compiled.explain()
    assert f"{NAME}: iron-acme 1.0, by lowerings= (1 step)" in said
    assert f"{DEFAULT}; iron-acme 1.0, by lowerings=, does not take it: K=24: rows are whole 32s (1 step)" in said
    x = rng.standard_normal(24).astype(F32)
    assert np.allclose(compiled(x), two.reference(x), atol=1e-4)


def test_a_step_that_it_has_no_kernel_for_is_the_owners_too(acme):
    """Said at the step: `supports()` had taken its operator."""
    kernels, said = lowered(M=7, lowerings={"host.GEMV": "iron-acme"})
    assert kernels == {"matmul"} and "kernel matmul of iron-host 2.0.0; iron-acme 1.0 has none: M=7 has no kernel" in said


@pytest.mark.parametrize(
    ("name", "distribution", "says"),
    [
        ("host.GEVM", "iron-acme", r"nobody lowers host\.GEVM\. Did you mean host\.GEMV\? Legal: <backend>\.<operator>, as in host\.GEMV"),
        ("GEMV", "iron-acme", r"nobody lowers GEMV\."),
        ("hots.GEMV", "iron-acme", r"nobody lowers hots\.GEMV\. Did you mean host\.GEMV\?"),
        ("host.GEMV", "iron-acm", r"iron-acm has no lowering host\.iron_ops_aie\.GEMV\. Legal: iron-acme, iron-host\."),
        ("host.SiLU", "iron-acme", r"iron-acme has no lowering host\.iron_ops_aie\.SiLU\. Legal: iron-host\."),
    ],
)
def test_a_wrong_name_is_refused_with_what_would_be_legal(acme, monkeypatch, name, distribution, says):
    """In the argument and in the environment, before anything is planned; a profile's when it is met."""
    with pytest.raises(CallError, match=rf"lowerings=\{{'{name}': '{distribution}'\}}: {says}"):
        lowered(lowerings={name: distribution})
    monkeypatch.setenv("IRON_LOWERINGS", f"{name}={distribution}")
    with pytest.raises(UsageError, match=rf"IRON_LOWERINGS={name}={distribution}: {says}"):
        lowered()


def test_a_profiles_wrong_name_is_refused(acme):
    """With the operator it is an entry of."""
    profile = Profile()
    profile.add(GEMV, **{"host.lowering": "iron-acm"})
    with profile, pytest.raises(CallError, match=r"the profile's host\.lowering='iron-acm' for GEMV: iron-acm has no lowering"):
        lowered()
    with pytest.raises(CallError, match=r"an entry for GEMV gives host\.lowering=3; legal: a distribution's name"):
        profile.add(GEMV, **{"host.lowering": 3})


def test_what_is_no_choice_is_refused(acme, monkeypatch):
    """And two choices for one."""
    with pytest.raises(CallError, match=r"lowerings='host.GEMV=iron-acme'; legal: a dict, as in \{'host.GEMV': 'iron-acme'\}"):
        lowered(lowerings="host.GEMV=iron-acme")
    for text, says in (
        ("host.GEMV", r"'host\.GEMV' is no choice\. Legal: NAME=DISTRIBUTION"),
        (f"host.GEMV=iron-acme,{NAME}=iron-host", r"iron-acme was chosen for host\.iron_ops_aie\.GEMV too\. Legal: one of the two"),
    ):
        monkeypatch.setenv("IRON_LOWERINGS", text)
        with pytest.raises(UsageError, match=says):
            lowered()


def test_a_hidden_pack_cannot_be_chosen(acme, monkeypatch):
    """`IRON_PLUGINS` goes over it."""
    monkeypatch.setenv("IRON_PLUGINS", "-iron-acme")
    registry.cache_clear()
    with pytest.raises(PluginError, match=r"iron-acme 1\.0, which is denied: hidden by IRON_PLUGINS=-iron-acme"):
        lowered(lowerings={"host.GEMV": "iron-acme"})


@pytest.mark.parametrize("broken", ("Broken", "BrokenStep", "Missing"))
def test_one_that_was_chosen_and_fails_is_an_error(site, broken):
    """Nobody is given another kernel than was asked for because that one crashes. Unasked, it changes nothing."""
    pack(site, "iron-acme", {NAME: broken})
    assert lowered()[0] == {"matmul"}
    with pytest.raises(PluginError, match=r"iron-acme"):
        lowered(lowerings={"host.GEMV": "iron-acme"})


def test_a_profiles_tunables_are_for_the_lowering_that_it_means(acme):
    """Another one, chosen over it, is given none of them."""
    profile = Profile()
    profile.add(GEMV, **{"host.lowering": "iron-acme", "host.width": 2})
    with profile:
        assert lowered()[0] == {"acme::gemv"}
        assert lowered(K=24)[0] == {"matmul"}
        assert lowered(lowerings={"host.GEMV": "iron-host"})[0] == {"matmul"}
    ours = Profile()
    ours.add(GEMV, **{"host.ahead": 512})
    with ours:
        assert lowered(lowerings={"host.GEMV": "iron-acme"})[0] == {"acme::gemv"}


def test_of_two_third_parties_neither_lowers_until_one_is_chosen(site):
    """The advice of the message is what chooses."""
    site.add("iron-ops", entries={"iron.operators.v1": {"ops.Twice": "some_ops:Twice"}}, modules={"some_ops.py": OPERATOR})
    unary = "from iron_host.lowering import Unary\nclass Two(Unary):\n    header, operation = 'elementwise.h', 'op::SiLU'\n"
    for name in ("one", "two"):
        site.add(f"iron-{name}", entries={"iron.lowerings.v1": {"host.some_ops.Twice": f"{name}:Two"}}, modules={f"{name}.py": unary})
    registry.cache_clear()
    Twice = registry().load("operators", "ops.Twice")
    said = OperatorImage(Twice(size=8), backend="host").explain()
    advice = "`IRON_LOWERINGS=host.some_ops.Twice=iron-one` or `IRON_LOWERINGS=host.some_ops.Twice=iron-two`"
    assert f"is provided by iron-one 1.0 and by iron-two 1.0. Say which: {advice}" in said
    made = OperatorImage(Twice(size=8), backend="host", lowerings={"host.ops.Twice": "iron-two"})
    assert made.image.steps[0].unit is not None and "iron-two 1.0, by lowerings=" in made.explain()


def test_a_packs_kernel_takes_the_packs_own_format(site):
    """Without being chosen: the format is its own. Everything else of GEMV stays whose it is."""
    formats = {"iron.formats.v1": {"acme.table": "acme_formats:TABLE"}}
    pack(site, "iron-acme", {NAME: "Packed"}, **formats)
    (site.folder / "acme_formats.py").write_text(TABLE)
    w = as_format("acme.table").quantize(np.random.default_rng(0).standard_normal((24, 64)).astype(F32))
    x = np.random.default_rng(1).standard_normal(64).astype(F32)

    class Product(iron.Graph):
        def __init__(self):
            self.w = iron.weight(w)

        def body(self, x):
            return GEMV(self.w, x)

    graph = Product()
    compiled = graph.compile(backend=HostBackend(strict=True), x=((64,), F32))
    assert np.allclose(compiled(x), x @ w.dequantize().T, rtol=1e-5, atol=1e-4)
    assert ran(next(iter(compiled.versions.values())).image) == {"acme::table"}
    assert f"{NAME}: iron-acme 1.0, by its format acme.table (1 step)" in compiled.explain()
    assert lowered()[0] == {"matmul"}
    other = graph.compile(backend=HostBackend(), x=((64,), F32), lowerings={"host.GEMV": "iron-host"})
    assert "iron-host 2.0.0, by lowerings=, does not take it" in other.explain(), "the chosen one is asked first"


def test_how_a_format_is_read_is_chosen_alike(site):
    """Two packs say how the CPU reads rows of a third one's format."""
    site.add("iron-table", entries={"iron.formats.v1": {"acme.table": "acme_formats:TABLE"}}, modules={"acme_formats.py": TABLE})
    for name in ("iron-one", "iron-two"):
        pack(site, name, {"host.acme.table": "Rows"})
    op = GEMV(M=8, K=32, T=F32, W="acme.table", O=F32)
    made = OperatorImage(op, backend="host")
    assert ran(made.image) == {""}, "neither, until one is chosen"
    made = OperatorImage(op, backend="host", lowerings={"host.acme.table": "iron-two"})
    w = as_format("acme.table").quantize(np.random.default_rng(0).standard_normal((8, 32)).astype(F32))
    x = np.random.default_rng(1).standard_normal(32).astype(F32)
    assert np.allclose(made(w, x), w.dequantize() @ x, atol=1e-4)
    assert ran(made.image) == {"packed_product"} and "host.acme.table: iron-two, by lowerings=" in made.explain()


class Held(iron.Graph):
    def __init__(self) -> None:
        self.w = iron.weight(np.eye(32, dtype=F32) * 3)

    def body(self, x: Any) -> Any:
        return GEMV(self.w, x)


@pytest.fixture
def start(monkeypatch, tmp_path):
    """`start(**options)`: the kernels of a graph of this test's own at another start, whether it was traced, whether its image was
    compiled."""
    happened: list[str] = []
    trace, compile = iron.Graph.trace, HostBackend.compile
    monkeypatch.setattr(iron.Graph, "trace", lambda self, **shapes: happened.append("trace") or trace(self, **shapes))
    monkeypatch.setattr(HostBackend, "compile", lambda self, *given: happened.append("compile") or compile(self, *given))

    def start(**options: Any) -> tuple[set[str], list[str]]:
        happened.clear()
        compiled = Held().compile(x=((32,), F32), backend=HostBackend(), cache_key=str(tmp_path), **options)
        assert compiled(np.ones(32, F32)).tolist() == [3.0] * 32
        return ran(next(iter(compiled.versions.values())).image), list(happened)

    return start


def test_another_choice_never_reuses_what_was_kept(acme, start, monkeypatch):
    """Versions and images are kept under the choice, however it was made; what is kept is found again under the same one."""
    ours, theirs = {"matmul"}, {"acme::gemv"}
    assert start() == (ours, ["trace", "compile"])
    assert start(lowerings={"host.GEMV": "iron-acme"}) == (theirs, ["trace", "compile"])
    assert start() == (ours, []), "its image was kept, and is still its own"
    assert start(lowerings={"host.GEMV": "iron-acme"}) == (theirs, ["compile"]), "no image of a third party's lowering is kept"
    monkeypatch.setenv("IRON_LOWERINGS", "host.GEMV=iron-acme")
    assert start() == (theirs, ["compile"])
    monkeypatch.delenv("IRON_LOWERINGS")
    profile = Profile()
    profile.add(GEMV, **{"host.lowering": "iron-acme"})
    with profile:
        assert start() == (theirs, ["trace", "compile"])
        assert start() == (theirs, ["compile"])
    assert start() == (ours, [])


def test_a_plan_kept_under_a_choice_is_of_that_packs_sources(acme, start):
    """Another version of its module is traced anew."""
    chosen = {"host.GEMV": "iron-acme"}
    assert [start(lowerings=chosen)[1] for _ in range(2)] == [["trace", "compile"], ["compile"]]
    module = acme.folder / "iron_acme.py"
    module.write_text(module.read_text() + "# changed\n")
    assert [start(lowerings=chosen)[1] for _ in range(2)] == [["trace", "compile"], ["compile"]]


def test_another_choice_is_another_compiled_graph(acme, monkeypatch):
    """With states of its own, as another backend is; the same one, however it was said, adds to the same."""
    graph, shape = Held(), ((32,), F32)
    plain = graph.compile(x=shape, backend="host")
    theirs = graph.compile(x=shape, backend="host", lowerings={"host.GEMV": "iron-acme"})
    assert theirs is not plain and ran(next(iter(theirs.versions.values())).image) == {"acme::gemv"}
    assert graph.compile(x=shape, backend="host", lowerings={NAME: "iron-acme"}) is theirs
    monkeypatch.setenv("IRON_LOWERINGS", "host.GEMV=iron-acme")
    assert graph.compile(x=shape, backend="host") is theirs
    monkeypatch.delenv("IRON_LOWERINGS")
    assert graph.compile(x=shape, backend="host") is plain


def test_what_is_tuned_of_a_chosen_lowering_is_kept_for_it_alone(acme, monkeypatch, tmp_path):
    """A figure and a setting of the one are none of the other's, though operator and tunables are the same."""
    from iron_core.cache.keys import digest
    from iron_host import tuned
    from iron_tuner import profiles
    from iron_tuner.settings import Settings

    real = tuned.key
    monkeypatch.setattr(tuned, "key", lambda threads: digest(str(tmp_path), real(threads)))
    op, backend = GEMV(M=8, K=64, T=F32), HostBackend(threads=2)
    ours = Settings(op, device("host"), backend).at({"grain": 1 << 20})
    monkeypatch.setenv("IRON_LOWERINGS", "host.GEMV=iron-acme")
    theirs = Settings(op, device("host"), backend).at({"grain": 1 << 20})
    assert ours is not None and theirs is not None and ours.key != theirs.key
    kept = Profile()
    profiles.add(kept, theirs, "host")
    assert kept.entries[0].give == {"host.grain": 1 << 20, "host.lowering": "iron-acme"}
    backend.keep(kept, device("host"))
    assert f"tuned: grain={1 << 20}" in OperatorImage(op, backend=backend).explain()
    monkeypatch.delenv("IRON_LOWERINGS")
    made = OperatorImage(op, backend=backend)
    assert "tuned:" not in made.explain() and ran(made.image) == {"matmul"}, "and chooses nothing by itself"
