"""What the benchmark makes of its samples: medians, ratios, verdicts, and a table that reads as Markdown."""

from __future__ import annotations

import json

import pytest

from bench import table
from bench.engines import IRON, LLAMA_CPP
from bench.results import Result, Samples
from bench.rows import FORMATS, LARGE, MIXTURES, ROWS, Goal, Rate, Vectors, Watched, chosen

DECODE = Rate("decode", "decode, Q4_1", "q4_1", "decode", 5, Goal(2.0, 0.75), count=8)
START = Watched("start", "start", "s", Goal(most=1.0), ("iron", "llama.cpp"))


def samples(*values: float, others: float = 0.0) -> Samples:
    made = Samples()
    for value in values:
        made.add(value, 0.5, 0.9, others)
    return made


def result(ours: tuple[float, ...], theirs: tuple[float, ...], limit: float = 1000.0, row: Rate | Watched = DECODE) -> Result:
    """A row of two engines; a token is 5 bytes."""
    return Result(row, {"iron": samples(*ours), "llama.cpp": samples(*theirs)}, [limit], 5.0 if row is DECODE else 0.0)


def test_ratios_and_shares_come_from_medians() -> None:
    """Ratio of the medians, with the least and most of the rounds; bytes are the rate's times a token's."""
    found = result((160, 150, 100), (50, 75, 40))
    assert found.ratio("llama.cpp") == (150 / 50, 2.0, 3.2)
    assert found.read_rate == 750 and found.read_share == 0.75
    assert found.ratio("other") is None


@pytest.mark.parametrize(
    ("ours", "limit", "verdict", "reached"),
    [
        (150, 1000, "met", 1.0),
        (150, 1100, "within 15 %", 750 / 1100 / 0.75),
        (90, 100, "within 15 %", 0.9),
        (80, 100, "missed", 0.8),
        (400, 4000, "missed", 0.5 / 0.75),
    ],
)
def test_the_worst_goal_decides(ours: float, limit: float, verdict: str, reached: float) -> None:
    """Twice llama.cpp's rate and three quarters of the read limit: both have to be reached."""
    found = result((ours,), (50,), limit)
    assert found.verdict == verdict and found.reached == pytest.approx(reached)


def test_a_row_of_vectors_is_held_against_the_best_peer() -> None:
    """Its ratio is of the fastest other; what is multiplied a second is shown as a share of the float32 limit."""
    row = Vectors("v", "vectors", "minilm", (16,), 1, 4, Goal(best=1.5))
    engines = {"iron": samples(30), "slow": samples(10), "fast": samples(25)}
    found = Result(row, engines, text_operations=2.0, float_limits=[100.0, 120, 140])
    assert found.reached == pytest.approx(30 / 25 / 1.5) and found.float_share == 60 / 120
    text = "\n".join(table.lines([found]))
    assert "1.5 x the best" in text and "50 % of float32" in text and "1.20 (1.20 to 1.20)" in text


def test_where_less_is_better() -> None:
    """A second against two is a ratio of two; the goal is a most."""
    found = result((0.5,), (2.0,), row=START)
    assert found.ratio("llama.cpp") == (4.0, 4.0, 4.0) and found.reached == 2.0 and found.verdict == "met"
    assert result((1.1,), (2.0,), row=START).verdict == "within 15 %"
    assert Result(START, {"iron": Samples(skipped="no")}).verdict == ""


def test_the_table_is_markdown() -> None:
    """Every line has the same columns, at the same places; ratios stand beside the peers, goals beside Iron."""
    busy = result((160, 150), (50, 75))
    busy.weights_read = [775.0]
    busy.engines["llama.cpp"].others = [0.5, 0.6]
    busy.engines["openvino-genai"] = Samples(skipped="does not install: no wheel")
    lines = table.lines([busy, result((0.5,), (2.0,), row=START)])
    rows = [line for line in lines if line.startswith("|")]
    places = {tuple(i for i, c in enumerate(row) if c == "|") for row in rows}
    assert len(rows) == 2 + 4 and len(places) == 1 and len(next(iter(places))) == 11
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    assert cells[2][:2] == ["decode, Q4_1 (tok/s)", "iron"] and cells[2][5] == "0.90 / 0.50"
    assert cells[2][7:] == ["0.0 GB/s, 78 % (100 % where they lie)", "2 x llama.cpp, 75 % of read", "met"]
    assert cells[3][0] == "" and cells[3][1] == "llama.cpp*" and cells[3][6] == "2.48 (2.00 to 3.20)"
    assert cells[4][0] == "start (s)" and cells[4][8:] == ["at most 1 s", "met"]
    text = "\n".join(lines)
    assert "not a quiet machine" in text and "openvino-genai: does not install: no wheel (decode)" in text


def test_json_holds_everything() -> None:
    """Samples, figures and goals survive json."""
    found = json.loads(json.dumps(result((160, 150), (50, 75)).as_dict()))
    assert found["engines"]["iron"]["values"] == [160, 150] and found["engines"]["iron"]["median"] == 155
    assert found["ratios"]["llama.cpp"]["median"] == pytest.approx(155 / 62.5)
    assert found["goal"] == {"ratio": 2.0, "read": 0.75, "most": None, "best": None} and found["verdict"] == "met"
    assert json.dumps(Result(START, {"iron": Samples(skipped="why")}).as_dict())


def test_rows_are_chosen_by_key() -> None:
    """In the order named; a name there is not is an error that lists those there are."""
    assert len({row.key for row in (*ROWS, *LARGE)}) == len(ROWS) + len(LARGE)
    assert [row.key for row in chosen("start,decode")] == ["start", "decode"] and chosen(None) == list(ROWS)
    assert chosen(None, large=True) == [*ROWS, *LARGE] and chosen("gemma2-clip") == [row for row in LARGE if row.key == "gemma2-clip"]
    with pytest.raises(ValueError, match=r"no row nope; rows: decode, "):
        chosen("decode,nope")


def test_rows_of_formats() -> None:
    """Each file's decode and prompt, run by Iron and llama.cpp, where `--formats` asks for them, beside mixtures' if it does too."""
    assert chosen(None, formats=True) == [*FORMATS] and chosen(None, mixtures=True, formats=True) == [*MIXTURES, *FORMATS]
    assert len({row.key for row in (*ROWS, *LARGE, *MIXTURES, *FORMATS)}) == len(ROWS) + len(LARGE) + len(MIXTURES) + len(FORMATS)
    for row in FORMATS:
        assert isinstance(row, Rate) and row.weights in IRON.takes and row.weights in LLAMA_CPP.takes
        assert row.prompt + row.count < row.context
        assert row.do != "decode" or (row.goal.ratio, row.goal.read) == (1.5, 0.7)
    kinds = [row.weights for row in FORMATS if row.key.startswith("decode-")]
    assert kinds == [row.weights for row in FORMATS if row.key.startswith("prompt-")] and len(kinds) == 7
    side = [(row.sequences, row.goal.ratio) for row in FORMATS if isinstance(row, Rate) and row.do == "batch"]
    assert side == [(1, None), (4, None), (8, 1.5)] * 2
