"""The benchmark's machinery with engines that only pretend: turns, warm-up, failures, weights that are made."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from bench import __main__ as program
from bench import engines, measure, processes, weights
from bench.engines import WORKERS, Engine
from bench.rows import Goal, Media, Rate, Vectors

FAKE = f"""
import sys
sys.path.insert(0, {str(WORKERS)!r})
import serve

class Fake:
    version = "1"
    def __init__(self, settings):
        print("noise that is no answer")
        self.settings, self.turns = settings, 0
        if "broken" in settings["checkpoint"]:
            raise RuntimeError("the file does not load")
    def decode(self, ids, count):
        print("more of it")
        self.turns += 1
        if NAME == "dead" and self.turns == 2:
            sys.exit(7)
        if NAME == "tired" and self.turns == 3:
            raise RuntimeError("enough")
        watch = serve.Stopwatch()
        watch.start()
        return watch.stop() | {{"tokens": count, "wall": count / SPEED, "turn": self.turns}}
    def batch(self, prompts, count):
        assert [len(ids) for ids in prompts] == [32] * 4 and len({{tuple(ids) for ids in prompts}}) == 4
        return dict(tokens=count * len(prompts), wall=count / SPEED, cpu=0.0)
    def vectors(self, count, **order):
        more = {{"operations": 3.0}} if "what" in order else {{}}
        return dict(texts=count, wall=count / SPEED, cpu=0.0, **order, **more)
    def limits(self):
        return dict(read_bytes=1e9, weights_read=5e8, float_operations=1e9, int8_operations=1e9)

serve.serve(Fake)
"""


@pytest.fixture
def pretend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A Bench whose engines are `names` at speeds 100, 50, 25 ...; weights are empty files. Also the turns taken."""
    turns: list[str] = []

    def make(*names: str, rounds: int = 2, **options: Any) -> tuple[measure.Bench, list[str]]:
        made = []
        for i, name in enumerate(names):
            script = tmp_path / f"{name}.py"
            script.write_text(f"NAME, SPEED = {name!r}, {100 / 2**i}\n" + FAKE)
            own = (("q4_1", "broken"),) if name == "broken" else ()
            made.append(Engine(name, str(script), takes=("q4_1", "minilm", "embedding-gemma2"), weights=own))
        monkeypatch.setattr(measure, "ENGINES", made)
        monkeypatch.setattr(measure, "ENCODERS", made)
        monkeypatch.setattr(measure, "MEDIA", made)
        monkeypatch.setattr(measure, "encoder_operations", lambda path, lengths: 3.0 * sum(lengths))
        order = processes.Worker.order

        def noted(self: Any, **what: Any) -> Any:
            if what["do"] == "decode":
                turns.append(self.engine.name)
            return order(self, **what)

        monkeypatch.setattr(processes.Worker, "order", noted)
        for function in ("tensor_bytes", "cache_bytes"):
            monkeypatch.setattr(measure, function, lambda *_: 4)
        found = weights.Weights(tmp_path / "weights", str(tmp_path / "q4_1"))
        monkeypatch.setattr(found, "path", lambda name, python=None: tmp_path / name)
        return measure.Bench(found, tmp_path, 2, rounds, open(tmp_path / "log", "w"), **options), turns

    return make


ROW = Rate("decode", "decode", "q4_1", "decode", 5, Goal(2.0), count=64)


def test_engines_take_turns(pretend: Any) -> None:
    """Each once a round, another first each time; the warm-up is not counted; every engine is a process that is kept."""
    bench, turns = pretend("iron", "llama.cpp", "third")
    (result,) = bench.run([ROW])
    assert turns == ["iron", "llama.cpp", "third", "llama.cpp", "third", "iron", "third", "iron", "llama.cpp"]
    assert {name: s.values for name, s in result.engines.items()} == {
        name: [pytest.approx(speed)] * 2 for name, speed in (("iron", 100), ("llama.cpp", 50), ("third", 25))
    }
    assert result.ratio("llama.cpp")[0] == pytest.approx(2) and result.verdict == "met"
    assert result.token_bytes == 4 + 4 * (5 + 32.5) and result.read_limits == [1e9, 1e9]
    assert result.weights_read == [5e8, 5e8]
    assert bench.versions == dict.fromkeys(("iron", "llama.cpp", "third"), "1")


def test_rows_of_vectors(pretend: Any) -> None:
    """Texts a second, of texts of the lengths that the row says; the operations of one are an average."""
    bench, _ = pretend("iron", "other")
    (result,) = bench.run([Vectors("v", "vectors", "minilm", (8, 16), 2, 6, Goal(best=1.5))])
    assert {name: s.values for name, s in result.engines.items()} == {"iron": [pytest.approx(100)] * 2, "other": [pytest.approx(50)] * 2}
    assert result.text_operations == 36 and result.verdict == "met"
    assert [len(ids) for ids in measure.drawn_ids((8, 16))] == [8, 16] == [len({*ids}) for ids in measure.drawn_ids((8, 16))]


def test_rows_of_sequences(pretend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prompts that differ; tokens of all sequences a second, for each of which a share of the weights and its own cache are read."""
    bench, _ = pretend("iron", "other")
    monkeypatch.setattr(measure.Bench, "ids", lambda self, count: list(range(count)))
    (result,) = bench.run([Rate("b", "batch", "q4_1", "batch", 32, Goal(), count=16, sequences=4)])
    assert {name: s.values for name, s in result.engines.items()} == {"iron": [pytest.approx(400)] * 2, "other": [pytest.approx(200)] * 2}
    assert result.token_bytes == 4 / 4 + 4 * (32 + 8.5)


def test_rows_of_media(pretend: Any) -> None:
    """Vectors a second of what the row names; Iron says how much it multiplies for one."""
    bench, _ = pretend("iron", "other")
    (result,) = bench.run([Media("m", "vectors", "embedding-gemma2", "clip", 2, Goal(best=2.0))])
    assert {name: s.values for name, s in result.engines.items()} == {"iron": [pytest.approx(100)] * 2, "other": [pytest.approx(50)] * 2}
    assert result.text_operations == 3 and result.verdict == "met"


def test_an_engine_that_fails_is_left_out_with_its_reason(pretend: Any) -> None:
    """When it loads, in the middle, or by --without: the others go on."""
    bench, _ = pretend("iron", "broken", "tired", "dead", "llama.cpp", without=("llama.cpp",))
    (result,) = bench.run([ROW])
    assert len(result.engines["iron"].values) == 2
    reasons = {name: samples.skipped for name, samples in result.engines.items() if samples.skipped}
    assert reasons == {
        "broken": "RuntimeError: the file does not load",
        "tired": "RuntimeError: enough",
        "dead": "it ended with status 7; its last words are in the log",
        "llama.cpp": "left out by --without",
    }


def test_a_peer_that_does_not_install_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pip's last line; without --no-install only."""
    peer = Engine("peer", "peer.py", ("no-such-thing @ file:///absent",))
    with pytest.raises(engines.Unavailable, match="--no-install"):
        engines.python_of(peer, tmp_path, install=False)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(engines.Unavailable, match="does not install"):
        engines.python_of(peer, tmp_path)


def test_made_weights_load_in_iron(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small one of the drawn model, and it requantised: Iron opens both; bytes are the tensors'."""
    pytest.importorskip("gguf", reason="the gguf package, which makes the files, is not installed")
    from iron_llama.model import Llama
    from iron_lm import loading

    small = dict(weights._LLAMA_1B, embedding_length=128, block_count=2, feed_forward_length=256, vocab_size=512)
    small |= {"attention.head_count": 4, "attention.head_count_kv": 2, "rope.dimension_count": 32}
    monkeypatch.setitem(weights.DRAWN, "llama-1b-bf16", ("llama", small, 500000.0, "BF16"))
    folder = weights.Weights(tmp_path, str(tmp_path / "llama-1b-bf16.gguf"))
    drawn, made = folder.path("llama-1b-bf16"), folder.path("q8_0")
    assert folder.path("q8_0") == made and not list(tmp_path.glob(".*"))
    for file, stored in ((drawn, "bfloat16"), (made, "q8_0")):
        loaded = loading.load(Llama, str(file), max_seq_len=64)
        assert loaded.tokenizer is None and loaded.stored.startswith(stored) and loaded.config.num_kv_heads == 2
    layers = 2 * (128 * 128 * 2 + 128 * 64 * 2 + 3 * 128 * 256)
    numbers = 512 * 128 + layers
    chunks = folder.path("q4nx")
    assert loading.load(Llama, str(chunks), max_seq_len=64).stored == "q4nx as in the file"
    assert weights.tensor_bytes(chunks) == numbers // 32 * 20 + 2 * 128 * 5 and weights.cache_bytes(chunks) == 2 * 2 * 2 * 2 * 32
    assert weights.tensor_bytes(drawn) == 2 * numbers + 4 * 128 * 5
    assert weights.cache_bytes(drawn) == 2 * 2 * 2 * 2 * 32


#: A Llama whose rows are whole superblocks, of as many layers as Llama 3.2 1B.
_SUPERBLOCKS = dict(weights._LLAMA_1B, embedding_length=256, feed_forward_length=256, vocab_size=256) | {
    "attention.head_count": 4, "attention.head_count_kv": 2, "rope.dimension_count": 64,
}  # fmt: skip


def test_a_drawn_mixed_file_loads_in_iron(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two formats, each tensor as stored; bytes are the tensors', the embedding's once, for it is the head. Its tokenizer is another
    file's, filled up."""
    gguf = pytest.importorskip("gguf", reason="the gguf package, which makes the files, is not installed")
    from iron_llama.model import Llama
    from iron_lm import loading

    words = gguf.GGUFWriter(tmp_path / "words.gguf", "llama")
    words.add_tokenizer_model("gpt2")
    words.add_tokenizer_pre("default")
    words.add_token_list([*"abcd", "ab"])
    words.add_token_types([1] * 5)
    words.add_token_merges(["a b"])
    words.write_header_to_file()
    words.write_kv_data_to_file()
    words.close()
    monkeypatch.setitem(weights.DRAWN, "llama-1b-q4_k_m", ("llama", _SUPERBLOCKS, 500000.0, "Q4_K_M"))
    file = weights.Weights(tmp_path, str(tmp_path / "words.gguf")).path("llama-1b-q4_k_m")
    loaded = loading.load(Llama, str(file), max_seq_len=64)
    assert "q4_k" in loaded.stored and "q6_k" in loaded.stored
    assert loaded.tokenizer is not None and loaded.tokenizer.encode("dab") == [3, 4]
    # eight of sixteen layers have six bits for values and down projections: the first two, the last two, every third between
    six = 256 * 256 + 8 * (256 * 128 + 256 * 256)
    four = 16 * (2 * 256 * 256 + 256 * 128 + 2 * 256 * 256) + 8 * (256 * 128 + 256 * 256)
    assert weights.tensor_bytes(file) == six // 256 * 210 + four // 256 * 144 + 4 * 256 * 33


def test_its_tensors_have_the_formats_that_llama_cpp_chooses(tmp_path: Path) -> None:
    """Its quantiser, given the same shape in bfloat16, makes a Q4_K_M of the same types."""
    gguf = pytest.importorskip("gguf", reason="the gguf package, which makes the files, is not installed")
    pytest.importorskip("llama_cpp", reason="llama-cpp-python, whose quantiser is asked, is not installed")
    weights.drawn("llama", _SUPERBLOCKS, 500000.0, "BF16", tmp_path / "bf16.gguf")
    weights.drawn("llama", _SUPERBLOCKS, 500000.0, "Q4_K_M", tmp_path / "drawn.gguf")
    weights.quantized(lambda: sys.executable, tmp_path / "bf16.gguf", weights.QUANTIZED["smollm2-q4_k_m"], tmp_path / "made.gguf")
    types = [{t.name: t.tensor_type for t in gguf.GGUFReader(tmp_path / f"{name}.gguf").tensors} for name in ("drawn", "made")]
    assert types[0] == types[1]


def test_files_of_llama_cpps_tool_say_why_there_are_none(tmp_path: Path) -> None:
    """No llama.cpp, or one whose tool fails: its last words."""
    with pytest.raises(weights.Missing, match=r"there is no llama\.cpp"):
        weights.Weights(tmp_path, "absent.gguf").path("smollm2-q6_k")
    with pytest.raises(weights.Missing, match=r"llama\.cpp's tool failed: no output"):
        weights.Weights(tmp_path, "absent.gguf", lambda: "/bin/false").path("smollm2-q6_k")


def test_a_drawn_qwen3_is_quantized_by_iron_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its heads are of the size that is said; what Iron reads of it as int8 is a byte for each number but the embedding's."""
    pytest.importorskip("gguf", reason="the gguf package, which makes the files, is not installed")
    from iron_lm import families, loading
    from iron_lm.checkpoints.checkpoint import Checkpoint

    small = dict(weights._QWEN3, embedding_length=64, block_count=2, feed_forward_length=96, vocab_size=256)
    small |= {"attention.head_count": 4, "attention.head_count_kv": 2, "attention.key_length": 32, "rope.dimension_count": 32}
    monkeypatch.setitem(weights.DRAWN, "qwen3-0.6b-q8_0", ("qwen3", small, 1e6, "Q8_0"))
    file = weights.Weights(tmp_path).path("qwen3-0.6b-q8_0")
    checkpoint = Checkpoint.open(file)
    loaded = loading.load(families.of(checkpoint), checkpoint, max_seq_len=64, quantize="int8")
    assert loaded.family.name == "qwen3" and loaded.stored.startswith("int8 from q8_0")
    matrices = 2 * (2 * 128 * 64 + 2 * 64 * 64 + 3 * 64 * 96)
    vectors = 4 * (5 * 64 + 4 * 32)
    assert weights.tensor_bytes(file) == (matrices + 256 * 64) * 34 // 32 + vectors
    assert weights.tensor_bytes(file, quantized=True) == matrices + 256 * 64 * 34 // 32 + vectors
    assert weights.cache_bytes(file) == 2 * 2 * 2 * 2 * 32


def test_a_run_is_watched_from_outside() -> None:
    """Seconds, CPU seconds and memory of a program that fills some; one that fails is an error with its last words."""
    ran = processes.Ran([sys.executable, "-c", "import time; x = bytearray(b'x' * 50_000_000); time.sleep(0.2); print('done')"])
    assert ran.out == "done\n" and ran.cpu > 0 and ran.wall > 0
    assert ran.memory > 40e6 or not Path("/proc/self/status").exists()
    with pytest.raises(engines.Unavailable, match="status 3: what went wrong"):
        processes.Ran([sys.executable, "-c", "import sys; print('what went wrong', file=sys.stderr); sys.exit(3)"])


def test_the_command_line(pretend: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong row is status 2; a run prints machine, limits and table, and --json has all of it."""
    assert program.main(["--rows", "nope"]) == 2 and "no row nope" in capsys.readouterr().err
    pretend("iron", "llama.cpp")
    monkeypatch.setattr(weights.Weights, "path", lambda self, name, python=None: tmp_path / name)
    line = ["--rows", "decode", "--quick", "--threads", "2", "--work", str(tmp_path), "--json", str(tmp_path / "out.json")]
    assert program.main(line) == 0
    out = capsys.readouterr().out
    assert "limits: read 1.0 GB/s" in out and "| decode, Q4_1, contexts 5 to 133 (tok/s) | iron" in out
    pretend("dead", "iron")
    (tmp_path / "iron.py").write_text("raise SystemExit(9)")
    assert program.main(line) == 1 and "iron: it ended with status 9" in capsys.readouterr().out
    pretend("iron")
    assert program.main(line) == 0
    found = json.loads((tmp_path / "out.json").read_text())
    assert found["rounds"] == 1 and found["rows"][0]["key"] == "decode" and found["machine"]["cpus"] >= 1
