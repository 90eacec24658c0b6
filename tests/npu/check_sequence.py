"""Checks of runtime sequences and of the main device: words, tasks, descriptors, views."""

from __future__ import annotations

import math
import re

from iron_core.array.descriptors import BdLimits, Descriptor
from iron_core.devices import LOCK_VALUE, REPEATS, WORD, device
from tests.npu.checker import WIDTH, Names, Task, element_of, elements
from tests.npu.grammar import items, pairs, whole


class SequenceChecks(Names):
    """Lines in a runtime sequence, a task, or a configuration."""

    def on_sequence(self, m: re.Match[str]) -> None:
        self.symbol(m["symbol"], "sequence")
        kinds = []
        for argument in items(m["arguments"]):
            name, _, kind = argument.partition(" : ")
            self.define(name, kind)
            kinds.append(kind)
        self.device.sequences[m["symbol"]] = kinds
        self.tasks, self.ids, self.synced, self.entries, self.configured = {}, {}, False, 0, ""

    def after_sequence(self, m: re.Match[str]) -> None:
        for name, task in self.tasks.items():
            if not task.started:
                self.wrong(f"task {name} is never started", task.line)
            if not task.closed:
                self.wrong(f"task {name} is neither awaited nor freed", task.line)
        if self.entries % 2:
            self.wrong(f"{self.entries} devices are configured; an odd number leaves the next call on the wrong image")

    def on_sync(self, m: re.Match[str]) -> None:
        self.synced = True
        if not self.parameters:
            self.wrong("a sync without a parameter")

    def on_rtp_write(self, m: re.Match[str]) -> None:
        self.type(m["value"], "i32")
        self.word(m["symbol"], int(m["index"]), False)

    def word(self, buffer: str, index: int, pair: bool) -> None:
        """A word of a buffer is written; `pair`: together with the one behind it."""
        if not self.use(buffer, "buffer"):
            return
        name = next(ssa for ssa, symbol in self.device.buffers.items() if symbol == buffer)
        kind = self.type(name)
        if element_of(kind) != "i32" or index + pair >= elements(kind):
            self.wrong(f"word {index}{' and the next' if pair else ''} of {buffer}, which is {kind}")

    def on_write32(self, m: re.Match[str]) -> None:
        self.type(m["address"], "i32")
        self.type(m["value"], "i32")
        given = pairs(m["attrs"])
        if "buffer" in given:
            self.use(given["buffer"], "buffer")
        elif not {"column", "row"} <= set(given):
            self.wrong("a write to no buffer and no tile")

    def on_update(self, m: re.Match[str]) -> None:
        given = pairs(m["attrs"])
        index = whole(given.get("state_table_idx", "-1"))
        if not 0 <= index < len(self.parameters):
            self.wrong(f"word {index} of {len(self.parameters)} parameters")
        else:
            self.follow(self.parameters[index], "number")
        if not self.synced:
            self.wrong("the scratchpad is read before it is synced")
        if "buffer" in given:
            self.word(given["buffer"], whole(given.get("address", "-1")), True)

    def follow(self, parameter: str, way: str) -> None:
        """A parameter is used: the host keeps one that moves an address as it is, any other shifted."""
        if self.moved.setdefault(parameter, way) != way:
            self.wrong(f"{parameter} is used as an address and as a number")

    def on_set_lock(self, m: re.Match[str]) -> None:
        self.type(m["lock"], "lock")
        self.device.locked.add(m["lock"])
        if int(m["value"]) > LOCK_VALUE:
            self.wrong(f"{m['lock']} is set to {m['value']}; a lock holds at most {LOCK_VALUE}")

    def on_token(self, m: re.Match[str]) -> None:
        for value in items(m["values"]):
            self.type(value, "i32")
        if len(items(m["values"])) != 6:
            self.wrong("a wait for a token takes column, row, direction, channel and how many of the first two")

    def on_task(self, m: re.Match[str]) -> None:
        self.define(m["result"], "task", outside=True)
        self.task = self.tasks[m["result"]] = Task(self.number, m["symbol"])
        if m["symbol"] in self.device.channels:
            self.use(m["symbol"], "channel")
            return
        if not self.use(m["symbol"], "fifo"):
            return
        fifo = self.device.fifos[m["symbol"]]
        kinds = [self.device.tiles.get(end, ("", None))[0] for end in [fifo.producer, *fifo.consumers]]
        if kinds.count("shim") != 1:
            self.wrong(f"{m['symbol']} has {kinds.count('shim')} ends on a shim; a task needs one")
            return
        number = kinds.index("shim")
        fifo.used.add("produce" if number == 0 else number - 1)

    def on_descriptor(self, m: re.Match[str]) -> None:
        self.type(m["memory"], m["type"])
        for name in (m["offset"], m["length"]):
            if name.startswith("%"):
                self.type(name, "i32")
        for name in items(m["sizes"]):
            if name.startswith("%"):
                self.type(name, "i64")
        self.task.descriptors.append((self.number, m))
        given = pairs(m["attrs"])
        for attribute in ("offset_parameter", "length_parameter"):
            if attribute in given:
                if given[attribute] not in self.parameters:
                    self.wrong(f"{given[attribute]} is no parameter of this module")
                self.follow(given[attribute], "address" if attribute == "offset_parameter" else "number")
                if not self.synced:
                    self.wrong("the scratchpad is read before it is synced")
        fifo = self.device.fifos.get(self.task.fifo)
        if fifo is not None and element_of(fifo.type) != element_of(m["type"]):
            self.wrong(f"{self.task.fifo} moves {fifo.type}; its descriptor is {m['type']}")

    def on_next(self, m: re.Match[str]) -> None:
        self.task.jumps.append(m["label"])

    def on_label(self, m: re.Match[str]) -> None:
        self.task.labels.append(m["label"])

    def on_task_end(self, m: re.Match[str]) -> None:
        pass

    def after_task(self, m: re.Match[str]) -> None:
        given, task = pairs(m["attrs"]), self.task
        task.token = given.get("issue_token") == "true"
        repeat = whole(given.get("repeat_count", "0"))
        if not 0 <= repeat < REPEATS:
            self.wrong(f"repeat_count {repeat}; a queue entry holds 0 to {REPEATS - 1}")
        if task.labels != task.jumps or len(task.descriptors) != len(task.labels) + 1:
            self.wrong("a task's descriptors do not follow one another")
        for line, descriptor in task.descriptors:
            self.descriptor(line, descriptor, repeat)
        self.hold(task)

    def descriptor(self, line: int, m: re.Match[str], repeat: int) -> None:
        """One descriptor's own rules: those of a shim, and what its length and iteration must agree with."""
        width = WIDTH.get(element_of(m["type"]), 4)
        length = None if m["length"].startswith("%") else int(m["length"])
        offset = 0 if m["offset"].startswith("%") else int(m["offset"])
        if m["sizes"] is None:
            sizes: tuple[int, ...] = (length or 0,)
            strides: tuple[int, ...] = (1,)
        else:
            strides = tuple(int(n) for n in items(m["strides"]))
            # A size of the call is the innermost's, of as many numbers as fit.
            given = [n.startswith("%") for n in items(m["sizes"])]
            room = elements(m["type"]) - offset
            sizes = tuple(room if dynamic else int(n) for n, dynamic in zip(items(m["sizes"]), given, strict=True))
            if any(given[:-1]) or (given[-1] and (length is not None or math.prod(sizes[-3:-1]) != 1)):
                self.wrong("a size of the call that is not the length of one run", line)
            if given[-1] and len(sizes) == 4:
                sizes = (*sizes[:-1], max(1, room - (sizes[0] - 1) * strides[0]))
        if len(sizes) != len(strides) or not 1 <= len(sizes) <= 4:
            self.wrong("a descriptor has one to four sizes, and as many strides", line)
            return
        if length is not None and math.prod(sizes[-3:]) != length:
            self.wrong(f"len = {length}, but the inner sizes {list(sizes[-3:])} make {math.prod(sizes[-3:])}", line)
        if len(sizes) == 4 and sizes[0] > 1 and repeat != sizes[0] - 1:
            self.wrong(f"{sizes[0]} iterations and repeat_count {repeat}; they must be {sizes[0] - 1} repeats", line)
        dims = tuple(zip(sizes, strides, strict=True))
        walk = Descriptor.of(offset, dims)
        why = BdLimits.of(device(self.device.model).shim, width).why_not(walk)  # type: ignore[arg-type]
        if why:
            self.wrong(why, line)
        last = offset + sum((n - 1) * stride for n, stride in dims)
        if last >= elements(m["type"]):
            self.wrong(f"element {last} of {m['type']}", line)

    def hold(self, task: Task) -> None:
        """Count the descriptors of the task's shim tile, as far as its column is known."""
        column = self.column(task.fifo)
        if column is None:
            return
        taken = self.ids.setdefault(column, {})
        for line, descriptor in task.descriptors:
            named = pairs(descriptor["attrs"]).get("bd_id")
            number = whole(named) if named else next(n for n in range(10**6) if n not in taken)
            if number in taken:
                self.wrong(f"descriptor {number} of column {column} is in use", line)
            there = device(self.device.model).shim.descriptors  # type: ignore[union-attr]
            if number >= there:
                self.wrong(f"descriptor {number} of column {column}; a shim tile has {there}", line)
            taken[number] = next(name for name, known in self.tasks.items() if known is task)

    def column(self, symbol: str) -> int | None:
        fifo = self.device.fifos.get(symbol)
        ends = [fifo.producer, *fifo.consumers] if fifo else [self.device.channels.get(symbol, "")]
        return next((self.device.tiles[end][1] for end in ends if self.device.tiles.get(end, ("",))[0] == "shim"), None)

    def known(self, name: str) -> Task:
        self.type(name, "task")
        return self.tasks.get(name, Task(0, ""))

    def on_start(self, m: re.Match[str]) -> None:
        task = self.known(m["task"])
        if task.started:
            self.wrong(f"{m['task']} is started twice")
        task.started = True

    def on_await(self, m: re.Match[str]) -> None:
        task = self.known(m["task"])
        if not task.token:
            self.wrong(f"{m['task']} is awaited but issues no token")
        self.release(m["task"], task)

    def on_free(self, m: re.Match[str]) -> None:
        self.release(m["task"], self.known(m["task"]))

    def release(self, name: str, task: Task) -> None:
        if task.closed:
            self.wrong(f"{name} is awaited or freed twice")
        if not task.started:
            self.wrong(f"{name} is awaited or freed before it is started")
        task.closed = True
        for taken in self.ids.values():
            for number in [n for n, holder in taken.items() if holder == name]:
                del taken[number]

    def on_configure(self, m: re.Match[str]) -> None:
        self.entries += 1
        self.mains.update(name for name, known in self.devices.items() if known is self.device)
        if m["symbol"] == self.configured:
            self.wrong(f"{m['symbol']} is configured twice in a row")
        self.configured = m["symbol"]
        if m["symbol"] not in self.devices:
            self.wrong(f"no device {m['symbol']}")
        elif self.devices[m["symbol"]].model != self.device.model:
            self.wrong(f"{m['symbol']} is for another device")

    def on_view(self, m: re.Match[str]) -> None:
        self.type(m["memory"], m["type"])
        self.type(m["shift"], "index")
        self.define(m["result"], m["into"])
        if element_of(m["type"]) != "i8":
            self.wrong(f"a view of {m['type']}; only bytes are viewed")
        shift = self.constants(m["shift"])
        if shift is None:
            return
        nbytes = elements(m["into"]) * WIDTH.get(element_of(m["into"]), 4)
        if shift % WORD:
            self.wrong(f"a view at byte {shift}; a shim starts at multiples of {WORD}")
        if shift + nbytes > elements(m["type"]):
            self.wrong(f"{nbytes} bytes at {shift} of {m['type']}")

    def constants(self, name: str) -> int | None:
        """The number of a constant defined on an earlier line."""
        head = f"{name} = arith.constant "
        for line in reversed(self.lines[: self.number]):
            if line.strip().startswith(head):
                return int(line.strip()[len(head) :].split(" ")[0])
        return None

    def on_run(self, m: re.Match[str]) -> None:
        target = self.devices.get(self.configured)
        values, types = items(m["values"]), items(m["types"])
        if target is None:
            return
        if m["symbol"] not in target.sequences:
            self.wrong(f"{self.configured} has no sequence {m['symbol']}")
        elif target.sequences[m["symbol"]] != types:
            self.wrong(f"{m['symbol']} takes ({', '.join(target.sequences[m['symbol']])}), run with ({m['types']})")
        target.used.add(m["symbol"])
        for value, kind in zip(values, types, strict=False):
            self.type(value, kind)
