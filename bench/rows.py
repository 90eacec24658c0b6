"""The rows of the table: what is measured, with which weights, and what it has to reach."""

from __future__ import annotations

import attrs


@attrs.frozen
class Goal:
    """`ratio`: times llama.cpp's rate; `best`: times that of the fastest peer. `read`: share of the measured read bandwidth.
    `most`: of the row's own unit."""

    ratio: float | None = None
    read: float | None = None
    most: float | None = None
    best: float | None = None

    def text(self, unit: str) -> str:
        """For the table."""
        parts = [f"{self.ratio:g} x llama.cpp"] if self.ratio else []
        parts += [f"{self.best:g} x the best"] if self.best else []
        parts += [f"{100 * self.read:.0f} % of read"] if self.read else []
        parts += [f"at most {self.most:g} {unit}"] if self.most else []
        return ", ".join(parts)


@attrs.frozen
class Rate:
    """Tokens a second. `do` "decode": `count` tokens after a prompt of `prompt`; "prompt": the prompt itself; "batch": as "decode", of
    `sequences` at once, whose tokens are all counted. `context`: tokens the caches hold, for each sequence. `engines`: names, None for
    all that take the weights. `quantize`: what Iron makes of projections when it loads them; others run the file as it is. `chunk`:
    tokens of a prompt that Iron takes at once, None for the usual number."""

    key: str
    title: str
    weights: str
    do: str
    prompt: int
    goal: Goal
    count: int = 0
    context: int = 1024
    engines: tuple[str, ...] | None = None
    quantize: str | None = None
    chunk: int | None = None
    sequences: int = 1
    unit: str = "tok/s"

    @property
    def settings(self) -> dict[str, object]:
        """Of its worker; rows of the same ones share it."""
        return {"context": self.context, "quantize": self.quantize, "chunk": self.chunk, "sequences": self.sequences}

    def mean_context(self, count: int) -> float:
        """Tokens a decode step attends to, on average over `count` of them."""
        return self.prompt + (count + 1) / 2


@attrs.frozen
class Vectors:
    """Texts a second that an encoder makes vectors of: as many as `lengths`, in tokens, `batch` at a time, over and over until they
    are `count`. Ids are given, so that no tokenizer is timed. `dtype`: what the weights, which are float32, are computed in."""

    key: str
    title: str
    weights: str
    lengths: tuple[int, ...]
    batch: int
    count: int
    goal: Goal
    dtype: str = "float32"
    engines: tuple[str, ...] | None = None
    unit: str = "texts/s"

    @property
    def settings(self) -> dict[str, object]:
        """Of its worker; rows of the same ones share it."""
        return {"dtype": self.dtype}


@attrs.frozen
class Media:
    """Vectors a second that EmbeddingGemma 2 makes of `what`, "text", "clip" or "image", one at a time, `count` of them in a turn: a
    text of 512 tokens from its ids, ten seconds from samples, 480 x 640 pixels. Peers are given the features that they make of these."""

    key: str
    title: str
    weights: str
    what: str
    count: int
    goal: Goal
    dtype: str = "float32"
    engines: tuple[str, ...] | None = None
    unit: str = "vectors/s"

    @property
    def settings(self) -> dict[str, object]:
        """Of its worker; rows of the same ones share it."""
        return {"dtype": self.dtype}


@attrs.frozen
class Watched:
    """A whole run seen from outside: "start", "kernels" or "memory". Smaller is better."""

    key: str
    title: str
    unit: str
    goal: Goal
    engines: tuple[str, ...] = ("iron",)


#: What a row may be.
Row = Rate | Vectors | Media | Watched

_BOTH = ("iron", "llama.cpp")
#: Lengths of 32 texts as they come, in tokens: short ones are many.
MIXED = tuple(round(8 * 32 ** (i * 13 % 32 / 31)) for i in range(32))


def _minilm(dtype: str = "float32") -> tuple[Vectors, ...]:
    """Rows of MiniLM: one text at a time, 32 of one length, 32 of many."""
    found = []
    exact = dtype == "float32"
    ends, engines = ("", None) if exact else ("-bf16", ("iron", "sentence-transformers", "openvino"))
    for length, count in ((16, 128), (128, 32), (256, 16)):
        for batch in (1, 32):
            texts = "a text" if batch == 1 else f"{batch} texts"
            title = f"vectors of {texts} of {length} tokens, MiniLM" + ("" if exact else ", bfloat16")
            goal = Goal(best=1.5 if batch == 1 else 1.0) if exact else Goal()
            key, lengths = f"minilm-{length}-{batch}{ends}", (length,) * batch
            found.append(Vectors(key, title, "minilm", lengths, batch, max(count, batch), goal, dtype, engines))
    title = "vectors of 32 texts of 8 to 256 tokens, MiniLM" + ("" if exact else ", bfloat16")
    goal = Goal(best=1.2) if exact else Goal()
    return (*found, Vectors(f"minilm-mixed-32{ends}", title, "minilm", MIXED, 32, 32, goal, dtype, engines))


def _media(dtype: str = "float32") -> tuple[Media, ...]:
    """Rows of EmbeddingGemma 2's full shape, drawn weights."""
    exact = dtype == "float32"
    whats = (("text", "a text of 512 tokens", 3), ("clip", "a clip of 10 s", 2), ("image", "an image of 480 x 640", 1))
    return tuple(
        Media(
            f"gemma2-{what}" + ("" if exact else "-bf16"),
            f"vectors of {said}, EmbeddingGemma 2 shape" + ("" if exact else ", bfloat16"),
            *("embedding-gemma2", what, count, Goal(best=2.0) if exact else Goal(), dtype),
        )
        for what, said, count in whats
    )


ROWS: tuple[Row, ...] = (
    Rate("decode", "decode, Q4_1, contexts 5 to 133", "q4_1", "decode", 5, Goal(2.2, 0.75), count=128),
    Rate("decode-512", "decode, Q4_1, context 512", "q4_1", "decode", 512, Goal(2.2, 0.75), count=64),
    Rate("prompt", "prompt of 512, Q4_1", "q4_1", "prompt", 512, Goal(2.5)),
    Rate("decode-4096", "decode, Q4_1, context 4096", "q4_1", "decode", 4096, Goal(1.3), count=32, context=4352, engines=_BOTH),
    Rate("decode-q8_0", "decode, Q8_0", "q8_0", "decode", 5, Goal(1.3), count=128),
    Rate("decode-q4_0", "decode, Q4_0", "q4_0", "decode", 5, Goal(1.3), count=128),
    Rate("decode-q4nx", "decode, Q4NX", "q4nx", "decode", 5, Goal(read=0.75), count=128),
    Rate("decode-1b", "decode, bfloat16, Llama 3.2 1B shape", "llama-1b-bf16", "decode", 5, Goal(read=0.85), count=24),
    Rate("decode-int8", "decode, int8, Qwen3 0.6B shape", "qwen3-0.6b-q8_0", "decode", 5, Goal(read=0.8), count=32, quantize="int8"),
    *_minilm(),
    *_minilm("bfloat16"),
    Watched("start", "start to first token, warm cache, CPU", "s", Goal(most=1.0), _BOTH),
    Watched("kernels", "kernels, cold cache", "s", Goal(most=20.0)),
    Watched("memory", "peak memory beyond the caches, cache of 2048 filled", "MB", Goal(most=150.0), _BOTH),
)


#: What takes gigabytes and minutes: only where it is asked for.
LARGE: tuple[Row, ...] = (*_media(), *_media("bfloat16"))


#: Mixtures of experts at their full widths, four layers of them; a chunk of a prompt is all of it, for each reads most experts.
MIXTURES: tuple[Row, ...] = tuple(
    row
    for key, title, weights in (
        ("moe", "Q4_0, Qwen1.5-MoE-A2.7B shape, 4 of 24 layers", "qwen1.5-moe-q4_0"),
        ("moe3", "Q4_0, Qwen3-30B-A3B shape, 4 of 48 layers", "qwen3-moe-q4_0"),
    )
    for row in (
        Rate(f"decode-{key}", f"decode, {title}", weights, "decode", 5, Goal(1.5, 0.7), count=48, engines=_BOTH, chunk=512),
        Rate(f"prompt-{key}", f"prompt of 512, {title}", weights, "prompt", 512, Goal(2.0), engines=_BOTH, chunk=512),
    )
)


def _formats() -> tuple[Rate, ...]:
    """Rows of the formats that files have: SmolLM2's of every kind, and Llama's shapes in Q4_K_M."""
    found = []
    for kind in ("Q4_K_M", "Q5_K_M", "Q6_K", "Q8_0", "Q4_0"):
        found.append((f"smollm2-{kind.lower()}", f"{kind}, SmolLM2", 128))
    for size, count in (("1B", 32), ("3B", 12)):
        found.append((f"llama-{size.lower()}-q4_k_m", f"Q4_K_M, Llama 3.2 {size} shape", count))
    return tuple(
        row
        for weights, title, count in found
        for row in (
            Rate(f"decode-{weights}", f"decode, {title}", weights, "decode", 5, Goal(1.5, 0.7), count=count),
            Rate(f"prompt-{weights}", f"prompt of 512, {title}", weights, "prompt", 512, Goal()),
        )
    ) + tuple(
        Rate(
            f"batch-{sequences}-{weights}", f"decode of {sequences} sequences, {title}", weights, "batch", 32,
            Goal(1.5 if sequences == 8 else None), count=count // 4, context=128, engines=_BOTH, sequences=sequences,
        )
        for weights, title, count in (found[0], found[-2])
        for sequences in (1, 4, 8)
    )  # fmt: skip


#: The formats that files have.
FORMATS: tuple[Row, ...] = _formats()


def chosen(keys: str | None, large: bool = False, mixtures: bool = False, formats: bool = False) -> list[Row]:
    """Rows whose keys are named, separated by commas; without, those of mixtures of experts if `mixtures` and of formats if
    `formats`, else all, the large ones too if `large`. ValueError for a name there is not."""
    if not keys:
        apart = [*(MIXTURES if mixtures else ()), *(FORMATS if formats else ())]
        return apart or [*ROWS, *(LARGE if large else ())]
    known = {row.key: row for row in (*ROWS, *LARGE, *MIXTURES, *FORMATS)}
    wanted = keys.split(",")
    wrong = [key for key in wanted if key not in known]
    if wrong:
        raise ValueError(f"no row {', '.join(wrong)}; rows: {', '.join(known)}")
    return [known[key] for key in wanted]
