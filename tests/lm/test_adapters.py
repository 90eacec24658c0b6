"""LoRA adapters on a Llama: PEFT's and llama.cpp's, on floats, blocks and int8; what is refused, and whose states are whose."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import iron_lm
from iron_core import bfloat16
from iron_core.cli import main
from iron_core.errors import CheckpointError, UsageError
from iron_llama.model import Llama
from iron_lm import adapters, loading
from iron_lm.checkpoints import names
from iron_lm.checkpoints.sources import source_of
from iron_lm.generation import shifting
from iron_lm.generation.session import Session
from iron_lm.generation.shifting import Shift
from tests.lm import lora
from tests.lm.conftest import TINY, gguf_permutation

PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def shapes(tiny: Any, *modules: str) -> dict[str, tuple[int, int]]:
    """(N, K) of a Llama's projections, or of those of these names, by module."""
    found = {name.removesuffix(".weight"): shape for name, (shape, _, _) in tiny.checkpoint.tensors.items()}
    return {name: shape for name, shape in found.items() if name.endswith(modules or PROJECTIONS)}


def load(path: Path = TINY, **options: Any) -> Any:
    return loading.load(Llama, path, **dict(max_seq_len=64) | options)


@pytest.fixture
def pairs(tiny: Any) -> lora.Pairs:
    return lora.drawn(shapes(tiny))


@pytest.fixture
def adapter(pairs: lora.Pairs, tmp_path: Path) -> Path:
    return lora.write(tmp_path / "adapter", lora.tensors_of(pairs))


def in_gguf(tiny: Any, pairs: lora.Pairs) -> lora.Pairs:
    """Under llama.cpp's names, rows of queries and keys in its order."""
    c, found = tiny.config(), {}
    theirs = {path: source_of(names.GGUF, path).names[0] for path in Llama.build(c, tiny.loaded().run).tensors()}
    for path, name in theirs.items():
        module = source_of(names.HUGGINGFACE, path).names[0].removesuffix(".weight")
        if module in pairs:
            a, b = pairs[module]
            heads = {"q": c.num_heads, "k": c.num_kv_heads}.get(path.rpartition(".")[2])
            found[name] = (a, b if heads is None else gguf_permutation(b, heads))
    return found


# -- numbers -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", (np.float32, np.float16))
def test_a_gguf_with_an_adapter_in_gguf_is_the_folder_with_pefts(tiny: Any, tiny_gguf: Any, pairs: Any, tmp_path: Path, kind: Any) -> None:
    """Of the same numbers: rows of queries and keys meet those that the converter put elsewhere."""
    halves = {module: (a.astype(kind).astype(np.float32), b.astype(kind).astype(np.float32)) for module, (a, b) in pairs.items()}
    folder = load(lora=lora.write(tmp_path / "adapter", lora.tensors_of(halves)), dtype="float32")
    file = lora.write_gguf(tmp_path / "adapter.gguf", in_gguf(tiny, pairs), kind=kind)
    gguf = load(tiny_gguf("F32"), lora=file, dtype="float32")
    want = folder.twin(tiny.ids[:30])
    assert np.abs(gguf.twin(tiny.ids[:30]) - want).max() < 1e-4
    for backend in ("reference", "host"):
        assert np.abs(Session(gguf.model(), backend=backend).logits(tiny.ids[:30]) - want[-1]).max() < 1e-4


#: What the library PEFT and llama.cpp's converter wrote, and the logits that PEFT gave, by the adapters that were on (`make_goldens.py`).
PEFT = Path(__file__).parents[1] / "data" / "peft"
GOLDEN = {"first": {"first": 1.0}, "second": {"second": 1.0}, "first+second": {"first": 0.5, "second": -1.5}}


@pytest.mark.parametrize("backend", ("reference", "host"))
@pytest.mark.parametrize("which", GOLDEN)
def test_logits_are_those_that_peft_gave(which: str, backend: str) -> None:
    """Of rank 8 on every projection; with patterns and scales by roots; of both, each with a scale; within 1e-4, for a prompt and steps."""
    stored = np.load(PEFT / "outputs.npz")
    ids, want = stored["ids"].tolist(), stored[which]
    loaded = load(lora={PEFT / name: scale for name, scale in GOLDEN[which].items()}, dtype="float32", prefill_chunk=16)
    assert np.abs(loaded.twin(ids) - want).max() < 1e-4
    session = Session(loaded.model(), backend=backend)
    for n in (1, 16, 38, 39, 40):
        assert np.abs(session.logits(ids[:n]) - want[n - 1]).max() < 1e-4, n


def test_what_llama_cpp_made_of_it_gives_the_same(tiny_gguf: Any, tmp_path: Path) -> None:
    """On a GGUF of the model, under llama.cpp's names, rows in its order."""
    stored = np.load(PEFT / "outputs.npz")
    stored["first.gguf"].tofile(tmp_path / "first.gguf")
    loaded = load(tiny_gguf("F32"), lora=tmp_path / "first.gguf", dtype="float32")
    assert "(rank 8, 14 matrices)" in loaded.stored
    found = Session(loaded.model(), backend="host").logits(stored["ids"].tolist())
    assert np.abs(found - stored["first"][-1]).max() < 1e-4


@pytest.mark.parametrize("kind", ("Q8_0", "Q4_0"))
@pytest.mark.parametrize("options", ({}, {"activations": "exact"}, {"quantize": "int8"}), ids=("blocks", "exact", "int8"))
def test_a_quantised_model_takes_it_as_near_as_it_is_itself(
    tiny: Any, tiny_gguf: Any, pairs: Any, tmp_path: Path, kind: str, options: dict[str, Any]
) -> None:
    """What it adds is computed in float32 beside blocks and int8: the logits are as near to the twin's as without it, within twice."""
    file = lora.write_gguf(tmp_path / "adapter.gguf", in_gguf(tiny, pairs))
    path = tiny_gguf(kind)
    gaps = []
    for asked in (None, file):
        loaded = load(path, lora=asked, **options)
        want = loaded.twin(tiny.ids[:30])[-1]
        gaps.append(np.abs(Session(loaded.model(), backend="host").logits(tiny.ids[:30]) - want).max() / want.std())
    changed = load(path).twin(tiny.ids[:30])[-1]
    assert gaps[1] < max(2 * gaps[0], 2e-3)
    assert np.abs(changed - want).max() > 5 * gaps[1]


@pytest.mark.parametrize(
    ("kind", "scale", "options", "held"),
    (
        (np.float16, 2, {}, "float16"), (bfloat16, 0.25, {}, "bfloat16"), (np.float32, 1, {}, "float32"), (np.float16, 0.3, {}, "float32"),
        (np.float16, 1, {"dtype": "bfloat16"}, "bfloat16"),
    ),
)  # fmt: skip
def test_halves_are_held_as_halves_where_that_is_exact(
    tiny: Any, pairs: Any, tmp_path: Path, kind: Any, scale: float, options: dict[str, Any], held: str
) -> None:
    """With the scale in them; the logits are those of the same numbers in float32. A model of bfloat16 has all in it."""
    halves = {module: tuple(matrix.astype(kind).astype(np.float32) for matrix in pair) for module, pair in pairs.items()}
    path = lora.write(tmp_path / "halves", {name: t.astype(kind) for name, t in lora.tensors_of(halves).items()}, lora_alpha=4)
    loaded = load(lora={path: scale}, **{"dtype": "float32"} | options)
    model = loaded.model()
    mixer = model.layers[0].mixer
    assert str(mixer.q_lora_a.dtype) == str(mixer.q_lora_b.dtype) == held
    if held != "bfloat16" or not options:
        want = load(lora={lora.write(tmp_path / "wide", lora.tensors_of(halves), lora_alpha=4): scale}, dtype="float32").twin(tiny.ids[:20])
        assert np.abs(Session(model, backend="host").logits(tiny.ids[:20]) - want[-1]).max() < 1e-4


def test_alpha_of_nothing_in_a_gguf_is_a_scale_of_one(tiny: Any, tiny_gguf: Any, pairs: Any, tmp_path: Path) -> None:
    """As llama.cpp has it; else what is added is multiplied by alpha / rank."""
    base, given = tiny_gguf("F32"), in_gguf(tiny, pairs)
    found = [load(base, lora=lora.write_gguf(tmp_path / f"{alpha}.gguf", given, alpha)).twin(tiny.ids[:9]) for alpha in (0.0, 4.0)]
    np.testing.assert_allclose(found[0], found[1], atol=1e-5)


def test_a_bfloat16_model_computes_it_in_bfloat16(tiny: Any, adapter: Path) -> None:
    """As PEFT does: within a twentieth of the twin's spread."""
    loaded = load(lora=adapter, dtype="bfloat16")
    want = loaded.twin(tiny.ids[:20])[-1]
    assert np.abs(Session(loaded.model(), backend="host").logits(tiny.ids[:20]) - want).max() < 0.05 * want.std()


def test_patterns_say_ranks_and_alphas_of_some_modules(tiny: Any, tmp_path: Path) -> None:
    """The first that matches the end of a module's name, and alpha over the square root of the rank where that is asked for."""
    q, v = (lora.drawn(shapes(tiny, name), rank) for name, rank in (("q_proj", 4), ("v_proj", 2)))
    told = dict(rank_pattern={"v_proj": 2}, alpha_pattern={r"layers.0.self_attn.v_proj": 3, "v_proj": 5})
    found = load(lora=lora.write(tmp_path / "a", lora.tensors_of(q | v), use_rslora=True, **told), dtype="float32").adapters.pairs
    for i, alpha in ((0, 3), (1, 5)):
        module = f"model.layers.{i}.self_attn.v_proj"
        np.testing.assert_allclose(found[f"layers.{i}.mixer.v"].b, v[module][1] * (alpha / 2**0.5), rtol=1e-6)
        np.testing.assert_allclose(found[f"layers.{i}.mixer.q"].b, q[module.replace("v_proj", "q_proj")][1] * 4, rtol=1e-6)


# -- whose -------------------------------------------------------------------------------------------


def test_states_and_caches_of_other_adapters_are_told_apart(tiny: Any, adapter: Path, pairs: Any, tmp_path: Path) -> None:
    """By every number of it, and by its scale; what is compiled, by ranks alone."""
    module, (a, b) = next(iter(pairs.items()))
    b = b.copy()
    b[5, 2] += 1
    changed = lora.write(tmp_path / "changed", lora.tensors_of(pairs | {module: (a, b)}))
    other = lora.write(tmp_path / "other", lora.tensors_of(lora.drawn(shapes(tiny), 2)), r=2)
    found = [load(lora=asked) for asked in (None, adapter, {adapter: 0.5}, changed, other)]
    assert len({json.dumps(loaded.whose) for loaded in found}) == 5
    assert [found[1].cache_key == loaded.cache_key for loaded in found] == [False, True, True, True, False]


#: A family whose sources are not known, as one typed at a prompt: no version of Iron tells its states apart.
SCRIPTS = type("Mine", (Llama,), {"__module__": "a_script"})


@pytest.mark.parametrize("family", (Llama, SCRIPTS), ids=("installed", "a script's"))
def test_a_state_goes_to_the_same_adapters_alone(tiny: Any, adapter: Path, tmp_path: Path, family: Any) -> None:
    """Not from the plain model to one with an adapter, nor back, to another adapter of the same rank, to another scale, or to two; what
    is refused leaves the caches as they were."""
    other = lora.write(tmp_path / "other", lora.tensors_of(lora.drawn(shapes(tiny), seed=1)))
    asked = {"none": None, "one": adapter, "another": other, "half": {adapter: 0.5}, "two": [adapter, other]}
    models = {name: iron_lm.load(family, TINY, backend="host", max_seq_len=64, lora=given) for name, given in asked.items()}
    for name, model in models.items():
        model.logits(tiny.ids[:9])
        model.save_state(tmp_path / name)
    again = iron_lm.load(family, TINY, backend="host", max_seq_len=64, lora=adapter)
    assert again.load_state(tmp_path / "one") == tiny.ids[:9]
    np.testing.assert_array_equal(again.logits(tiny.ids[:10]).view(np.uint32), models["one"].logits(tiny.ids[:10]).view(np.uint32))
    for name, model in models.items():
        held = model.session.held
        for there in models.keys() - {name}:
            with pytest.raises(CheckpointError, match=rf"^{tmp_path / there}: the state of another model, whose adapters is another"):
                model.load_state(tmp_path / there)
        assert model.session.held == held


def test_an_answer_that_outgrows_its_context_is_that_of_fresh_sessions(tiny: Any, adapter: Path) -> None:
    """With an adapter as without: what is left runs again with it, bit for bit."""
    session, fresh = (Session(load(lora=adapter, prefill_chunk=16).model(), backend="host") for _ in range(2))
    shift, seen = Shift(64, 5), tiny.ids[:20]
    for token in shifting.generate(session, seen, 100, shift=shift):
        seen = [*shift(seen), token]
    np.testing.assert_array_equal(session.logits(seen).view(np.uint32), fresh.logits(seen).view(np.uint32))


def test_a_command_line_goes_on_from_the_state_of_its_adapter(
    tiny: Any, talking: Path, pairs: Any, tmp_path: Path, capfd: Any
) -> None:
    """Of an answer that outgrew its context; with another scale or none it is refused in one line, and the file is as it was."""
    file, state = lora.write_gguf(tmp_path / "adapter.gguf", in_gguf(tiny, pairs)), tmp_path / "state"
    line = ["run", "llama", str(talking), "--prompt", "the", "--num-tokens", "80", "--max-seq-len", "64"]
    line += ["--shift", "--keep", "-1", "--state", str(state)]
    assert main([*line, "--lora", f"{file}=3"]) == 0
    kept, said = state.read_bytes(), capfd.readouterr()
    assert f"--state {state}: " in said.err and " tokens written" in said.err
    for more in ((), ("--lora", str(file))):
        assert main([*line, *more]) == 2
        assert f"{state}: the state of another model, whose adapters is another" in capfd.readouterr().err
        assert state.read_bytes() == kept
    assert main([*line, "--lora", f"{file}=3"]) == 0
    assert re.search(r": (\d+) of the prompt's \1 tokens", capfd.readouterr().err)


def test_answers_side_by_side_are_the_adapters(tiny: Any, talking: Path, pairs: Any, tmp_path: Path, capfd: Any) -> None:
    """Each is the one that its prompt has alone."""
    file = lora.write_gguf(tmp_path / "adapter.gguf", in_gguf(tiny, pairs))
    line = ["run", "llama", str(talking), "--num-tokens", "12", "--max-seq-len", "64", "--lora", f"{file}=3"]
    alone = []
    for prompt in ("the", "a"):
        assert main([*line, "--prompt", prompt]) == 0
        alone.append(capfd.readouterr().out)
    assert main([*line, "--parallel", "2", "--prompt", "the", "--prompt", "a"]) == 0
    assert capfd.readouterr().out == "\n".join(alone)


# -- what is asked -----------------------------------------------------------------------------------


def test_a_command_line_says_what_it_applies(tiny: Any, talking: Path, pairs: Any, tmp_path: Path, capfd: Any) -> None:
    """In its first line, with the scale; the text is another than the plain model's."""
    file = lora.write_gguf(tmp_path / "adapter.gguf", in_gguf(tiny, pairs))
    said = []
    for more in ((), ("--lora", f"{file}=3")):
        assert main(["run", "llama", str(talking), "--prompt", "the", "--num-tokens", "12", "--max-seq-len", "64", *more]) == 0
        said.append(capfd.readouterr())
    assert "lora adapter.gguf (rank 4, 14 matrices, times 3)" in said[1].err and "lora" not in said[0].err
    assert said[0].out != said[1].out


def test_a_name_with_an_equals_sign_is_a_path_where_it_is_one(tmp_path: Path) -> None:
    """Else what follows the last is a scale, if it is a number."""
    there = tmp_path / "a=2"
    there.mkdir()
    assert adapters.named(str(there)) == (str(there), 1.0)
    assert adapters.named("b=0.5") == ("b", 0.5) and adapters.named("b=c") == ("b=c", 1.0) and adapters.named("b") == ("b", 1.0)


@pytest.mark.parametrize("asked", (7, "", [None], {"a": "b"}, {"a": float("nan")}, {"a": True}, [("a", 1, 2)]))
def test_what_names_no_adapter_is_refused(asked: Any) -> None:
    """In one line that says what is legal."""
    with pytest.raises(UsageError, match=r"^lora.*[lL]egal: .*\.$"):
        load(lora=asked)


def test_random_weights_take_none(capfd: Any) -> None:
    """In one line."""
    assert main(["run", "llama", "--random-weights", "0", "--lora", "x"]) != 0
    assert "takes no --lora" in capfd.readouterr().err


# -- what is refused ---------------------------------------------------------------------------------

CANNOT = {
    "use_dora": True, "bias": "all", "modules_to_save": ["lm_head"], "peft_type": "IA3", "init_lora_weights": "pissa", "use_qalora": True,
    "lora_bias": True, "layer_replication": [[0, 1]], "target_parameters": ["experts.down_proj"], "alora_invocation_tokens": [1],
    "trainable_token_indices": [1], "kasa_config": {"beta": 1e-4}, "monteclora_config": {"num_samples": 8}, "use_bdlora": {"nblocks": 2},
}  # fmt: skip


@pytest.mark.parametrize("key", CANNOT)
def test_what_cannot_run_is_refused_by_name(pairs: Any, tmp_path: Path, key: str) -> None:
    """In one line that names the file and the entry."""
    adapter = lora.write(tmp_path / "a", lora.tensors_of(pairs), **{key: CANNOT[key]})
    with pytest.raises(CheckpointError, match=rf"^{adapter / 'adapter_config.json'}: {key} is .*\.$"):
        load(lora=adapter)


BAD_ENTRIES: dict[str, tuple[dict[str, Any], str]] = {
    "no rank": (dict(r=0), "r is 0"),
    "a huge rank": (dict(r=1 << 30), "r is 1073741824"),
    "another rank": (dict(r=8), "has rank 4; legal by r and rank_pattern: \\[8\\]"),
    "an alpha that is none": (dict(lora_alpha="8"), "lora_alpha is '8'"),
    "an alpha of nothing": (dict(lora_alpha=0), "lora_alpha is 0"),
    "a pattern that takes for ever": (dict(alpha_pattern={"(a*)*b": 1}), "alpha_pattern has"),
    "a pattern of many choices": (dict(alpha_pattern={"(a|aa)" * 40: 1}), "alpha_pattern has"),
    "a pattern that is none": (dict(alpha_pattern={"(a": 1}), "alpha_pattern has"),
    "patterns that are a list": (dict(rank_pattern=[1]), "rank_pattern is a list"),
    "a rank that is none": (dict(rank_pattern={"q_proj": "x"}), "rank_pattern is 'x'"),
}  # fmt: skip


@pytest.mark.parametrize("what", BAD_ENTRIES)
def test_entries_that_cannot_be_are_refused(pairs: Any, tmp_path: Path, what: str) -> None:
    changes, said = BAD_ENTRIES[what]
    with pytest.raises(CheckpointError, match=said) as caught:
        load(lora=lora.write(tmp_path / "a", lora.tensors_of(pairs), **changes))
    assert "\n" not in str(caught.value)


Q = "base_model.model.model.layers.0.self_attn.q_proj"
BAD_TENSORS: dict[str, tuple[dict[str, Any], str]] = {
    "one without the other": ({f"{Q}.lora_B.weight": None}, "lora_B of model.layers.0.self_attn.q_proj is missing"),
    "one twice": ({f"{Q}.lora_A.default.weight": np.ones((4, 64), np.float32)}, "lora_A of .* is there twice"),
    "NaN": ({f"{Q}.lora_A.weight": np.full((4, 64), np.nan, np.float32)}, "NaN or infinite"),
    "ranks that differ": ({f"{Q}.lora_A.weight": np.ones((3, 64), np.float32)}, r"\[3, 64\] and \[\d+, 4\]; legal"),
    "a rank of nothing": (
        {f"{Q}.lora_A.weight": np.ones((0, 64), np.float32), f"{Q}.lora_B.weight": np.ones((64, 0), np.float32)}, "rank|legal: \\[r, K\\]",
    ),
    "vectors": ({f"{Q}.lora_A.weight": np.ones(64, np.float32)}, r"legal: \[r, K\]"),
    "a number": ({f"{Q}.lora_B.weight": np.float32(1)}, "has rank 1; legal by r"),
    "columns of another model": ({f"{Q}.lora_A.weight": np.ones((4, 48), np.float32)}, r"is \[4, 48\], not \[4, 64\]; it is of another"),
    "rows of another model": ({f"{Q}.lora_B.weight": np.ones((8, 4), np.float32)}, r"is \[8, 4\], not \[\d+, 4\]; it is of another model"),
    "a head's": ({"base_model.model.lm_head.lora_A.weight": np.ones((4, 64), np.float32),
                  "base_model.model.lm_head.lora_B.weight": np.ones((256, 4), np.float32)}, "lm_head.weight.*Legal: down_proj, gate_proj"),
    "an embedding's": ({"base_model.model.model.embed_tokens.lora_embedding_A": np.ones((4, 64), np.float32)}, "lora_embedding_A is no"),
    "DoRA's": ({f"{Q}.lora_magnitude_vector": np.ones(64, np.float32)}, "lora_magnitude_vector is no lora_A"),
    "a layer's that is not there": ({f"{Q.replace('.0.', '.9.')}.lora_A.weight": np.ones((4, 64), np.float32),
                                     f"{Q.replace('.0.', '.9.')}.lora_B.weight": np.ones((64, 4), np.float32)}, "model.layers.9"),
    "integers": ({f"{Q}.lora_A.weight": np.ones((4, 64), np.int32)}, "int32|I32"),
}  # fmt: skip


@pytest.mark.parametrize("what", BAD_TENSORS)
def test_tensors_that_cannot_be_are_refused(pairs: Any, tmp_path: Path, what: str) -> None:
    changes, said = BAD_TENSORS[what]
    tensors = {name: array for name, array in (lora.tensors_of(pairs) | changes).items() if array is not None}
    with pytest.raises(CheckpointError, match=said) as caught:
        load(lora=lora.write(tmp_path / "a", tensors))
    assert "\n" not in str(caught.value) and str(tmp_path / "a") in str(caught.value)


def test_a_folder_that_is_damaged_is_refused_by_name(adapter: Path, tmp_path: Path) -> None:
    """Cut short anywhere, without its config, with a config that is no JSON, empty, or not there."""
    weights, config = adapter / "adapter_model.safetensors", adapter / "adapter_config.json"
    whole, said = weights.read_bytes(), config.read_text()
    for cut in (0, 7, 200, len(whole) // 2, len(whole) - 1):
        weights.write_bytes(whole[:cut])
        with pytest.raises(CheckpointError, match=str(weights)):
            load(lora=adapter)
    weights.write_bytes(whole)
    for text in ("", "[]", "{"):
        config.write_text(text)
        with pytest.raises(CheckpointError, match=str(config)):
            load(lora=adapter)
    config.unlink()
    with pytest.raises(CheckpointError, match=str(config)):
        load(lora=adapter)
    config.write_text(said)
    weights.unlink()
    for path in (adapter, tmp_path / "nothing"):
        with pytest.raises(CheckpointError, match=rf"^{path}: .*\.$"):
            load(lora=path)


def test_one_that_memory_has_no_room_for_is_refused_before_it_is_read(
    tiny: Any, tiny_gguf: Any, pairs: Any, adapter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its numbers are counted in float32, whatever they are stored in."""
    size = sum(4 * matrix.size for pair in pairs.values() for matrix in pair)
    file = lora.write_gguf(tmp_path / "adapter.gguf", in_gguf(tiny, pairs), kind=np.float16)
    for base, path in ((TINY, adapter), (tiny_gguf("F32"), file)):
        monkeypatch.setattr("iron_lm.process.available_bytes", lambda: size)
        load(base, lora=path)
        monkeypatch.setattr("iron_lm.process.available_bytes", lambda: size - 1)
        with pytest.raises(CheckpointError, match=rf"^{path}.*: its matrices take {size / 1e6:.1f} MB of memory as they run; .* are free"):
            load(base, lora=path)


def test_the_file_alone_is_its_folder(tiny: Any, adapter: Path) -> None:
    one, other = (load(lora=path).twin(tiny.ids[:5]) for path in (adapter, adapter / "adapter_model.safetensors"))
    np.testing.assert_array_equal(one, other)


def test_an_adapter_of_the_other_kind_is_refused(tiny: Any, tiny_gguf: Any, adapter: Path, pairs: Any, tmp_path: Path) -> None:
    """Names and orders of rows are those of the file that it was made for."""
    file = lora.write_gguf(tmp_path / "adapter.gguf", in_gguf(tiny, pairs))
    with pytest.raises(CheckpointError, match="Legal: PEFT's"):
        load(lora=file)
    with pytest.raises(CheckpointError, match="Legal: adapters in GGUF"):
        load(tiny_gguf("F32"), lora=adapter)


@pytest.mark.parametrize(
    ("changes", "said"),
    (
        (dict(general__type="model"), "general.type is 'model'; legal: adapter"),
        (dict(adapter__type="control"), "adapter.type is 'control'; legal: lora"),
        (dict(general__type=None), "general.type is None"),
        (dict(alpha=float("nan")), "alpha is nan"),
        (dict(alpha=-1.0), "alpha is -1.0"),
        (dict(adapter__lora__alpha="8"), "alpha is '8'; legal: a number from 0"),
        (dict(adapter__alora__invocation_tokens="x"), "adapter.alora.invocation_tokens says that it is to add nothing before some tokens"),
    ),
)
def test_a_gguf_that_is_no_adapter_is_refused(
    tiny: Any, tiny_gguf: Any, pairs: Any, tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    file = lora.write_gguf(tmp_path / "adapter.gguf", in_gguf(tiny, pairs), **changes)
    with pytest.raises(CheckpointError, match=said):
        load(tiny_gguf("F32"), lora=file)


@pytest.mark.parametrize("name", ("token_embd", "output", "blk.0.attn_norm", "blk.9.attn_q", "blk.0.ffn_gate_exps"))
def test_a_tensor_on_which_no_adapter_in_gguf_runs_is_refused_by_name(
    tiny: Any, tiny_gguf: Any, pairs: Any, tmp_path: Path, name: str
) -> None:
    """Embedding, head, a norm, a layer that is not there and experts; the line says on which modules one does."""
    more = {f"{name}.weight": next(iter(pairs.values()))}
    file = lora.write_gguf(tmp_path / "adapter.gguf", in_gguf(tiny, pairs) | more)
    says = rf"^{file}: it is of {name}\.weight, on which no adapter runs in this model\. Legal: attn_k, "
    with pytest.raises(CheckpointError, match=says):
        load(tiny_gguf("F32"), lora=file)


def test_a_gguf_that_is_damaged_is_refused_by_name(tiny: Any, tiny_gguf: Any, pairs: Any, tmp_path: Path) -> None:
    """Cut short anywhere; and a model where an adapter is asked for."""
    base, file = tiny_gguf("F32"), lora.write_gguf(tmp_path / "adapter.gguf", in_gguf(tiny, pairs))
    whole = file.read_bytes()
    for cut in (5, 300, len(whole) // 2, len(whole) - 40):
        file.write_bytes(whole[:cut])
        with pytest.raises(CheckpointError, match=str(file)):
            load(base, lora=file)
    with pytest.raises(CheckpointError, match=r"general\.type is"):
        load(base, lora=base)
