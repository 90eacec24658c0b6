"""How arrays are configured for the steps of a version: at every entry of a full ELF, in turn by a chain, or once in contexts."""

from __future__ import annotations

from abc import ABC, abstractmethod

from iron_core.array.build import kernels_of
from iron_core.image.array_image import ArrayImage
from iron_sim.errors import SimulationError
from iron_sim.host import SimMemory
from iron_sim.machine import Machine


class Loading(ABC):
    """What a loaded version asks of it, call by call."""

    def __init__(self, image: ArrayImage, memory: SimMemory, follow: bool) -> None:
        self.image = image
        self.memory = memory
        self._follow = follow

    @abstractmethod
    def enter(self, entry: int, index: int) -> Machine:
        """The array of the step of this index, configured for an entry that begins with it."""

    def leave(self) -> None:  # noqa: B027 (most have nothing to do)
        """The last entry of a call is over."""

    @abstractmethod
    def forget(self) -> None:
        """A call failed: what is left of its arrays is of no use to the next one, which begins as the first one did."""

    def _configured(self, index: int) -> Machine:
        """A step's array, fresh."""
        step = self.image.steps[index]
        self.memory.traffic.loads += 1
        return Machine(step.design.array, kernels_of(step.configured, self.image.dev), step.placement, follow=self._follow)


class Elf(Loading):
    """Every entry configures its array anew."""

    _loaded_empty: int | None = None

    def enter(self, entry: int, index: int) -> Machine:
        self._load_empty(entry)
        return self._configured(index)

    def leave(self) -> None:
        for extra in range(self.image.resets):
            self._load_empty(len(self.image.entries) + extra)

    def forget(self) -> None:
        self._loaded_empty = None

    def _load_empty(self, entry: int) -> None:
        """The firmware takes a second load of the image it loaded last for none, and the array is not reset."""
        if self._loaded_empty == entry % 2:
            raise SimulationError(
                f"entry {entry} loads the empty image {entry % 2} again: the firmware skips it and the array is not reset. "
                "An odd number of entries needs one more empty reset."
            )
        self._loaded_empty = entry % 2


class Chain(Loading):
    """What is loaded stays until a step is of another array or lies in another xclbin."""

    def __init__(self, image: ArrayImage, memory: SimMemory, follow: bool) -> None:
        super().__init__(image, memory, follow)
        self._xclbins = {step: n for n, steps in enumerate(image.chains) for step in steps}
        self._loaded: tuple[int, Machine] | None = None

    def enter(self, entry: int, index: int) -> Machine:
        xclbin, array = self._xclbins[index], self.image.steps[index].design.array
        if self._loaded is None or self._loaded[0] != xclbin or self._loaded[1].array is not array:
            self._loaded = xclbin, self._configured(index)
        return self._loaded[1]

    def forget(self) -> None:
        self._loaded = None


class Context:
    """A hardware context: the array that its xclbin configured, as it is now; None where a call that failed left it."""

    def __init__(self, machine: Machine) -> None:
        self.machine: Machine | None = machine


class Contexts(Loading):
    """Every array is configured once, when the version is loaded, and stays; versions of one graph share those of equal arrays."""

    def __init__(self, image: ArrayImage, memory: SimMemory, follow: bool) -> None:
        super().__init__(image, memory, follow)
        self._contexts: dict[int, Context] = {}
        for steps in image.contexts:
            key = image.steps[steps[0]].design.array, follow
            context = memory.contexts.get(key)
            if context is None:
                memory.contexts[key] = context = Context(self._configured(steps[0]))
            self._contexts.update(dict.fromkeys(steps, context))

    def enter(self, entry: int, index: int) -> Machine:
        context = self._contexts[index]
        if context.machine is None:
            context.machine = self._configured(index)
        return context.machine

    def forget(self) -> None:
        for context in self._contexts.values():
            context.machine = None


def loading(image: ArrayImage, memory: SimMemory, *, follow: bool) -> Loading:
    """That of an image."""
    kind = Elf if image.elf else Contexts if image.contexts else Chain
    return kind(image, memory, follow)
