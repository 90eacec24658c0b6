"""Streams of a call's numbers: what mlir-aie's C++ gives, compiled with this machine's compiler."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from iron_core.errors import BoundsError
from iron_npu.errors import MissingTool, ToolError
from iron_npu.settings import Settings
from iron_npu.tools.stream_maker import ROOM, StreamMaker

pytestmark = pytest.mark.skipif(not any(map(shutil.which, ("c++", "g++", "clang++"))), reason="there is no C++ compiler")

#: As `aie-translate --aie-npu-to-cpp` writes it: a stream, or none for a number that breaks a rule of the sequence.
SOURCE = """#include <cstdint>
#include <optional>
#include <utility>
#include <vector>
inline std::optional<std::vector<uint32_t>> generate_txn_main_sequence(int32_t v1, int32_t v2) {
  std::vector<uint32_t> txn;
  if (v1 < 0) return std::nullopt;
  for (int32_t i = 0; i < v1; ++i) txn.push_back((uint32_t)v2);
  return std::move(txn);
}
"""


@pytest.fixture
def settings(tmp_path):
    return Settings.read(cache_home=tmp_path / "cache")


def written(tmp_path, source=SOURCE):
    (tmp_path / "0_sequence.h").write_text(source)
    return tmp_path / "0_sequence.h"


def test_a_stream_follows_the_numbers(tmp_path, settings, monkeypatch):
    """However long; numbers are 32 bits, with a sign; and what is compiled is kept."""
    made = StreamMaker(written(tmp_path), "sequence", settings)
    assert made.takes == 2
    assert np.frombuffer(made((3, -2)), np.int32).tolist() == [-2] * 3
    assert len(made((2 * ROOM, 7))) == 8 * ROOM and made((1, 9)) == np.uint32(9).tobytes()
    with pytest.raises(BoundsError, match=r"generate_txn_main_sequence: no stream for -1, 4; the sequence's rules refuse such numbers"):
        made((-1, 4))
    with pytest.raises(ToolError, match="takes 2 numbers, and the image gives 1"):
        made((1,))
    monkeypatch.delenv("CXX", raising=False)
    none = Settings(cache_home=settings.cache_home, path=str(tmp_path))
    with pytest.raises(MissingTool, match=r"no C\+\+ compiler: looked for c\+\+, g\+\+, clang\+\+ on PATH\. Install one"):
        StreamMaker(written(tmp_path), "sequence", none)


def test_what_is_no_such_source_is_told(tmp_path, settings):
    """By the compiler's first error, or for want of the function."""
    with pytest.raises(ToolError, match="has no function generate_txn_"):
        StreamMaker(written(tmp_path, "int main() {}"), "sequence", settings)
    with pytest.raises(ToolError, match=r"on generate_txn_main_sequence: .*error: "):
        StreamMaker(written(tmp_path, SOURCE.replace("std::vector<uint32_t> txn;", "nonsense txn;")), "sequence", settings)


def test_each_sequence_of_a_file_is_its_own(tmp_path, settings):
    """One header has those of a module; the one that is asked for answers."""
    second = SOURCE.partition("inline")[2].replace("main_sequence", "main_second").replace("(uint32_t)v2", "1")
    path = written(tmp_path, f"{SOURCE}inline{second}")
    assert np.frombuffer(StreamMaker(path, "sequence", settings)((2, 5)), np.int32).tolist() == [5, 5]
    assert np.frombuffer(StreamMaker(path, "second", settings)((2, 5)), np.int32).tolist() == [1, 1]
    with pytest.raises(ToolError, match=r"no function generate_txn_\.\.\._third"):
        StreamMaker(path, "third", settings)
