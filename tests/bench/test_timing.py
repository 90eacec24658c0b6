"""Both tables by one command: one after the other, or one JSON document."""

from __future__ import annotations

import json

from bench import predicted
from bench.timing import main

ROW = ("one", "us", ((2.0, 2.0), (1.0, 1.0)), lambda tune: (3.0, 2.0 if tune else None))


def test_json_is_one_document_of_both(monkeypatch, capsys):
    monkeypatch.setattr(predicted, "CHANGES", (ROW,))
    monkeypatch.setattr("iron_sim.timing.table.ROWS", ())
    assert main(["--json", "--untuned"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["operators"]["rows"] == [] and found["models"][0]["gains"] == [2.0, None]


def test_rows_that_are_asked_for_come_without_models(monkeypatch, capsys):
    monkeypatch.setattr(predicted, "CHANGES", (ROW,))
    assert main(["tiny-rope"]) == 0
    said = capsys.readouterr().out
    assert "tiny-rope" in said and "one" not in said.split()
    assert main(["--json", "tiny-rope"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in found["operators"]["rows"]] == ["tiny-rope"] and found["models"] == []
