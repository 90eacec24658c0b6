"""`iron-run embedding_gemma2 DIR --query ... --document ...`: how near documents are to a query."""

from __future__ import annotations

import re
from typing import Any

import click
import numpy as np

from iron_core.aside import aside
from iron_core.cli import streams
from iron_core.cli.progress import working
from iron_core.cli.table import print_json, print_table
from iron_core.errors import ParamError, UsageError, printable
from iron_embedding_gemma2 import clips, images, videos
from iron_embedding_gemma2.embedder import PROMPTS, load

#: Options that take as many values as follow. Those of the last are one document.
SEVERAL = ("--document", "--audio", "--image", "--video", "--mixed")
#: What a value that follows one of those is not: "-5" and "- milk" are texts.
_OPTION = re.compile(r"--?[a-zA-Z]|--$")
#: Between the pieces of a mixed document, once spread: no word of a command line has it.
_BETWEEN = "\0"
#: What reads a piece that is no text, by what stands before its path.
_READ: dict[str, Any] = {"image": lambda path: images.read_image(path), "audio": lambda path: clips.read(path)}
#: Characters of a document that a table shows.
_SHOWN = 60


def main(name: str, argv: list[str]) -> int:
    """Run the command line; the exit status. IronError and click's errors come through to the caller."""
    with streams.in_order():
        line = _command(name)
        with line.make_context(line.name, spread(argv)) as context:
            return int(line.invoke(context) or 0)


def asked(argv: list[str]) -> bool:
    """Is it this that a command line of the model wants?"""
    return any(word.partition("=")[0] in ("--query", *SEVERAL) for word in argv)


def spread(argv: list[str]) -> list[str]:
    """The line with an option before each of the values that follow one of `SEVERAL`; those of one --mixed are one value."""
    found: list[str] = []
    option: str | None = None
    first = True
    for word in argv:
        if _OPTION.match(word) or (option is None and word.startswith("-")):
            option, first = word if word in SEVERAL else None, True
            found += [] if option else [word]
        elif option == "--mixed" and not first:
            found[-1] += _BETWEEN + word
        elif option is not None:
            first = False
            found += [option, word]
        else:
            found.append(word)
    return found


def _command(name: str) -> click.Command:
    params: list[click.Parameter] = [
        click.Argument(["path"], metavar="DIR"),
        click.Option(["--query"], required=True, help="What is looked for."),
        click.Option(["--document"], multiple=True, metavar="TEXT ...", help="Texts that are compared with it."),
        click.Option(["--audio"], multiple=True, metavar="FILE ...", help="Clips that are, of up to 30 s."),
        click.Option(["--image"], multiple=True, metavar="FILE ...", help="Images that are, of any kind that Pillow reads."),
        click.Option(["--video"], multiple=True, metavar="PATH ...", help="Videos that are: images that move, or folders of frames."),
        click.Option(
            ["--mixed"], multiple=True, metavar="PIECE ...",
            help="One document of pieces in their order: texts, and of each at most one, image=FILE and audio=FILE. Another --mixed begins "
            "another. A text of which nothing is to be read: text=TEXT.",
        ),
        click.Option(["--dims"], type=click.IntRange(min=1), metavar="N", help="Compare the first N numbers: 768, 512, 256 or 128."),
        click.Option(["--max-seq-len"], type=click.IntRange(min=1), metavar="N", help="Tokens of a text at most. Default: 2048."),
        click.Option(["--dtype"], metavar="T", help="Run the weights in float32 or bfloat16. Default: as they are stored."),
        click.Option(["--tokenizer"], metavar="FILE", help="A tokenizer.json, or its folder. Default: the checkpoint's own."),
        click.Option(["--backend"], metavar="NAME", help="Where it runs. Default: the first there is."),
        click.Option(["--dev"], metavar="NAME", help="The device."),
        click.Option(["--json", "as_json"], is_flag=True, help="One JSON object."),
    ]
    help = "How near texts, clips, images and videos are to a query, the nearest first: the cosine of their vectors."
    return click.Command(f"iron-run {name}", params=params, callback=_compared, help=help)


def _compared(path: str, query: str, document: tuple[str, ...], audio: tuple[str, ...], image: tuple[str, ...], video: tuple[str, ...],
              mixed: tuple[str, ...], **options: Any) -> int:  # fmt: skip
    if not document and not audio and not image and not video and not mixed:
        legal = "--document TEXT, --audio FILE, --image FILE, --video PATH or --mixed PIECE ..."
        raise UsageError(f"--query is compared with nothing; give {legal}.")
    as_json, dims = options.pop("as_json"), options.pop("dims")
    if as_json:
        streams.reserve()
    heard = [(file, clips.read(file)) for file in audio]
    seen = [(file, images.read_image(file)) for file in image]
    shown = [(where, videos.read_video(where)) for where in video]
    among = [(line.replace(_BETWEEN, " "), [_piece(piece) for piece in line.split(_BETWEEN)]) for line in mixed]
    with working("loading and compiling"):
        model = load(path, **options)
    texts = [PROMPTS["query"] + query, *(PROMPTS["document"] + text for text in document)]
    vectors = [*model.embed(texts, dims=dims)]
    found = list(zip(document, vectors[1:], strict=True))
    for embed, given in ((model.embed_clip, heard), (model.embed_image, seen), (model.embed_video, shown), (model.embed_mixed, among)):
        found += [(file, _vector(embed, file, media, dims)) for file, media in given]
    scores = sorted(((float(vectors[0] @ vector), what) for what, vector in found), key=lambda pair: -pair[0])
    if as_json:
        ranked = [{"document": what, "score": round(score, 6)} for score, what in scores]
        print_json({"query": query, "dims": len(vectors[0]), "documents": ranked} | model.facts())
        return 0
    aside(f"{model.loaded.recognised} · {model.backend.name} · {model.loaded.run.dtype} · {len(vectors[0])} numbers")
    print_table(
        ("cosine", "document"), [(f"{score:.4f}", what if len(what) <= _SHOWN else what[: _SHOWN - 1] + "…") for score, what in scores]
    )
    return 0


def _piece(piece: str) -> Any:
    """A text, or what the file holds that a piece names."""
    kind, equals, path = piece.partition("=")
    if equals and kind in _READ and not path:
        raise UsageError(f"--mixed {piece}: no file is named; legal: {kind}=FILE.")
    if equals and kind in _READ:
        return _READ[kind](path)
    return path if equals and kind == "text" else piece


def _vector(embed: Any, file: str, media: Any, dims: int | None) -> np.ndarray:
    """Of what a file holds. UsageError names the file where the model does not take it."""
    try:
        return np.asarray(embed(media, dims=dims))
    except (ParamError, UsageError) as error:
        raise UsageError(f"{printable(file, 160)}: {error}") from None
