"""`iron doctor` on what a backend finds itself: text, JSON, the exit status, and backends that do it wrong."""

from __future__ import annotations

import json

import numpy as np
import pytest

import iron_core as iron
from iron_core.backends import choose
from iron_core.errors import BackendUnavailable

SOURCE = """
import iron_core as iron
from iron_core.backends.null import NullBackend

class Odd(NullBackend):
    name, preference = "odd", None
    def probe(self): return {probe}
    {examine}
"""
FOUND = """def examine(self): return [
        iron.Finding("node", "/dev/odd0"), iron.Finding("clock", "runs at half speed", "note", "Wind it."),
        iron.Finding("lock", "4 kB may be locked", "problem", "Raise the limit\\nin limits.conf."),
    ]"""


@pytest.fixture
def odd(site):
    """odd(probe=, examine=): a distribution with such a backend."""

    def add(probe='iron.Available("it ticks")', examine=""):
        source = SOURCE.format(probe=probe, examine=examine)
        site.add("iron-odd", "0.1", entries={"iron.backends.v1": {"odd": "odd_backend:Odd"}}, modules={"odd_backend.py": source})

    return add


def test_findings_are_a_table_with_what_to_do(odd, iron):
    """A line each; a problem makes the status 1."""
    odd(examine=FOUND)
    status, out, _ = iron("doctor", "--backend", "odd")
    table = out[out.index("of odd") :].splitlines()
    assert status == 1
    assert [line.split(maxsplit=2) for line in table[1:4]] == [
        ["node", "ok", "/dev/odd0"],
        ["clock", "note", "runs at half speed. Wind it."],
        ["lock", "problem", "4 kB may be locked. Raise the limit\\nin limits.conf."],
    ]
    assert out.splitlines()[-1] == "problem: 1 of odd, in the table above" and "no problems" not in out


def test_findings_as_json(odd, iron):
    odd(examine=FOUND)
    status, out, _ = iron("doctor", "--backend", "odd", "--json")
    facts = json.loads(out)
    assert status == 1 and facts["examined"]["backend"] == "odd" and facts["problems"] == []
    assert facts["examined"]["findings"][1] == {"what": "clock", "says": "runs at half speed", "state": "note", "fix": "Wind it."}


def test_a_note_is_no_failure_and_nobody_is_examined_unasked(odd, iron):
    odd(examine='def examine(self): return [iron.Finding("clock", "slow", "note")]')
    assert iron("doctor", "--backend", "odd")[0] == 0
    assert "examined" not in json.loads(iron("doctor", "--json")[1])


def test_a_problem_of_a_backend_that_nobody_named_is_no_failure(odd, iron):
    odd(examine=FOUND)
    assert iron("doctor")[0] == 0


@pytest.mark.parametrize(
    ("probe", "status", "said"),
    [('iron.Available("it ticks")', 0, ("ok", "it ticks")), ('iron.Unavailable("no odd0", "Plug it in.")', 1, ("problem", "no odd0."))],
)
def test_a_backend_that_does_not_look_closer_is_asked_by_its_probe(odd, iron, probe, status, said):
    odd(probe)
    got, out, _ = iron("doctor", "--backend", "odd", "--json")
    (one,) = json.loads(out)["examined"]["findings"]
    assert got == status and (one["state"], one["says"]) == said


@pytest.mark.parametrize(
    ("examine", "said"),
    [
        ("def examine(self): raise OSError('the bus is gone')", "its examine() failed WHOSE: OSError: the bus is gone"),
        ("def examine(self): return ['ok']", "its examine() gave 'ok' (str) WHOSE; legal: Findings"),
        ("def examine(self): return None", "its examine() failed WHOSE: TypeError: 'NoneType' object is not iterable"),
        ("def examine(self): return [iron.Finding('a', 'b', 'bad')]", "its examine() failed WHOSE: ValueError"),
    ],
)
def test_a_backend_that_fails_at_it_is_a_problem(odd, iron, examine, said):
    """What it probes is there all the same."""
    odd(examine=examine)
    status, out, _ = iron("doctor", "--backend", "odd", "--json")
    probed, failed = json.loads(out)["examined"]["findings"]
    said = said.replace("WHOSE", "(iron-odd 0.1, entry point `odd = odd_backend:Odd`)")
    assert status == 1 and probed["says"] == "it ticks" and failed["says"].startswith(said)


def test_a_backend_that_there_is_not_is_named(iron):
    status, _, err = iron("doctor", "--backend", "odd")
    assert status == 2 and "backend='odd': no installed distribution provides it" in err


class One(iron.Graph):
    """A graph of one step."""

    def body(self, x):
        from iron_ops_aie import SiLU

        return SiLU(x)


def test_a_backend_that_only_compiles_is_taken_by_name_alone(odd, iron, monkeypatch):
    """The choice says so; nobody gets it who did not ask; what lists backends says it."""
    odd('iron.Unavailable("no odd0", "Plug it in.", compiles=True)')
    compiled = One().compile(x=((64,), np.float32), backend="odd")
    assert compiled.backend.name == "odd" and "odd compiles here and cannot run: no odd0." in compiled.explain()
    monkeypatch.setattr(choose.get("odd"), "preference", -1, raising=False)
    assert choose.choose().backend.name != "odd"
    assert "It compiles here. Plug it in." in iron("backends", "list")[1]
    row = next(e for e in json.loads(iron("backends", "list", "--json")[1]) if e["name"] == "odd")
    assert (row["available"], row["compiles"]) == (False, True)


def test_a_backend_that_does_neither_is_refused(odd):
    odd('iron.Unavailable("no odd0", "Plug it in.")')
    with pytest.raises(BackendUnavailable, match=r"backend odd cannot run here: no odd0\. Plug it in\."):
        One().compile(x=((64,), np.float32), backend="odd")
