"""Cost tables: JSON of what was measured on one device and packaging."""

from __future__ import annotations

import json

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iron_ops_aie import GEMV, SiLU
from iron_tuner.cost_table import Calibration, CostTable, PackCost, Point, StepCost, cost_key, pack_key
from iron_tuner.errors import CostError
from iron_tuner.records import MOST_US

STEP = StepCost(10.0, 30.0, True, True, "turbo", 8, 50, "2026-12-01")
CALIBRATION = Calibration(40.0, 45.0, "turbo", 8, 50, "2026-12-01", base_us=32.0, reset_us=35.0)
PACK = PackCost("A", 120.0, {"A": 9.0, "B": 4.0}, "turbo", 8, 50, "2026-12-01")


def table() -> CostTable:
    made = CostTable("npu2")
    made.add_step("A", STEP)
    made.add_calibration("A", "B", CALIBRATION)
    made.add_pack(("B", "A"), PACK)
    return made


numbers, times, weights = st.floats(-MOST_US, MOST_US), st.floats(0, MOST_US), st.floats(1e-9, 1)
keys = st.text(st.characters(exclude_characters="|", exclude_categories=("Cs",)), min_size=1)
common = dict(pmode=st.just("turbo"), rounds=st.integers(1, 99), calls=st.integers(1, 99), measured=st.dates().map(str))
flags, counts, perhaps = st.booleans(), st.integers(1, 99), st.none() | numbers
noises = st.none() | times
labels = st.text(st.characters(exclude_categories=("Cs",)))
points = st.builds(Point, weights, times, flags, flags, counts, noises)
apart = dict(beside=keys | st.just(""), pair_us=perhaps, points=st.dictionaries(labels, points, max_size=3), design=labels)
told = dict(setting_of=keys | st.just(""), tunables=st.dictionaries(labels, counts | flags | numbers | labels, max_size=3))
steps = st.builds(StepCost, times, times, flags, flags, **common, noise_us=noises, **apart, **told)
calibrations = st.builds(Calibration, numbers, numbers, **common, base_us=perhaps, reset_us=perhaps)
packed = st.builds(PackCost, keys, numbers, st.dictionaries(keys, times, max_size=3), **common)


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(("fused", "separate")),
    st.dictionaries(keys, steps, max_size=4),
    st.dictionaries(st.tuples(keys, keys), calibrations, max_size=3),
    st.dictionaries(st.frozensets(keys, min_size=2, max_size=3), packed, max_size=3),
)
def test_what_is_saved_is_loaded(tmp_path_factory, dispatch, own, pairs, packs):
    """Every number to its last bit."""
    made = CostTable("npu2", dispatch, "RyzenAI-npu5", dict(own))
    for (a, b), cost in pairs.items():
        made.add_calibration(a, b, cost)
    for members, cost in packs.items():
        made.add_pack(members, cost)
    path = tmp_path_factory.mktemp("tables") / "costs.json"
    made.save(path)
    assert CostTable.load(path, "npu2", dispatch) == made
    assert CostTable.load(path).dropped == ()


def test_defaults_are_left_out_and_an_entry_is_a_line(tmp_path):
    table().save(tmp_path / "t.json")
    text = (tmp_path / "t.json").read_text()
    assert set(json.loads(text)["steps"]["A"]) == {"t_step_us", "alone_us", "exact", "accurate", "pmode", "rounds", "calls", "measured"}
    assert sum(line.startswith("  ") for line in text.splitlines()) == 3
    assert "|".join("AB") in json.loads(text)["packs"], "a pack's key is its members', sorted"


@pytest.mark.parametrize(
    ("part", "key", "change", "why"),
    [
        ("steps", "A", {"exact": None}, "has no exact"),
        ("steps", "A", {"t_step_us": "fast"}, "'fast' where a float is"),
        ("steps", "A", {"tunables": {"columns": [8]}}, "[8] where a int is"),
        ("steps", "A", {"beside": None, "measured": 7}, "7 where a str is"),
        ("steps", "A", {"calls": 1.5}, "1.5 where a int is"),
        ("steps", "A", {"t_step_us": float("nan")}, "t_step_us: nan is no time"),
        ("steps", "A", {"t_step_us": 10**400}, "is no time"),
        ("steps", "A", {"alone_us": 1e308}, "alone_us: 1e+308 is no time"),
        ("steps", "A", {"t_step_us": -1.0}, "t_step_us: -1.0 is no time"),
        ("steps", "A", {"points": [1]}, "points: [1] where {...} is"),
        ("steps", "A", {"points": {"far": 1}}, "points: 1 where {...} is"),
        ("steps", "A", {"points": {"far": attrs.asdict(Point(0.0, 1.0, True, True, 1))}}, "points: weight: 0, of a mean"),
        ("packs", "A|B", {"t_step_us": {"A": -2.0}}, "t_step_us: -2.0 is no time"),
        ("calibrations", "A|B", {"switch_us": None}, "has no switch_us"),
        ("packs", "A|B", {"t_step_us": None}, "has no t_step_us"),
    ],
)
def test_an_entry_that_lacks_something_is_dropped_and_said(tmp_path, part, key, change, why):
    """It is measured again; the others stay."""
    table().save(tmp_path / "t.json")
    content = json.loads((tmp_path / "t.json").read_text())
    entry = content[part][key] | change
    content[part][key] = {name: value for name, value in entry.items() if value is not None}
    (tmp_path / "t.json").write_text(json.dumps(content))
    loaded = CostTable.load(tmp_path / "t.json")
    assert key not in getattr(loaded, part)
    assert [getattr(loaded, other) for other in ("steps", "calibrations", "packs") if other != part] == [
        getattr(table(), other) for other in ("steps", "calibrations", "packs") if other != part
    ]
    (said,) = loaded.dropped
    assert key in said and why in said and "measured again" in said


def test_a_calibration_of_other_than_two_designs_is_dropped(tmp_path):
    table().save(tmp_path / "t.json")
    (tmp_path / "t.json").write_text((tmp_path / "t.json").read_text().replace('"A|B": {"switch_us"', '"A|B|C": {"switch_us"'))
    loaded = CostTable.load(tmp_path / "t.json")
    assert not loaded.calibrations and len(loaded.steps) == 1 and "A|B|C: it names no two designs" in loaded.dropped[0]


def test_entries_of_two_power_modes_are_refused(tmp_path):
    made, other = table(), attrs.evolve(STEP, pmode="powersaver")
    for add in (lambda: made.add_step("C", other), lambda: CostTable("npu2", steps={"A": STEP, "C": other})):
        with pytest.raises(CostError, match=r"powersaver.*turbo.*remeasure"):
            add()
    table().save(tmp_path / "t.json")
    (tmp_path / "t.json").write_text((tmp_path / "t.json").read_text().replace("turbo", "powersaver", 1))
    with pytest.raises(CostError, match=r"t.json.*powersaver and turbo.*remeasure"):
        CostTable.load(tmp_path / "t.json")
    assert made.pmode == "turbo" and CostTable("npu2").pmode == ""


@pytest.mark.parametrize(
    ("device", "dispatch", "says"),
    [("npu1", "fused", "device npu2, and npu1 is asked for"), ("npu2", "separate", "packaging fused, and separate is asked for")],
)
def test_a_table_of_another_device_or_packaging_is_refused(tmp_path, device, dispatch, says):
    table().save(tmp_path / "t.json")
    with pytest.raises(CostError, match=says):
        CostTable.load(tmp_path / "t.json", device, dispatch)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"device": 7}', '{"device": "npu2\\u001b[2J"}',
     '{"device": "npu2", "dispatch": "so"}', '{"device": "npu2", "steps": 1}', "[" * 9999]
)
def test_what_is_no_table_is_refused(tmp_path, text):
    (tmp_path / "t.json").write_text(text)
    with pytest.raises(CostError, match=r"t\.json"):
        CostTable.load(tmp_path / "t.json")


def test_other_json_is_said_to_be_no_table(tmp_path):
    (tmp_path / "t.json").write_text('{"entries": []}')
    with pytest.raises(CostError, match=r"is no cost table \(it names no device\)"):
        CostTable.load(tmp_path / "t.json")


def test_a_table_has_the_name_of_its_device_and_of_a_packaging_that_is_not_the_usual_one():
    assert CostTable.file_name("npu2", "fused") == "costs_npu2.json"
    assert CostTable.file_name("npu2", "separate") == "costs_npu2_separate.json"
    assert CostTable.file_name("npu1", "separate", usual="separate") == "costs_npu1.json"


def test_a_design_is_known_by_its_class_and_every_field_as_it_resolves():
    """A tunable that is given as it would resolve changes nothing; another value is another design."""
    op = GEMV(M=2048, K=512)
    resolved = op.resolved("npu2")
    own = {name: getattr(resolved, name) for name in op.autos() if not op.fields[name].derived}
    assert cost_key(op, "npu2") == cost_key(GEMV(M=2048, K=512, **own), "npu2") == cost_key(resolved, "npu2")
    assert cost_key(op, "npu2").startswith("GEMV_")
    others = [GEMV(M=1024, K=512), GEMV(M=2048, K=512, num_aie_columns=1), SiLU(size=2048)]
    assert len({cost_key(other, "npu2") for other in (op, *others)}) == 4
    assert pack_key(("b", "a")) == "a|b"
