"""Qwen3 in INT8: every integer is that of a pipeline written in numpy, and arrays compute what the references do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import iron_core as iron
from iron_core import Scratchpad
from iron_lm.generation.sampler import kl_divergence
from iron_lm.generation.session import Session
from iron_lm.parts import projection
from iron_lm.tasks.gates import check_accuracy
from iron_ops_aie import GEMM
from tests.lm.int8.qwen3 import CONFIG, Pipeline, small

IDS = [int(i) for i in np.random.default_rng(3).integers(0, CONFIG.vocab_size, 21)]


class Watched(iron.Graph):
    """A decoder's states, computed for the integers on the way: what is multiplied, and what that adds up to in int32."""

    def __init__(self, decoder: Any, patch: pytest.MonkeyPatch) -> None:
        self.decoder, self._seen = decoder, []
        plain = projection._product

        def product(x: Any, weight: Any, **extra: Any) -> Any:
            self._seen += [x, GEMM(x, weight, b_col_maj=True, O=np.int32)]
            return plain(x, weight, **extra)

        patch.setattr(projection, "_product", product)

    def body(
        self,
        ids: Any = None,
        *,
        token: Scratchpad[np.int32],
        chunk: Scratchpad[np.int32],
        rows: Scratchpad[np.int32],
        position: Scratchpad[np.int32],
    ) -> Any:
        self._seen.clear()
        self.decoder.states(ids, token, chunk, rows, position, position)
        return tuple(self._seen)


@pytest.mark.parametrize("scale", ["fixed", "dynamic"])
@pytest.mark.parametrize("backend", ["reference", "host"])
def test_every_integer_is_that_of_the_pipeline_in_numpy(backend: str, scale: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a prompt's chunk and of a decode step behind it: int8 activations and int32 sums of all four products of every layer, bit
    for bit."""
    loaded = small(activation_scale=scale)
    pipeline = Pipeline(loaded.exact, scale)
    pipeline.run(IDS)
    assert len(pipeline.seen) == 4 * CONFIG.num_layers
    watched, last = Watched(loaded.model(), monkeypatch).compile(backend=backend), len(IDS) - 1
    padded = np.array(IDS[:last] + [0] * (32 - last), np.int32)
    chunk = watched(padded, token=0, chunk=0, rows=last, position=last - 1)
    step = watched(token=IDS[last], chunk=0, rows=0, position=last)
    for found, rows in ((chunk, slice(0, last)), (step, slice(last, None))):
        for (integers, sums), got in zip(pipeline.seen, zip(found[::2], found[1::2], strict=True), strict=True):
            np.testing.assert_array_equal(got[0], integers[rows])
            np.testing.assert_array_equal(got[1], sums[rows])


@pytest.mark.parametrize("scale", ["fixed", "dynamic"])
def test_logits_are_those_of_the_pipeline_in_numpy(scale: str) -> None:
    """Only float32 sums are in another order, after a prompt and after each step."""
    loaded = small(activation_scale=scale)
    want, session = Pipeline(loaded.exact, scale).run(IDS), Session(loaded.model(), backend="host")
    for n in (20, 21):
        assert np.linalg.norm(session.logits(IDS[:n]) - want[n - 1]) <= 1e-5 * np.linalg.norm(want[n - 1])


def test_a_layer_has_four_products_and_its_integers_lie_in_no_other_form() -> None:
    """Queries, keys and values are one, and so are gate and up; the matrices that they are made of are not resident."""
    model = small().model()
    traced = model.trace()
    products = [step.op for step in traced.steps if type(step.op).__name__ == "GEMV" and step.op.W == np.int8]
    queries, keys = (n * CONFIG.head_dim for n in (CONFIG.num_heads, CONFIG.num_kv_heads))
    wide, hidden = CONFIG.intermediate_size, CONFIG.hidden_size
    one = [(queries + 2 * keys, hidden), (hidden, queries), (2 * wide, hidden), (hidden, wide)]
    assert [(op.M, op.K) for op in products] == one * CONFIG.num_layers
    matrices = {weight.name: str(weight.format) for weight in traced.weights if len(weight.shape) > 1}
    four = ("mixer.qkv", "mixer.out", "ffn.widens", "ffn.narrows")
    named = [f"layers.{i}.{name}.joined.values" for i in range(CONFIG.num_layers) for name in four]
    assert matrices == dict.fromkeys(named, "int8") | {"embedding.table": "float32", "layers.0.mixer.rotary.table": "float32"}


@pytest.mark.parametrize("dev", ["npu1", "npu2"])
def test_arrays_are_within_the_gate(dev: str) -> None:
    """A prompt's chunk and a decode step on simulated arrays, with a fixed scale. Arrays round floats otherwise on the way, so some
    numbers become the next integer: it changes less than making integers of them does, and the model is judged to be the same. The
    limit is twice the largest of five drawn models (0.0016), whose logits are 3 to 6 % off the reference's: a number that becomes the
    next integer is one of 127, in each of eight products."""
    loaded = small(activation_scale="fixed", dtype="bfloat16", max_seq_len=64)
    reference, session = (Session(loaded.model(), **options) for options in (dict(backend="reference"), dict(backend="sim", dev=dev)))
    exact = loaded.twin(IDS)
    for n in (20, 21):
        got, want = session.logits(IDS[:n]), reference.logits(IDS[:n])
        apart = [np.linalg.norm(logits - want) for logits in (got, exact[n - 1])]
        assert apart[0] < apart[1] < 0.1 * np.linalg.norm(want), apart
        assert kl_divergence(want[None], got[None]).item() <= 0.0033


@pytest.mark.parametrize(("scale", "limits"), [("dynamic", (0.0025, 0.0037, 0.008)), ("fixed", (0.014, 0.025, 0.12))])
def test_integers_cost_no_more_accuracy_than_they_did(scale: str, limits: tuple[float, ...]) -> None:
    """On the CPU, beside the float32 oracle: mean, 90th percentile and largest divergence, each within twice the largest of eight drawn
    models over 128 positions."""
    loaded = small(activation_scale=scale)
    ids = [int(i) for i in np.random.default_rng(4).integers(0, CONFIG.vocab_size, 32)]
    report = check_accuracy(Session(loaded.model(), backend="host"), loaded.twin, ids)
    found = {gate.name: gate.figure for gate in report.gates}
    assert report.passed and report.compared == 32
    assert all(found[f"{of} KL"] <= limit for of, limit in zip(("mean", "90th percentile", "largest"), limits, strict=True)), found


class Products(iron.Graph):
    """The products of every layer alone, each of rows of its own."""

    def __init__(self, model: Any) -> None:
        parts = [part for layer in model.layers for part in (layer.mixer.qkv, layer.mixer.out, layer.ffn.widens, layer.ffn.narrows)]
        self.parts = parts

    def body(self, hidden: Any, heads: Any, wide: Any) -> Any:
        given = {x.shape[1]: x for x in (wide, heads, hidden)}
        return tuple(part._multiplied(given[part.shape[1]], part.joined) for part in self.parts)


def test_every_matrix_is_copied_to_the_device_once_and_its_array_stays_loaded() -> None:
    """In contexts of their own four arrays multiply for all layers; another call copies its rows and what they give, no weight, and
    loads no array."""
    model = small(activation_scale="fixed", dtype="bfloat16", max_seq_len=64).model()
    sizes = {"hidden": (1, CONFIG.hidden_size), "heads": (1, CONFIG.num_heads * CONFIG.head_dim), "wide": (1, CONFIG.intermediate_size)}
    products = Products(model)
    run = products.compile(backend="sim", dev="npu2", image=iron.CONTEXTS, **sizes)
    given = [np.random.default_rng(i).standard_normal(shape).astype(iron.bfloat16) for i, shape in enumerate(sizes.values())]
    run(*given)
    first = run.traffic
    found = run(*given)
    assert first.residents == sum(part.shape[0] * part.shape[1] for part in products.parts)
    assert (first.loads, len(found)) == (4 + len(sizes), 4 * CONFIG.num_layers), "four that multiply, and one that rounds for each size"
    rows, columns = (sum(array.nbytes for array in arrays) for arrays in (given, found))
    assert run.traffic - first == type(first)(inputs=rows, outputs=columns)
