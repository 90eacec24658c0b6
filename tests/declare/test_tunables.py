"""Tunables: who decides them, what a tuner may try, and profiles as data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import iron_core as iron
from iron_core.declare.domain import domains
from iron_core.declare.identity import array_key, contract_key, design_key, label
from iron_core.declare.profile import active_profile
from iron_core.errors import CallError, DeclarationError, ParamError, Unresolvable

NPU1 = iron.devices.device("npu1")
NPU2 = iron.devices.device("npu2")


class Tiled(iron.Operator):
    """An array operator as a test has it: columns by device, a tile that divides the rows, a named placement."""

    M: int = iron.Param()
    K: int = iron.Param(default=64)
    T: Any = iron.DType()
    columns: int = iron.Auto()
    tile: int = iron.Auto(domain=iron.Divisors(of=lambda op, dev: op.M // op.columns, step=2, cap=64))
    depth: int = iron.Auto(2, domain=iron.Choices((1, 2, 4)))
    split: bool = iron.Param(default=False)
    lanes: int = iron.Auto(1, domain=iron.Width(when="split"))
    placement: str = iron.Auto(
        "near", domain=iron.Placement({"near": iron.Pins(), "far": iron.Pins(shims=iron.Level.FREE)})
    )
    bytes: int = iron.Auto(derived=True)
    x = iron.In(M, K, dtype=T, tile=(tile, K), per=columns)
    y = iron.Out(M, dtype=T, tile=tile, per=columns, finish=True)

    def reference(self, x):
        return x.sum(1)

    def resolve(self, dev):
        columns = self.columns or min(dev.columns, self.M)
        tile = self.tile or min(16, self.M // columns)
        return self.evolve(columns=columns, tile=tile, bytes=tile * 2)

    def compatible(self, dev):
        if self.M % (self.columns * self.tile):
            raise Unresolvable(f"Tiled: tile={self.tile} x columns={self.columns} does not divide M={self.M}.")


def test_resolve_fills_what_is_open_from_the_device():
    """The same operator is another array on another device; the operator itself stays open."""
    op = Tiled(M=512)
    assert op.columns is None
    assert (op.resolved(NPU1).columns, op.resolved(NPU2).columns) == (4, 8)
    assert op.resolved(NPU2).bytes == 32
    assert op.columns is None


def test_precedence_is_call_then_profile_then_resolve_then_default():
    """Each source fills only what the ones before it left open."""
    profile = iron.Profile()
    profile.add(Tiled, M=512, tile=32, depth=4)
    assert Tiled(M=512).resolved(NPU2).tile == 16
    assert Tiled(M=512).resolved(NPU2).depth == 2
    with profile:
        assert Tiled(M=512).resolved(NPU2).tile == 32
        assert Tiled(M=512).resolved(NPU2).depth == 4
        assert Tiled(M=512, tile=8).resolved(NPU2).tile == 8
        assert Tiled(M=256).resolved(NPU2).tile == 16
    assert active_profile() is None


def test_a_given_tunable_that_cannot_hold_is_refused_at_once():
    """With every tunable known, compatible() runs at construction; else when resolved."""
    with pytest.raises(Unresolvable, match="does not divide M=100"):
        Tiled(M=100, tile=32).resolved(NPU1)


def test_a_tunable_nobody_fills_is_named():
    """Neither call, profile, resolve() nor default: the error names it."""

    class Open(iron.Operator):
        n: int = iron.Param()
        tile: int = iron.Auto()
        x = iron.InOut(n)

        def reference(self, x):
            return x

    with pytest.raises(Unresolvable, match="no value for tile on npu1"):
        Open(n=4).resolved(NPU1)


def test_resolve_returns_a_copy_and_respects_what_is_given():
    """Returning self, or changing a given tunable, is a mistake of the class."""

    class Itself(iron.Operator):
        n: int = iron.Param()
        tile: int = iron.Auto()
        x = iron.InOut(n)

        def reference(self, x):
            return x

        def resolve(self, dev):
            return self

    class Overrules(Itself):
        other: int = iron.Auto()

        def resolve(self, dev):
            return self.evolve(tile=1, other=1)

    with pytest.raises(DeclarationError, match="return a copy"):
        Itself(n=4).resolved(NPU1)
    with pytest.raises(DeclarationError, match="changed tile"):
        Overrules(n=4, tile=2).resolved(NPU1)


def test_a_derived_tunable_is_never_given():
    """Not by a call, not by a profile, not by the tuner."""
    with pytest.raises(CallError, match="always derived"):
        Tiled(M=512, bytes=4)
    with pytest.raises(CallError, match="always derived"):
        iron.Profile().add(Tiled, M=512, bytes=4)
    with pytest.raises(CallError, match="no tunable bytes"):
        Tiled(M=512).with_tunables(bytes=4)


def test_domains_hold_the_resolved_value():
    """Every open tunable's own value is among those to try; per= makes a Width; when= hides a domain."""
    op = Tiled(M=512).resolved(NPU2)
    found = domains(op, NPU2)
    assert found == {
        "columns": (8, 4, 2, 1),
        "tile": (64, 32, 16, 8, 4, 2),
        "depth": (1, 2, 4),
        "placement": ("near", "far"),
    }
    assert all(getattr(op, name) in values for name, values in found.items())
    assert domains(op, "npu2") == found  # a device by its name, as everywhere
    assert domains(Tiled(M=512, split=True, depth=3).resolved(NPU2), NPU2)["lanes"] == (8, 4, 2, 1)


def test_a_value_outside_the_ladder_joins_it():
    """A width that is no power of two, a choice that is not among the options."""

    class Odd(iron.Operator):
        n: int = iron.Param()
        width: int = iron.Auto(3, domain=iron.Width())
        depth: int = iron.Auto(3, domain=iron.Choices((1, 2)))
        x = iron.InOut(n)

        def reference(self, x):
            return x

    found = domains(Odd(n=1).resolved(NPU1), NPU1)
    assert found == {"width": (4, 3, 2, 1), "depth": (3, 1, 2)}


def test_held_tunables_are_not_searched():
    """What a call or a profile gives explicitly is held."""
    profile = iron.Profile()
    profile.add(Tiled, depth=4)
    with profile:
        op = Tiled(M=512, tile=8).resolved(NPU2)
    assert op.pinned == {"tile", "depth"}
    assert set(domains(op, NPU2)) == {"columns", "placement"}


def test_domains_are_asked_of_a_resolved_operator():
    """An open tunable has no value to start from."""
    with pytest.raises(CallError, match="ask a resolved operator"):
        domains(Tiled(M=512), NPU2)


def test_divisors_span_and_cap():
    """Doubling stays a divisor and under the cap; `span` limits the octaves each way."""

    class Spanned(iron.Operator):
        n: int = iron.Param()
        tile: int = iron.Auto(16, domain=iron.Divisors(of=lambda op: op.n, step=4, span=1))
        x = iron.InOut(n)

        def reference(self, x):
            return x

    assert domains(Spanned(n=96).resolved(NPU1), NPU1)["tile"] == (32, 16, 8)


def test_an_unknown_placement_is_refused():
    """The error names the tunable, whatever it is called, and lists the declared names."""

    class Elsewhere(Tiled):
        where: str = iron.Auto("left", domain=iron.Placement({"left": iron.Pins(), "right": iron.Pins()}))

    with pytest.raises(Unresolvable, match=r"placement='here' is not declared\. Legal: near, far"):
        Tiled(M=512, placement="here").resolved(NPU2)
    with pytest.raises(Unresolvable, match=r"where='here' is not declared\. Legal: left, right"):
        Elsewhere(M=512, where="here").resolved(NPU2)


def test_a_copy_changes_fields_alone():
    """A name that is none would be kept and never read."""
    assert Tiled(M=512).evolve(tile=8).tile == 8
    for copied in (Tiled(M=512).evolve, Tiled(M=512).bounded):
        with pytest.raises(CallError, match=r"Tiled has no field nope\. Fields: M, "):
            copied(nope=3)


def test_with_tunables_gives_an_unresolved_copy():
    """What a tuner builds its candidates with."""
    op = Tiled(M=512)
    twin = op.with_tunables(tile=8)
    assert (twin.tile, twin.columns, op.tile) == (8, None, None)
    assert "tile" in twin.pinned and not op.pinned
    assert type(op.with_tunables(tile=np.int64(8)).tile) is int  # as where one is constructed
    assert twin.with_tunables(tile=None).pinned == frozenset() and "tile" in domains(twin.with_tunables(tile=None).resolved(NPU2), NPU2)


# -- profiles ----------------------------------------------------------------------------------------


def test_the_most_specific_entry_wins_per_tunable():
    """Each open tunable takes the entry that matches most params."""
    profile = iron.Profile()
    profile.add(Tiled, tile=8, depth=1)
    profile.add(Tiled, M=512, tile=16)
    profile.add(Tiled, M=512, T="float32", tile=32)
    with profile:
        assert (Tiled(M=512, T=np.float32).tile, Tiled(M=512, T=np.float32).depth) == (32, 1)
        assert Tiled(M=512).tile == 16
        assert Tiled(M=64).tile == 8


def test_plain_defaults_match_and_computed_ones_do_not():
    """An entry may name a param the call left at its default."""
    profile = iron.Profile()
    profile.add(Tiled, K=64, depth=4)
    with profile:
        assert Tiled(M=512).depth == 4
        assert Tiled(M=512, K=32).depth is None


def test_equal_matches_that_disagree_are_refused():
    """Two entries of equal specificity are fine until they give different values."""
    profile = iron.Profile()
    profile.add(Tiled, M=512, tile=8)
    profile.add(Tiled, K=64, tile=8)
    with profile:
        assert Tiled(M=512).tile == 8
    profile.add(Tiled, T="bfloat16", tile=16)
    with profile, pytest.raises(ParamError, match="ambiguous"):
        Tiled(M=512)


def test_a_subclass_takes_its_bases_entries_and_a_namesake_does_not():
    """Entries belong to a class, not to a name: two packs may each have a GEMM."""

    class Narrow(Tiled):
        pass

    def namesake():
        class Tiled(iron.Operator):
            M: int = iron.Param()
            tile: int = iron.Auto()
            y = iron.Out(M)

            def reference(self):
                return np.zeros(self.M)

        return Tiled

    profile = iron.Profile()
    profile.add(Tiled, tile=8)
    with profile:
        assert Narrow(M=512).tile == 8
        assert namesake()(M=512).tile is None


def test_profiles_nest():
    """The innermost one counts, and leaving it restores the outer one."""
    outer, inner = iron.Profile(), iron.Profile()
    outer.add(Tiled, tile=8)
    inner.add(Tiled, tile=16)
    with outer:
        with inner:
            assert Tiled(M=512).tile == 16
        assert Tiled(M=512).tile == 8


@pytest.mark.parametrize(("fields", "says"), [(dict(m=1, tile=2), "no field m"), (dict(M=1), "gives no tunable")])
def test_an_entry_is_checked_when_added(fields, says):
    """Unknown fields and entries that give nothing are refused."""
    with pytest.raises(CallError, match=says):
        iron.Profile().add(Tiled, **fields)


def test_a_profile_is_one_json_line_an_entry(tmp_path):
    """Saved and loaded it gives the same tunables; dtypes are stored by name."""
    profile = iron.Profile()
    profile.add(Tiled, M=512, T=np.float32, tile=32)
    profile.add(Tiled, depth=4)
    profile.save(tmp_path / "npu2.json")
    assert len((tmp_path / "npu2.json").read_text().splitlines()) == 2 + len(profile)
    again = iron.Profile.load(tmp_path / "npu2.json", operators=lambda name: Tiled)
    assert [(e.match, e.give) for e in again] == [(e.match, e.give) for e in profile]


def test_an_entry_gives_a_backends_lowering_tunables_too(tmp_path):
    """Named with the backend's name in front: the operator itself takes none of them, and a backend none of another's."""
    profile = iron.Profile()
    profile.add(Tiled, **{"host.threads": 2, "host.ahead": 64})
    profile.add(Tiled, M=512, **{"host.threads": 1, "other.threads": 4, "tile": 8})
    profile.save(tmp_path / "host.json")
    for found in profile, iron.Profile.load(tmp_path / "host.json", operators=lambda name: Tiled):
        assert found.lowered("host", Tiled(M=64)) == {"threads": 2, "ahead": 64}
        assert found.lowered("host", Tiled(M=512)) == {"threads": 1, "ahead": 64}
        assert found.lowered("npu", Tiled(M=512)) == {}
        with found:
            assert Tiled(M=512).pinned == {"tile"}


@pytest.mark.parametrize("text", ["", "[]", '{"entries": [1]}', '{"entries": [{"tile": 1}]}'])
def test_a_file_that_is_no_profile_says_what_one_is(tmp_path, text):
    """One sentence with the path and the form."""
    (tmp_path / "bad.json").write_text(text)
    with pytest.raises(ParamError, match=r"bad\.json is no profile"):
        iron.Profile.load(tmp_path / "bad.json", operators=lambda name: Tiled)


# -- identity ----------------------------------------------------------------------------------------


def test_contract_key_covers_params_and_dtypes_only():
    """Two tunings of one contract are one contract; another shape or dtype is another."""
    key = contract_key(Tiled(M=512))
    assert key == contract_key(Tiled(M=512, tile=8))
    assert key != contract_key(Tiled(M=256))
    assert key != contract_key(Tiled(M=512, T=np.float32))
    assert "object at 0x" not in repr(key)


def test_array_key_ignores_extents_and_design_key_does_not():
    """One array serves every extent; a design is an array and one sequence."""
    small, large = (Tiled(M=M, tile=16).resolved(NPU2) for M in (512, 1024))
    assert array_key(small) == array_key(large)
    assert design_key(small) != design_key(large)


def test_array_tier_is_what_streams_are_made_of():
    """Tiles, lanes and dtypes of streamed operands, and fields marked array=True."""
    assert Tiled.array_tier == {"tile", "K", "columns", "T"}
    npu1, npu2 = (Tiled(M=512).resolved(dev) for dev in (NPU1, NPU2))
    assert array_key(npu1) != array_key(npu2)


def test_calls_that_resolve_alike_share_a_build():
    """Identity is taken after resolution, whoever gave the value."""
    assert design_key(Tiled(M=512, tile=16).resolved(NPU2)) == design_key(Tiled(M=512).resolved(NPU2))


def test_labels_are_file_names():
    """The class and the shown fields, floats and tuples without awkward characters."""

    class Named(iron.Operator):
        n: int = iron.Param()
        eps: float = iron.Param(default=1e-5)
        flag: bool = iron.Param(default=True)
        steps: tuple = iron.Param(default=(1, 2))
        hidden: int = iron.Param(default=9, repr=False)
        at: object = iron.Param(default=iron.Pattern(1, (2, 3), (3, 1)))
        T: object = iron.DType(default=np.float32)
        x = iron.InOut(n, dtype=T)

        def reference(self, x):
            return x

    assert label(Named(n=4)) == "Named_n4_eps1en05_flag1_steps1x2_ato1s2x3t3x1_Tfloat32"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (dict(M="512"), "M='512'; legal: a whole number"),
        (dict(M=512.0), "M=512.0; legal: a whole number"),
        (dict(M=True), "M=True; legal: a whole number"),
        (dict(tile=-16), "tile=-16; legal: at least 1"),
        (dict(columns=0), "columns=0; legal: at least 1"),
        (dict(columns=True), "columns=True; legal: a whole number"),
        (dict(tile=1.5), "tile=1.5; legal: a whole number"),
        (dict(split=1), "split=1; legal: True or False"),
        (dict(placement=3), "placement=3; legal: a string"),
    ],
    ids=str,
)
def test_fields_are_what_they_are_annotated_as(fields, words):
    """Wherever a value comes from: a call, a tuner, a profile. numpy's numbers are numbers."""
    with pytest.raises(ParamError, match=words):
        Tiled(**{"M": 512, **fields})
    if set(fields) <= set(Tiled.autos()):
        with pytest.raises(ParamError, match=words):
            Tiled(M=512).with_tunables(**fields)
        profile = iron.Profile()
        profile.add(Tiled, M=512, **fields)
        with profile, pytest.raises(ParamError, match=words):
            Tiled(M=512)
    assert Tiled(M=np.int64(512), tile=np.int32(16)).resolved("npu2").tile == 16
