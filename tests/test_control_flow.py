"""Branch conditions and loop exits that decide whether a line runs, from the source code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from backprobe.records import Site
from backprobe.source.control_flow import branch_conditions, branches_around, condition_of, loop_of
from backprobe.source.frames import Frames

CODE = """\
def train(batches, model):
    for batch in batches:
        if batch is None:
            continue
        try:
            loss = model(batch)
            if loss.isnan():
                return None
        finally:
            done()
        for part in model:
            if part.frozen:
                continue
            part.step()
        while True:
            if finished():
                if really():
                    break
            wait()

        def inner():
            if x:
                return 1
        if loss > 5:
            break
        continue
    for other in batches:
        if other:
            break
"""


LOOP = """\
def exchange(t):
    dist.all_gather(out, t)
    return sum(out)

def generate(t):
    for i in range(9):
        t = exchange(t)
        if t.isnan():
            continue
        if i == stop:
            break
    return t
"""


def test_a_loop_exit_after_the_line_is_a_branch_condition(tmp_path: Path) -> None:
    """A rank that breaks after the first round does not come to the line in the second. What only goes on does."""
    file = tmp_path / "train.py"
    file.write_text(LOOP)
    frames = Frames((str(tmp_path),))
    space: dict[str, Any] = {}
    exec(compile(LOOP, str(file), "exec"), space)
    assert frames.is_user(space["generate"].__code__)
    ways = branch_conditions(frames, Site(str(file), 2, "exchange", "dist.all_gather(out, t)"))
    assert [(way.line, way.text) for way in ways] == [(11, "break")]
    assert [head.line for way in ways if (head := condition_of(way)) is not None] == [10]


def test_branch_conditions_of_enclosing_loops(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(CODE)

    def lines(*places: int) -> list[int]:
        found = branches_around((str(file), place) for place in places)
        assert all(site.function == "train" and site.text for site in found)
        return [site.line for site in found]

    assert lines(6) == lines(6, 10) == [4, 8, 25]
    assert lines(14) == [4, 8, 13, 25]
    assert lines(19) == [4, 8, 18, 25]
    assert lines(28) == [29]
    assert lines(1) == []
    assert branches_around([(str(tmp_path / "none.py"), 3)]) == ()


WAYS = """\
import torch


class Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return reduced(x)


def reduced(x):
    return send(x)


class Mean:
    def total(self):
        return reduced(self.state)


def layer(x, alone):
    if alone:
        return x
    return Exchange.apply(x)


def run(batches, mean, rank):
    for batch in batches:
        try:
            x = load(batch)
        except OSError:
            continue
        if x.any():
            layer(x, False)
        for one in x:
            if one:
                continue
        shown = mean.total() if rank == 0 else None
        step(x)
        order = ["a", "b"]
        if mean.far() and rank:
            order = ["b", "a"]
        for name in order:
            if name == "a":
                first(x)
"""


def test_branch_conditions_of_a_line(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(WAYS)

    class Files:
        def users_files(self) -> list[str]:
            return [str(file)]

    def ways(line: int) -> list[int]:
        return [site.line for site in branch_conditions(Files(), Site(str(file), line, ""))]  # type: ignore[arg-type]

    lines = WAYS.splitlines()
    at = {line.strip(): n for n, line in enumerate(lines, 1)}
    jump, kept = at["except OSError:"] + 1, at["if x.any():"]
    assert ways(at["layer(x, False)"]) == [jump, kept]  # the inner continue is of another loop
    assert ways(at["step(x)"]) == [jump]
    assert ways(at["return Exchange.apply(x)"]) == [at["return x"]]
    assert ways(at["return reduced(x)"]) == [at["return x"]]  # a function of autograd: where it is applied
    assert ways(at["return reduced(self.state)"]) == [jump, at["shown = mean.total() if rank == 0 else None"]]
    # Which of two comes first was decided where the list was made.
    far, name = at["if mean.far() and rank:"], at['if name == "a":']
    assert ways(at["first(x)"]) == [jump, far, name]
    assert ways(2) == []


ORDER = """\
def reduce(net, group):
    for p in net.parameters():
        dist.all_reduce(p.grad, group=group)


def train(nets, scores):
    for step in range(9):
        for _, net, group in sorted(zip(scores, nets, groups)):
            reduce(net, group)


def other(nets):
    for net in nets:
        meet(net)


def start(rank):
    if rank > 2:
        several(rank)


def several(rank):
    for name in shuffled(rank):
        meet_at(name)
"""


def test_a_loop_that_puts_in_order_is_told_where_nothing_decides_whether(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(ORDER)

    class Files:
        def users_files(self) -> list[str]:
            return [str(file)]

    at = {line.strip(): n for n, line in enumerate(ORDER.splitlines(), 1)}
    frames: Any = Files()

    def ways(text: str) -> list[int]:
        return [site.line for site in branch_conditions(frames, Site(str(file), at[text], ""))]

    assert ways("dist.all_reduce(p.grad, group=group)") == [
        at["for _, net, group in sorted(zip(scores, nets, groups)):"]
    ]
    assert ways("meet(net)") == []  # the order of a list is no decision
    assert ways("meet_at(name)") == [at["if rank > 2:"], at["for name in shuffled(rank):"]]
    loop = loop_of(Site(str(file), at["dist.all_reduce(p.grad, group=group)"], ""))
    assert loop is not None and (loop.line, loop.text) == (2, "for p in net.parameters():")
    assert loop_of(Site(str(file), 2, "")) is None and loop_of(Site(str(file), 99, "")) is None


LEAVES = """\
def run(batches, rank):
    for x in batches:
        if x is None:
            continue
        try:
            x = load(x)
        except OSError as error:
            if rank: return sorted(x, key=lambda one: -one)
            break
        else:
            return x
        match x:
            case 1:
                return x
        for one in x:
            if one:
                def inner():
                    return 3
    return x
"""


def test_the_condition_under_which_a_line_leaves(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(LEAVES)
    heads = {n: condition_of(Site(str(file), n, "")) for n in range(1, 25)}
    found = {n: site.line for n, site in heads.items() if site is not None}
    assert found == {4: 3, 9: 7, 14: 13}  # not where the condition is on the line itself, nor where there is none
