"""The numbers of each step's words in a call, and whether an array takes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from iron_core.array.words import fits, refuse
from iron_core.image.array_image import ArrayImage


class StepWords:
    """Of an image, per step its words, each with the number of its parameter and what the graph gives for the member it follows."""

    def __init__(self, image: ArrayImage) -> None:
        self.image = image
        places = {use: n for n, parameter in enumerate(image.parameters) for use in parameter.uses}
        self._words = []
        for index, step in enumerate(image.steps):
            given = {binding.member: binding.expression for binding in step.bindings}
            self._words.append([(word, places[index, word.name], given[word.form.value]) for word in step.design.sequence.words])

    def numbers(self, index: int, words: Sequence[int], values: Mapping[str, int]) -> dict[str, int]:
        """A step's words by name in a call, of those of all parameters. BoundsError for what no array takes."""
        found = {}
        for word, parameter, member in self._words[index]:
            found[word.name] = words[parameter]
            if not fits(word, words[parameter], member.at(values) if word.every > 1 else 0):
                step = self.image.steps[index]
                members = {b.member: b.expression.at(values) for b in step.bindings}
                followed = {b.expression.value: values[b.expression.value] for b in step.bindings if b.expression.value}
                refuse(step.operator, word, words[parameter], members, followed)
        return found

    def check(self, words: Sequence[int], values: Mapping[str, int]) -> None:
        """BoundsError for a number that the array of some step does not take."""
        for index in range(len(self._words)):
            self.numbers(index, words, values)
