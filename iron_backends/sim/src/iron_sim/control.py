"""A shim tile's control port: it decodes the packets streamed into it, writes registers, and starts what they describe.

Only what `iron_core.array.gather` documents is decoded, and as the hardware reads it: headers with their parity, descriptors
out of their register words. Host memory starts at BASE in the addresses that descriptors hold.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from iron_core.array.descriptors import Descriptor
from iron_core.array.design import ControlData
from iron_core.array.gather import TOKENS, Gather
from iron_core.array.sequence import Transfer
from iron_core.devices import CONTROL_REGISTER, DESCRIPTOR_REGISTERS, DESCRIPTOR_STEP, NEXT_CHANNEL, QUEUE_REGISTER
from iron_sim.actor import Actor, Scheduler, Semaphore
from iron_sim.dma import HostRegion, Segment, ShimEnd, Task
from iron_sim.errors import PoisonError, Race, SimulationError

#: Above 32 bits, so that both words of an address count.
BASE = 0x5_8000_0000
_LINEAR = ((3, 0xFFFFFFFF), (4, 0x3FFFFFFF), (5, 0x000FFFFF), (6, 0xFFFFFFFF))


def encode(gather: Gather, ids: HostRegion, table: HostRegion) -> HostRegion:
    """The tensor of control words that a call's ids become."""
    if ids.mask is not None and ids.mask.any():
        raise PoisonError(f"{ids.name}[{int(ids.mask.argmax())}] is an id nobody wrote.")
    return HostRegion(ids.name, gather.control_words(ids.data, BASE + table.base), None, ids.base)


class ControlPort:
    """The port of one shim tile, and the channel its packets drive. It is the sink of the control flow's stream.

    end: the channel's; dtype: what its fifo carries; descriptors: how many the tile has. tasks, regions: of the sequence that runs.
    """

    def __init__(self, data: ControlData, end: ShimEnd, dtype: np.dtype, descriptors: int, scheduler: Scheduler) -> None:
        self.name = f"the control port that {data.name} reaches"
        self.data = data
        self.end = end
        self.dtype = dtype
        self.scheduler = scheduler
        self.registers: dict[int, int] = {}
        self.tokens = Semaphore(scheduler, 0, f"tokens of {data.fifo}", f"stream {data.fifo}")
        self.tasks: dict[int, Task] = {}
        self.regions: Mapping[str, HostRegion] = {}
        self._descriptors = descriptors
        self._address = 0
        self._left = 0
        self._busy: dict[int, str] = {}

    # -- the stream ----------------------------------------------------------------------------------

    def take(self, actor: Actor) -> Segment:
        """Room for one word; there always is."""
        word, mask = np.zeros(1, np.uint32), np.ones(1, bool)

        def done() -> None:
            if mask[0]:
                raise PoisonError(f"a word that nobody wrote arrives at {self.name}.")
            self._accept(int(word[0]))

        return Segment(word, mask, done, self.name)

    def _accept(self, word: int) -> None:
        if self._left:
            self._write(self._address, word)
            self._address += 4
            self._left -= 1
            return
        if word.bit_count() % 2 == 0:
            raise SimulationError(f"{self.name}: header {word:#010x} has an even number of ones; bit 31 makes it odd.")
        if word >> 22 & 0x1FF:
            raise SimulationError(f"{self.name}: header {word:#010x} is no write; bits 30 to 22 of one are 0.")
        self._address = word & 0xFFFFF
        self._left = (word >> 20 & 3) + 1

    def _write(self, address: int, word: int) -> None:
        number = (address - DESCRIPTOR_REGISTERS) // DESCRIPTOR_STEP
        if 0 <= number < self._descriptors:
            if number in self._busy:
                raise Race(f"{self.name}: descriptor {number} is written while {self._busy[number]} still needs it.")
            self.registers[address] = word
        elif address == CONTROL_REGISTER + NEXT_CHANNEL * self.data.channel:
            self.registers[address] = word
        elif address == QUEUE_REGISTER + NEXT_CHANNEL * self.data.channel:
            self._start(word)
        else:
            raise SimulationError(f"{self.name}: a packet writes {address:#x}, no register of a descriptor or of its channel.")

    # -- tasks ---------------------------------------------------------------------------------------

    def _start(self, word: int) -> None:
        token = bool(word >> 31)
        if word & 0x7FFFFFF0:
            raise SimulationError(f"{self.name}: {word:#010x} is pushed; legal: a first descriptor, 0 to 15, and bit 31.")
        if token and self.registers.get(CONTROL_REGISTER + NEXT_CHANNEL * self.data.channel, 0) & 0x1F00 != TOKENS:
            raise SimulationError(f"{self.name}: a token is asked for before its id is set to {TOKENS:#x}.")
        chain = self._chain(word & 0xF)
        places = [self._decode(number) for number in chain]
        region = self._region(places[0])
        item = self.dtype.itemsize
        base = BASE + region.base
        descriptors = tuple(Descriptor.of((at - base) // item, ((words * 4 // item, 1),)) for at, words in places)
        number = ~sum(1 for task in self.tasks if task < 0)
        transfer = Transfer(number, "fill", region.name, self.data.fifo, descriptors, token)
        typed = HostRegion(region.name, region.data.view(self.dtype), region.mask, region.base)
        task = Chain(self, transfer, typed, chain)
        self._busy.update(dict.fromkeys(chain, task.name))
        self.tasks[number] = task
        self.end.push(task)

    def _chain(self, first: int) -> list[int]:
        chain, number = [], first
        while number not in chain:
            chain.append(number)
            last = self.registers.get(DESCRIPTOR_REGISTERS + DESCRIPTOR_STEP * number + 28, 0)
            if not last >> 26 & 1:
                return chain
            number = last >> 27 & 0xF
        raise SimulationError(f"{self.name}: the chain that starts at descriptor {first} comes back to {number}.")

    def _decode(self, number: int) -> tuple[int, int]:
        """Byte address and words of a descriptor that must be one run."""
        words = [self.registers.get(DESCRIPTOR_REGISTERS + DESCRIPTOR_STEP * number + 4 * k) for k in range(8)]
        if None in words:
            raise SimulationError(f"{self.name}: descriptor {number} is started and word {words.index(None)} was never written.")
        read = [word or 0 for word in words]
        if not read[7] >> 25 & 1:
            raise SimulationError(f"{self.name}: descriptor {number} is started and is not valid.")
        if read[7] & 0x1FFFFFF or any(read[k] & mask for k, mask in _LINEAR) or read[2] >> 16 or read[1] & 3:
            raise SimulationError(f"{self.name}: descriptor {number} is more than one run: {' '.join(f'{w:08x}' for w in read)}.")
        return (read[2] & 0xFFFF) << 32 | read[1], read[0]

    def _region(self, place: tuple[int, int]) -> HostRegion:
        at, words = place
        for region in self.regions.values():
            start = BASE + region.base
            if start <= at and at + 4 * words <= start + region.data.nbytes:
                return region
        raise SimulationError(f"{self.name}: {4 * words} bytes at {at:#x} are in no tensor of the sequence.")

    def settled(self) -> None:
        """After a sequence: no packet is half there and no token is left for the next call to take."""
        if self._left:
            raise SimulationError(f"the sequence ended in the middle of a packet at {self.name}.")
        if self.tokens.count:
            raise SimulationError(f"the sequence ended and nobody waited for {self.tokens.count} tokens of {self.data.fifo}.")

    def ended(self, chain: list[int], token: bool) -> None:
        for number in chain:
            del self._busy[number]
        if token:
            self.tokens.give(1)


class Chain(Task):
    """Descriptors that a packet started."""

    def __init__(self, port: ControlPort, transfer: Transfer, region: HostRegion, chain: list[int]) -> None:
        super().__init__(transfer, region, 0, None, port.scheduler)
        self.name = f"chain {~transfer.task} of {transfer.fifo}"
        self.port = port
        self.chain = chain

    def ended(self) -> None:
        super().ended()
        self.port.ended(self.chain, self.transfer.token)
