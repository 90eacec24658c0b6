"""What is drawn with guesses is distributed as the model says: chi-square tests over many seeds, which are fixed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
import pytest

from iron_lm.generation.sampler import Sampler
from iron_lm.generation.session import Session
from iron_lm.generation.speculation import DraftModel, Speculation

SEEDS, TOP_K, TOKENS = 1500, 3, 3
#: How the tokens are drawn: by the graph's rule, and by the host's.
SAMPLERS = {"graph": Sampler(1.0, TOP_K), "host": Sampler(1.0, TOP_K, min_p=1e-6)}


@attrs.define
class Always:
    """Guesses the same tokens behind a prompt, whatever was drawn: from the second one of an answer on."""

    tokens: Sequence[int]
    start: int

    def propose(self, history: Sequence[int], count: int, sampler: Sampler) -> list[int]:
        return list(self.tokens[len(history) - self.start :][:count])


@pytest.fixture(scope="module")
def session(tiny: Any) -> Session:
    return Session(tiny.model(), backend="host")


@pytest.fixture(scope="module")
def shares(tiny: Any, session: Session) -> dict[tuple[int, ...], float]:
    """The probability of each answer of three tokens, from the logits: of the three likeliest at each place, by their softmax."""
    found: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(TOKENS):
        grown = {}
        for said, share in found.items():
            logits = session.logits([*tiny.ids[:10], *said]).astype(np.float64)
            best = np.argsort(-logits)[:TOP_K]
            weights = np.exp(logits[best] - logits[best].max())
            grown |= {(*said, int(t)): share * w for t, w in zip(best, weights / weights.sum(), strict=True)}
        found = grown
    return found


def statistic(answers: Counter[tuple[int, ...]], shares: dict[tuple[int, ...], float]) -> tuple[float, float]:
    """Chi-square of the counts, cells of fewer than five together, and what one of 1000 samples of the shares exceeds (by Wilson and
    Hilferty's approximation)."""
    assert answers.keys() <= shares.keys()
    total = answers.total()
    rare = [said for said, share in shares.items() if share * total < 5]
    cells = [(answers[said], share * total) for said, share in shares.items() if share * total >= 5]
    cells += [(sum(answers[said] for said in rare), sum(shares[said] for said in rare) * total)] if rare else []
    free = len(cells) - 1
    return sum((seen - due) ** 2 / due for seen, due in cells), free * (1 - 2 / (9 * free) + 3.0902 * (2 / (9 * free)) ** 0.5) ** 3


@pytest.mark.parametrize("sampler", SAMPLERS.values(), ids=SAMPLERS)
@pytest.mark.parametrize("guess", ["likeliest", "least likely", "a model"])
def test_draws_are_distributed_as_without_guesses(tiny: Any, session: Session, shares: Any, sampler: Sampler, guess: str) -> None:
    """Answers of three tokens at 1500 seeds, of 27 that can be: p > 0.001. Guesses that are often right, seldom, and drawn; and seed by
    seed they are the answers that nobody guessed at."""
    ids = tiny.ids[:10]
    guessed = (max if guess == "likeliest" else min)(shares, key=shares.__getitem__)
    model = tiny.model()
    model.embedding.table.data = np.asarray(model.embedding.table.data) * np.float32(1.1)
    proposer: Any = DraftModel(Session(model, backend="host")) if guess == "a model" else Always(guessed, len(ids))
    answers, accepted, proposed = Counter[tuple[int, ...]](), 0, 0
    for seed in range(SEEDS):
        speculation = Speculation(proposer)
        said = session.generate(ids, TOKENS, attrs.evolve(sampler, seed=seed), speculation=speculation)
        answers[tuple(said)] += 1
        accepted, proposed = accepted + speculation.accepted, proposed + speculation.proposed
        if seed % 50 == 0:
            assert said == session.generate(ids, TOKENS, attrs.evolve(sampler, seed=seed))
    assert 0 < accepted < proposed or guess == "a model"
    found, bound = statistic(answers, shares)
    assert found < bound


def test_other_distributions_are_seen(tiny: Any, session: Session, shares: Any) -> None:
    """As many answers at a temperature of 1.5, or with a guess kept in one of five cases in which it was not drawn, exceed the bound."""
    warm = Counter(tuple(session.generate(tiny.ids[:10], TOKENS, Sampler(1.5, TOP_K, seed=seed))) for seed in range(SEEDS))
    found, bound = statistic(warm, shares)
    assert found > bound
    rng, answers, guess = np.random.default_rng(0), list(shares), max(shares, key=shares.__getitem__)
    drawn = [answers[n] for n in rng.choice(len(answers), SEEDS, p=list(shares.values()))]
    found, bound = statistic(Counter(drawn), shares)
    assert found < bound
    found, bound = statistic(Counter(guess if said[0] == guess[0] and rng.random() < 0.2 else said for said in drawn), shares)
    assert found > bound
