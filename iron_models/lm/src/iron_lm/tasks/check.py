"""`--check-accuracy`, `--check-determinism`: a model against its gates."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import attrs
import numpy as np

from iron_core.cli.progress import working
from iron_core.cli.table import print_json
from iron_core.devices import device
from iron_core.errors import UsageError
from iron_lm.embedder import shortened
from iron_lm.encoding import EncoderModel
from iron_lm.figures import Figures
from iron_lm.loading import Loaded
from iron_lm.model import Model
from iron_lm.running import Running
from iron_lm.tasks import gates
from iron_lm.tasks.prompt import prompt_ids
from iron_lm.tasks.task import Task

#: Sentences that an encoder's vectors are compared of.
SENTENCES = 8


class CheckTask(Task):
    """A subclass gives `report()`; a gate that fails is exit status 1."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        if options["profile"] or options["profile_trace"]:
            raise UsageError("--profile shows a run that generates; leave out --check-accuracy and --check-determinism.")

    @abstractmethod
    def report(self, model: Any) -> gates.Report:
        """What the check finds."""

    def run(self, model: Any, figures: Figures) -> int:
        with working("checking"):
            report = self.report(model)
        if self.options["json"]:
            print_json(report.as_dict() | model.facts(), indent=None)
        else:
            print("\n".join(report.lines()))
        return 0 if report.passed else 1


class AccuracyTask(CheckTask):
    """Logits against the float32 twin's, over a text of its own; an encoder's vectors, of its sentences and of the whole of it."""

    of_encoders = True

    def compiled(self, **options: Any) -> Running:
        return EncoderModel(self.loaded, **options) if self.loaded.config.encodes else super().compiled(**options)

    def report(self, model: Model | EncoderModel) -> gates.Report:
        loaded = model.loaded
        if isinstance(model, EncoderModel):
            return gates.check_vectors(loaded.run, model.vector, loaded.twin, passages(loaded))
        if loaded.tokenizer is not None:
            ids = loaded.tokenizer.encode(gates.passage())
        else:
            ids = [int(i) for i in np.random.default_rng(0).integers(0, loaded.config.vocab_size, gates.POSITIONS)]
        peer = gates.llama_cpp_figures(loaded.checkpoint.path) if loaded.checkpoint else None
        exact: list[np.ndarray] = []

        def twin(ids: list[int]) -> np.ndarray:
            if not exact:
                exact.append(loaded.twin(ids))
            return exact[0]

        report = gates.check_accuracy(model.session, twin, ids, peer)
        if loaded.run.quantize is None or device(model.compiled.dev).is_npu:
            return report
        blocks = loaded.in_blocks()
        beside = gates.check_accuracy(model.of(blocks).session, twin, ids)
        return attrs.evolve(report, notes=(*report.notes, f"the same in {blocks.stored}: {', '.join(map(str, beside.figures))}"))


def passages(loaded: Loaded) -> list[list[int]]:
    """Ids of the sentences of the passage, and of all of it, cut to what an encoder takes; without a tokenizer ids that are drawn."""
    if loaded.tokenizer is None:
        rng = np.random.default_rng(0)
        lengths = {min(n, loaded.context) for n in (1, 7, 64, gates.POSITIONS)}
        return [[int(i) for i in rng.integers(0, loaded.config.vocab_size, n)] for n in sorted(lengths)]
    text = gates.passage()
    texts = [text, *filter(None, (part.strip() for part in text.replace("\n", " ").split(". ")))]
    return [shortened(loaded, loaded.tokenizer.encode_whole(each)) for each in texts[: 1 + SENTENCES]]


class DeterminismTask(CheckTask):
    """The prompt and its first half, several times over."""

    def prepare(self, loaded: Loaded) -> None:
        super().prepare(loaded)
        self.ids = prompt_ids(self.options, loaded)

    def report(self, model: Model) -> gates.Report:
        prompts = [self.ids, self.ids[: max(1, len(self.ids) // 2)]]
        return gates.check_determinism(model.session, prompts, self.options["check_determinism"])
