"""`Parallel`: a model compiled for sequences side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from iron_core.cache.keys import digest
from iron_core.declare.formats import as_dtype
from iron_core.errors import UsageError
from iron_lm import process
from iron_lm.generation.batch import Batch
from iron_lm.generation.paged import PagedModel
from iron_lm.generation.pages import ROWS
from iron_lm.loading import Loaded
from iron_lm.parts.attention import Attention
from iron_lm.parts.decoder import Decoder
from iron_lm.running import Running
from iron_lm.text.answer import Answer
from iron_lm.text.tokenizer import Tokenizer
from iron_lm.tunables import tuned

if TYPE_CHECKING:
    from iron_lm.generation.grammar import Constraint
    from iron_lm.generation.sampler import Sampler


class Parallel(Running):
    """`batch` answers requests, up to `sequences` at once, whose keys and values share the `pages` of a pool: of one context unless told,
    and a page more for each."""

    def __init__(self, loaded: Loaded, sequences: int, pages: int | None = None, **options: Any) -> None:
        """options: of `Graph.compile`. CheckpointError where memory has no room for the pool."""
        check(loaded)
        model, pages = loaded.model(), pages_of(loaded.context, sequences) if pages is None else pages
        less = "; a smaller max_seq_len takes less"
        process.fits(f"{sequences} sequences side by side", f"{pages} pages of keys and values take", pool_bytes(model, pages), less)
        key = None if loaded.cache_key is None else digest(loaded.cache_key, "pages", pages, sequences)
        with tuned(loaded.family, options.get("backend"), options.get("dev")):
            paged = PagedModel(model, pages=pages, sequences=sequences, cache_key=key, **options)
        super().__init__(loaded, paged.compiled)
        paged.load()
        self.batch = Batch(paged)

    def ask(
        self,
        ids: list[int],
        count: int,
        sampler: Sampler,
        stop: Sequence[str] = (),
        constraint: Constraint | None = None,
        on_token: Callable[[int], Any] | None = None,
    ) -> Spoken:
        """Submit a prompt, which texts that `stop` names end besides. on_token: is told each token as it comes."""
        assert self.tokenizer is not None
        return Spoken(self.batch, self.tokenizer, ids, count, sampler, stop, constraint, on_token)


class Spoken:
    """A request's answer as text. `before`: the prompt's; `pieces`: an iterator that streams the answer's, while all requests go on."""

    def __init__(
        self,
        batch: Batch,
        tokenizer: Tokenizer,
        ids: list[int],
        count: int,
        sampler: Sampler,
        stop: Sequence[str],
        constraint: Constraint | None,
        on_token: Callable[[int], Any] | None,
    ) -> None:
        answer, said = Answer(tokenizer.stream(), stop), list[str]()
        self.before = answer.stream.take(ids)  # the answer goes on where the prompt ends, not at a text's start

        def take(token: int) -> bool:
            said.append(answer(token))
            if on_token is not None:
                on_token(token)
            return answer.ended

        request = self.request = batch.submit(ids, count, sampler, take, tokenizer.stop, constraint)

        def pieces() -> Iterator[str]:
            try:
                yield ""  # begun here: one that nobody asks for anything cancels its request, too, when it goes
                for n, _ in enumerate(request.tokens()):
                    if said[n]:
                        yield said[n]
                if rest := answer.rest():
                    yield rest
            finally:
                request.cancel()

        self.pieces = pieces()
        next(self.pieces)


def check(loaded: Loaded, name: str = "sequences side by side") -> None:
    """UsageError, before anything is compiled, for a model whose tokens leave more than keys and values. name: what asks."""
    if loaded.build().recurrent:
        raise UsageError(f"{name}: pages hold keys and values, and the layers of {loaded.family.name} keep recurrent states besides.")


def pages_of(context: int, sequences: int) -> int:
    """Of a pool that holds one context, which so many sequences share, and a page more for each."""
    return -(-context // ROWS) + sequences


def pool_bytes(model: Decoder, pages: int) -> int:
    """Of the keys and values in so many pages."""
    mixers = (layer.mixer for layer in model.layers)
    attention = {id(mixer.cache): mixer.config for mixer in mixers if isinstance(mixer, Attention)}  # layers may share caches
    numbers = sum(2 * config.num_kv_heads * config.head_dim for config in attention.values())
    return pages * ROWS * numbers * int(as_dtype(model.run.cache_dtype).itemsize)
