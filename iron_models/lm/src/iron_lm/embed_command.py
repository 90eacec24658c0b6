"""`iron embed`: vectors of the texts of a file."""

from __future__ import annotations

import time

import attrs
import click

from iron_core.aside import aside
from iron_core.backends.choose import choose
from iron_core.cli import streams
from iron_core.cli.progress import working
from iron_core.cli.table import print_json
from iron_core.errors import printable
from iron_lm.opening import opened
from iron_lm.options import invoke
from iron_lm.parts.pooling import POOLINGS
from iron_lm.run import DTYPES
from iron_lm.vectors.embedding import Embedding


def main(argv: list[str]) -> int:
    """Write the vectors of a file's texts.

    argv: the line behind the command; the exit status. IronError and click's errors come through to the caller.
    """
    return int(invoke(_embed, argv) or 0)


_whole = click.IntRange(min=1)


@click.command("iron embed")
@click.argument("path", metavar="DIR")
@click.argument("texts", metavar="TEXTS")
@click.option("--out", required=True, metavar="FILE", help="What to write: a name that ends in .npy or .safetensors.")
@click.option("--field", default="text", show_default=True, metavar="NAME", help="Where a line's object has its text.")
@click.option("--pooling", type=click.Choice(sorted(POOLINGS)), help="The tokens a vector is made of. Default: the model's own.")
@click.option("--dims", type=_whole, metavar="N", help="The first N numbers of a vector, for models that were trained for that.")
@click.option("--truncate", is_flag=True, help="Cut texts that are too long, instead of refusing them.")
@click.option("--max-seq-len", type=_whole, metavar="N", help="Tokens of the longest text. Default: the model's, at most 32768.")
@click.option("--tokenizer", metavar="FILE", help="Another tokenizer than the one in DIR.")
@click.option("--dtype", type=click.Choice(DTYPES), help="Widen the weights to, and compute in, this dtype.")
@click.option("--backend", metavar="NAME", help="Default: $IRON_BACKEND, else the first available.")
@click.option("--dev", metavar="NAME", help="The backend's device.")
@click.option("--threads", type=_whole, metavar="N", help="Default: $IRON_THREADS, else every CPU.")
@click.option("--force", is_flag=True, help="Replace FILE, and what is left of another one in the making.")
@click.option("--json", "as_json", is_flag=True, help="JSON instead of text.")
@click.option("--verbose", is_flag=True, expose_value=False, help="Show the traceback of an error.")
def _embed(path: str, texts: str, out: str, field: str, pooling: str | None, dims: int | None, truncate: bool, max_seq_len: int | None,
           tokenizer: str | None, dtype: str | None, backend: str | None, dev: str | None, threads: int | None, force: bool,
           as_json: bool) -> None:  # fmt: skip
    """Write the vectors of many texts.

    DIR is an encoder, or another model, as `iron-run` takes it. TEXTS has a JSON string on each line, or an object with a text.
    Row n of FILE is the vector of line n, float32 and of length 1. Until FILE is whole it is FILE.partial, and the same command
    goes on where one that was cut short ended, kill -9 included.
    """
    if as_json:
        streams.reserve()
    engine = choose(backend, dev, threads=threads).backend if threads is not None else backend
    with working("loading"):
        loaded = opened(None, path, tokenizer=tokenizer, dtype=dtype, max_seq_len=max_seq_len, backend=backend, dev=dev)
        embedding = Embedding(loaded, texts, out, field=field, pooling=pooling, dims=dims, truncate=truncate, replace=force)
    start = time.perf_counter()
    try:
        with working(lambda: f"embedding, {embedding.progress}"):
            found = embedding.run(backend=engine, dev=dev)
    except KeyboardInterrupt:
        if embedding.unfinished.left_over:
            aside(embedding.unfinished.left_over)
        raise
    seconds = time.perf_counter() - start
    if as_json:
        print_json(attrs.asdict(found) | {"seconds": seconds})
        return
    there = f", {found.kept} of them there already" if found.kept else ""
    rate = (found.vectors - found.kept) / seconds if seconds > 0 else 0.0
    says = f"{found.path}: {found.vectors} vectors of {found.dims} numbers{there}, pooled by {found.pooling}, {rate:.1f} texts/s"
    click.echo(printable(says))
