"""Checks of core programs: fifo ends, objects held, memory, calls, locks and numbers."""

from __future__ import annotations

import re

from tests.npu.checker import Fifo, Names, element_of
from tests.npu.grammar import items


class CoreChecks(Names):
    """Lines in a core."""

    def on_core(self, m: re.Match[str]) -> None:
        self.type(m["tile"], "tile")
        self.define(m["result"], "core", outside=True)
        if self.device.tiles.get(m["tile"], ("core", None))[0] != "core":
            self.wrong(f"a core on {m['tile']}, which is no core tile")
        if m["tile"] in self.device.cores:
            self.wrong(f"a second core on {m['tile']}")
        self.device.cores.add(m["tile"])
        self.tile = m["tile"]
        self.held = {}
        self.loops = []

    def on_core_end(self, m: re.Match[str]) -> None:
        pass

    def on_for(self, m: re.Match[str]) -> None:
        for bound in ("start", "stop", "step"):
            self.type(m[bound], "index")
        self.define(m["result"], "index")
        self.loops.append(({}, set()))

    def after_for(self, m: re.Match[str]) -> None:
        """mlir-aie refuses a loop that by itself gives on more than it takes."""
        balance, within = self.loops.pop()
        for (fifo, port), left in balance.items():
            if left < 0 and (fifo, port) not in within:
                self.wrong(f"a loop releases {-left} of {fifo} more than it acquires")
        if self.loops:
            self.loops[-1][1].update(balance, within)

    def count(self, key: tuple[str, str], by: int) -> None:
        if self.loops:
            self.loops[-1][0][key] = self.loops[-1][0].get(key, 0) + by

    def on_if(self, m: re.Match[str]) -> None:
        self.type(m["flag"], "i1")

    def end(self, m: re.Match[str]) -> Fifo | None:
        """The fifo of an acquire or release, if this core is at that end of it."""
        if not self.use(m["symbol"], "fifo"):
            return None
        fifo = self.device.fifos[m["symbol"]]
        at = [fifo.producer] if m["port"] == "Produce" else fifo.consumers
        if self.tile not in at:
            self.wrong(f"the core on {self.tile} is not where {m['symbol']} is {m['port'].lower()}d")
            return None
        fifo.used.add("produce" if m["port"] == "Produce" else fifo.consumers.index(self.tile))
        return fifo

    def on_acquire(self, m: re.Match[str]) -> None:
        self.define(m["result"], f"held {m['count']} {m['type']}")
        fifo = self.end(m)
        if fifo is None:
            return
        number = 0 if m["port"] == "Produce" else 1 + fifo.consumers.index(self.tile)
        if m["type"] != (fifo.type if number == 0 else fifo.consumer_type):
            self.wrong(f"{m['symbol']} holds {fifo.type}, acquired as {m['type']}")
        depth = fifo.depths[number] if number < len(fifo.depths) else 0
        if int(m["count"]) > depth:
            self.wrong(f"{m['count']} of {m['symbol']} are acquired; its depth there is {depth}")
        key = m["symbol"], m["port"]
        self.held[key] = max(self.held.get(key, 0), int(m["count"]))
        self.count(key, int(m["count"]))

    def on_access(self, m: re.Match[str]) -> None:
        held = self.type(m["held"]).split(" ")
        if held[0] == "held":
            if int(m["index"]) >= int(held[1]):
                self.wrong(f"object {m['index']} of {held[1]} acquired")
            if not held[2] == m["type"] == m["into"]:
                self.wrong(f"{m['held']} holds {held[2]}, taken as {m['into']}")
        elif held[0]:
            self.wrong(f"{m['held']} is no acquired object")
        self.define(m["result"], m["into"])

    def on_release(self, m: re.Match[str]) -> None:
        if self.end(m) is None:
            return
        key = m["symbol"], m["port"]
        self.count(key, -int(m["count"]))
        if int(m["count"]) > self.held.get(key, 0):
            self.wrong(f"{m['count']} of {m['symbol']} are released; {self.held.get(key, 0)} are held")
        self.held[key] = max(0, self.held.get(key, 0) - int(m["count"]))

    def memory(self, name: str, kind: str) -> None:
        self.type(name, kind)
        if name in self.device.buffers:
            self.device.used.add(self.device.buffers[name])

    def on_load(self, m: re.Match[str]) -> None:
        self.memory(m["memory"], m["type"])
        self.type(m["index"], "index")
        self.define(m["result"], element_of(m["type"]))

    def on_store(self, m: re.Match[str]) -> None:
        self.memory(m["memory"], m["type"])
        self.type(m["index"], "index")
        self.type(m["value"], element_of(m["type"]))

    def on_call(self, m: re.Match[str]) -> None:
        values, types = items(m["values"]), items(m["types"])
        if self.use(m["symbol"], "function") and self.device.functions[m["symbol"]] != types:
            self.wrong(f"{m['symbol']} takes ({', '.join(self.device.functions[m['symbol']])}), called with ({m['types']})")
        if len(values) != len(types):
            self.wrong(f"{m['symbol']} is called with {len(values)} values and {len(types)} types")
        for value, kind in zip(values, types, strict=False):
            self.memory(value, kind)

    def on_use_lock(self, m: re.Match[str]) -> None:
        self.type(m["lock"], "lock")
        self.type(m["value"], "i32")
        self.device.locked.add(m["lock"])

    def on_constant(self, m: re.Match[str]) -> None:
        self.define(m["result"], m["type"])

    def on_arithmetic(self, m: re.Match[str]) -> None:
        self.type(m["left"], m["type"])
        self.type(m["right"], m["type"])
        self.define(m["result"], m["type"])

    def on_compare(self, m: re.Match[str]) -> None:
        self.type(m["left"], m["type"])
        self.type(m["right"], m["type"])
        self.define(m["result"], "i1")

    def on_cast(self, m: re.Match[str]) -> None:
        self.type(m["value"], m["type"])
        self.define(m["result"], m["into"])
