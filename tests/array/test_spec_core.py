"""What the specification says of a core program is what running it says, whatever its words are: random programs, every path."""

import random

import attrs
import pytest

from iron_core import In
from iron_core.array import Buffer, Kernel, KernelContract, ObjectFifo, Tile, Worker
from iron_core.array.builder import building
from iron_core.array.expression import Const, Var, binary, evaluate, variables
from iron_core.array.program import Acquire, Call, Element, For, If, Load, Local, Release
from iron_core.array.spec_core import check_core
from iron_core.declare.objects import ObjectType
from iron_core.errors import DeclarationError

KIND = ObjectType.of(4, "int32")
TRIPS = (0, 1, 2, 3)


def array():
    """A core that takes `a`, gives `y` and has words; its program is put in later."""
    with building() as parts:
        fifos = [ObjectFifo(((4,), "int32"), name=name, depth=8) for name in ("a", "y")]
        fifos[0].prod(tile=Tile("shim"))
        use = Kernel.inline("use", "", (KIND,), KernelContract(roles=(In,), reference=lambda x: ()))

        def core(a, y, words):
            use(a.acquire())
            a.release()

        Worker(core, [fifos[0].cons(), fifos[1].prod(), Buffer(4, "int32", name="words")], name="x")
        fifos[1].cons(tile=Tile("shim"))
        return parts.freeze("random", "npu2")


class Maker:
    """A random program: acquires, releases, uses, loops over numbers and words, branches on words and loop variables."""

    def __init__(self, seed, symbol):
        self.rng = random.Random(seed)
        self.symbol = symbol
        self.names = 0

    def name(self, kind):
        self.names += 1
        return f"{kind}{self.names}"

    def block(self, depth, scope, acquired):
        scope, acquired = list(scope), list(acquired)
        return tuple(one for _ in range(self.rng.randint(1, 3)) for one in self.statement(depth, scope, acquired))

    def statement(self, depth, scope, acquired):
        rng = self.rng
        kind = rng.choice(["acquire", "acquire", "release", "release", "use", "for", "if", "pair", "pair"])
        fifo, port = rng.choice([("a", "consume"), ("y", "produce")])
        if kind == "acquire":
            one = Acquire(self.name("a"), fifo, port, rng.randint(1, 3))
            acquired.append(one)
            return [one]
        if kind == "release":
            return [Release(fifo, port, rng.randint(1, 2))]
        if kind == "use" and acquired:
            one = rng.choice(acquired)
            return [Call(self.symbol, (Element(one.name, rng.randrange(one.count), KIND),))]
        if kind == "for" and depth:
            before, stop = self.bound(scope)
            var = self.name("i")
            return [*before, For(var, Const(0), stop, 1, self.block(depth - 1, [*scope, var], acquired))]
        if kind == "if" and depth and scope:
            before, _ = self.bound(scope)
            condition = binary(rng.choice(["gt", "eq"]), Var(rng.choice(scope)), Const(rng.randint(0, 1)))
            then, other = self.block(depth - 1, scope, acquired), self.block(depth - 1, scope, acquired)
            return [*before, If(condition, then, other if rng.random() < 0.5 else ())]
        one = Acquire(self.name("a"), fifo, port, 1)
        return [one, Call(self.symbol, (Element(one.name, 0, KIND),)), Release(fifo, port, 1)]

    def bound(self, scope):
        if self.rng.random() < 0.5:
            return [], Const(self.rng.randint(0, 3))
        word = self.name("v")
        scope.append(word)
        return [Load(word, Local("words", ObjectType.of(4, "int32")), Const(0))], Var(word)


class Broken(Exception):
    pass


class Run:
    """One execution for three passes; `choices` are what words were read, extended by the first of those not chosen yet."""

    def __init__(self, choices):
        self.choices, self.asked = list(choices), 0
        self.held, self.given, self.values, self.base = {}, {}, {}, {}

    def choose(self):
        if self.asked == len(self.choices):
            self.choices.append(0)
        self.asked += 1
        return TRIPS[self.choices[self.asked - 1]]

    def block(self, block):
        for s in block:
            if isinstance(s, Acquire):
                port = (s.fifo, s.port)
                self.held[port] = max(self.held.get(port, 0), s.count)
                self.base[s.name] = self.given.get(port, 0), port
            elif isinstance(s, Release):
                port = (s.fifo, s.port)
                if self.held.get(port, 0) < s.count:
                    raise Broken("release")
                self.held[port] -= s.count
                self.given[port] = self.given.get(port, 0) + s.count
            elif isinstance(s, Call):
                base, port = self.base[s.args[0].acquired]
                at = base + s.args[0].index - self.given.get(port, 0)
                if not 0 <= at < self.held[port]:
                    raise Broken("use")
            elif isinstance(s, Load):
                self.values[s.name] = self.choose()
            elif isinstance(s, For):
                for i in range(evaluate(s.start, self.values), evaluate(s.stop, self.values), s.step):
                    self.values[s.var] = i
                    self.block(s.body)
            elif isinstance(s, If):
                assert variables(s.condition) <= self.values.keys()
                self.block(s.then if evaluate(s.condition, self.values) else s.otherwise)


def outcome(program, most=4000):
    """Whether some execution breaks a rule; None if there are too many to try."""
    ends = set()
    choices = []
    for _ in range(most):
        run = Run(choices)
        try:
            for _ in range(3):
                run.block(program)
                ends.add(tuple(sorted((port, n) for port, n in run.held.items() if n)))
        except Broken:
            return True
        if len(ends) > 1:
            return True
        choices = run.choices
        while choices and choices[-1] == len(TRIPS) - 1:
            choices.pop()
        if not choices:
            return False
        choices[-1] += 1
    return None


@pytest.mark.parametrize("block", range(8))
def test_random_programs(block):
    design = array()
    symbol = design.kernels[0].symbol
    seen = {True: 0, False: 0}
    for seed in range(block * 150, block * 150 + 150):
        program = Maker(seed, symbol).block(2, [], [])
        breaks = outcome(program)
        if breaks is None:
            continue
        core = attrs.evolve(design.cores[0], program=program)
        refused, words = False, ""
        try:
            check_core(design, core)
        except DeclarationError as error:
            refused, words = True, str(error)
        assert refused == breaks, (seed, words, program)
        seen[refused] += 1
    assert min(seen.values()) > 15

