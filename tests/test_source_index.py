"""The source index: Python's scoping rules in queries, and files that cannot be read."""

from __future__ import annotations

import functools
import linecache
from collections.abc import Callable
from pathlib import Path
from types import CodeType, SimpleNamespace
from typing import Any

import pytest
from torch.autograd.function import once_differentiable

from backprobe.records import Site
from backprobe.source import index as indexing
from backprobe.source.assignments import (
    assigned_in,
    changes_of,
    container_fill_near,
    freezes,
    key_given,
    scheduler_stepped,
    used_before,
)
from backprobe.source.calls import calls_of, functions_called
from backprobe.source.candidates import Candidate, Reason, best, likeliest, ranked
from backprobe.source.control_flow import branch_conditions, branches_around, condition_of, loop_of
from backprobe.source.dataflow import is_singular, singular_before
from backprobe.source.definitions import assigned, given, replaced_at, result_of, returns_at, used
from backprobe.source.index import SourceIndex, index_of, indexes
from backprobe.source.line_ops import writes_on
from backprobe.source.rng_calls import drawn_before, draws_inside
from backprobe.source.shared_memory import written_through


class Script:
    """A file whose lines are named by their text."""

    def __init__(self, folder: Path, code: str) -> None:
        self.file, self.code = str(folder / f"script{len(list(folder.iterdir()))}.py"), code
        Path(self.file).write_text(code)
        self.lines = code.splitlines()
        self.frames: Any = SimpleNamespace(users_files=lambda: [self.file])
        self.index = index_of(self.file)

    def at(self, text: str, function: str = "") -> Site:
        line = next(n for n, line in enumerate(self.lines, 1) if text in line)
        return Site(self.file, line, function or self.index.function_at(line).name, self.lines[line - 1].strip())

    def codes(self) -> dict[str, CodeType]:
        """Return the code of all functions by name, the outermost first."""
        found: dict[str, CodeType] = {}
        codes = [compile(self.code, self.file, "exec")]
        for code in codes:  # grows as we go
            found.setdefault(code.co_name, code)
            codes += [one for one in code.co_consts if isinstance(one, CodeType)]
        return found


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], Script]:
    return lambda code: Script(tmp_path, code)


def text(site: Site | None) -> str | None:
    return None if site is None else site.text


# Names

NAMES = """\
import os as system
from numpy import random as draws
x = 0
class C:
    x = 1
    y = [x for _ in range(x)]
    def method(self, x=x):
        def inner():
            return x, self.z
        return inner
def outer():
    x = 2
    def reads():
        return x
    def writes():
        nonlocal x
        x = 3
    def world():
        global x
        x = 4
    shown = [x for x in range(3)], (lambda x: x)(5), [last := n for n in range(3)]
    return last
def cases(value):
    match value:
        case {"a": first, **rest}: return first, rest
        case [head, *tail]: return head, tail
        case str() as whole: return whole
    try:
        pass
    except OSError as error:
        return error
    with open(value) as file, file as (one, two): pass
    for count, (a, b) in []: del count
    def late(): return unknown
if x:
    def chosen(): return 1
else:
    def chosen(): return 2
"""


def test_names_belong_to_the_scope_that_binds_them(script: Any) -> None:
    index = script(NAMES).index

    def holders(line: int, name: str) -> list[str]:
        nodes = [node for node in index.by_line[line] if getattr(node, "id", "") == name]
        return [index.holder(node).name for node in nodes]

    assert holders(5, "x") == ["C"]
    assert sorted(holders(6, "x")) == ["<module>", "C"]  # a comprehension does not see names of its class
    assert holders(7, "x") == ["C"]  # a default is evaluated in the class
    assert holders(9, "x") == ["method"] and index.class_of(index.by_line[9][-1]).name == "C"
    assert holders(14, "x") == holders(17, "x") == ["outer"]
    assert holders(20, "x") == ["<module>"]
    assert holders(21, "x") == ["<listcomp>", "<listcomp>", "<lambda>"]
    assert holders(21, "last") == holders(22, "last") == ["outer"]
    for line, names in ((25, "first rest"), (26, "head tail"), (27, "whole"), (31, "error")):
        assert [holders(line, name)[-1] for name in names.split()] == ["cases"] * len(names.split())
    assert holders(32, "file") == ["cases"] * 2 and holders(33, "count") == ["cases"] * 2
    assert holders(34, "unknown") == ["<module>"]
    assert len(index.module.bound["chosen"]) == 2 and {"system", "draws"} <= index.module.bound.keys()


def test_a_function_is_found_by_its_code(script: Any) -> None:
    made = script("@wraps(\n    f)\ndef g(x):\n    return (lambda a: a), (lambda b: b)\ndef g(): pass\n")
    codes = [compile(made.code, made.file, "exec")]
    for code in codes:
        codes += [one for one in code.co_consts if isinstance(one, CodeType)]
    names = {(one.co_name, one.co_firstlineno, one.co_varnames) for one in codes}
    assert ("g", 1, ("x",)) in names
    scopes = {one.co_varnames: made.index.function_of(one) for one in codes if one.co_name == "<lambda>"}
    assert [scopes[name].node.args.args[0].arg for name in (("a",), ("b",))] == ["a", "b"]
    assert [made.index.function_at(line).name for line in (1, 2, 3, 4, 5)] == ["<module>", "<module>", "g", "g", "g"]


# Candidates


def test_candidates_are_ranked_in_one_order() -> None:
    name, own = Candidate("a", Reason.NAME), Candidate("b", Reason.VARIABLE)
    wished, other = Candidate("c", Reason.NAME, 1), Candidate("a", Reason.PARAMETER)
    assert [one.answer for one in ranked([name, own, wished])] == ["c", "b", "a"]
    assert ranked([name, other]) == [other]  # one answer, the better reason
    assert best([name, own]) == "b" and best([]) is None
    assert likeliest([name, Candidate("d", Reason.NAME)]) == ["a", "d"] and likeliest([]) == []


# Queries


def test_a_container_of_another_function_is_another_one(script: Any) -> None:
    made = script(
        "def other():\n    kept = []\n    kept.append(x)\n    return 3\n"
        "def passed(kept):\n    kept.append(y)\n"
        "def train():\n    kept = []\n    passed(kept)\n    kept[0] = z\n"
        "def quiet():\n    kept = []\n"
    )
    codes = made.codes()
    assert text(changes_of(made.frames, "kept")) == "kept.append(y)"  # the name alone: a parameter is more likely
    assert text(changes_of(made.frames, "kept", code=codes["train"])) == "kept[0] = z"
    assert text(changes_of(made.frames, "kept", code=codes["quiet"])) == "kept.append(y)"
    assert text(assigned_in(made.frames, "kept", codes["train"])) == "kept[0] = z"
    assert assigned_in(made.frames, "kept", codes["quiet"]) is None


def test_a_container_that_the_statement_reads(script: Any) -> None:
    made = script(
        "class A:\n    def forward(self, i):\n        other.cache[i] = 1\n"
        "        def inner(self):\n            self.cache[i] = 2\n"
        "        x = self.cache[i]\n        self.cache[i] = 3\n        self.log[i].append(4)\n"
    )
    assert text(container_fill_near(made.at("x = self.cache[i]"))) == "self.cache[i] = 3"
    assert container_fill_near(made.at("self.log[i].append(4)")) is None  # it reads no container


def test_a_variable_that_was_used_before(script: Any) -> None:
    made = script(
        "class A:\n    def forward(self, x):\n        print(x)\n"
        "class B:\n    def forward(self, x):\n        [x for x in 'ab']\n        y = 1\n"
        "        z = (lambda: y)() + x\n        return z\n"
    )
    assert used_before(made.at("y = 1"), "x") is None  # of another forward, and of a comprehension
    assert text(used_before(made.at("return z"), "y")) == "z = (lambda: y)() + x"


def test_only_an_attribute_turns_gradients_off(script: Any) -> None:
    made = script("requires_grad = False\np.requires_grad = False\nsetattr(q, 'requires_grad', False)\n")
    assert [site.line for site in freezes(made.frames)] == [2, 3]


def test_a_scheduler_of_another_function(script: Any) -> None:
    made = "def build(opt):\n    schedule = StepLR(opt)\n    return opt, schedule\n"
    found = scheduler_stepped(script(made + "opt, schedule = build(1)\nschedule.step()\n").frames)
    assert text(found) == "schedule.step()"
    found = scheduler_stepped(script(made + "def train(schedule):\n    schedule.step()\n").frames)
    assert text(found) == "schedule.step()"
    assert scheduler_stepped(script(made + "def other():\n    schedule = Env()\n    schedule.step()\n").frames) is None


def test_an_index_in_a_subscript_is_no_write(script: Any) -> None:
    assert key_given(script("x[group['lr']] = 1\n").frames, "lr") is None


def test_an_attribute_of_another_class_was_not_replaced(script: Any) -> None:
    class Net:
        pass

    made = script(
        "class Other:\n    def act(self):\n        self.fc = 1\n"
        "class Net:\n    def __init__(self):\n        self.fc = 2\n    def grow(self):\n        a, self.fc = 3, 4\n"
    )
    assert text(replaced_at(made.frames, "fc", Net)) == "a, self.fc = 3, 4"
    assert text(replaced_at(made.frames, "fc")) == "self.fc = 1"


def _decorated(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(*args: Any) -> Any:
        return function(*args)

    return wrapper


class Parts:
    shared = 1

    @_decorated
    def set_up(self, other: Any) -> None:
        other.weight = 1
        self.weight = 2

    @property
    def total(self) -> Any:
        self.sum: Any
        self.sum = 3
        return self.sum

    @staticmethod
    def alone(part: Any) -> Any:
        return part.apart


def test_attributes_are_those_of_the_object_of_the_method() -> None:
    site = assigned(Parts, "weight")
    assert site is not None and (site.file, site.text) == (__file__, "self.weight = 2")  # in a decorated method
    assert text(given(Parts, "sum")) == "self.sum = 3"  # in a property; an annotation assigns nothing
    assert text(assigned(Parts, "shared")) == "shared = 1"
    assert used(Parts, "apart") is None


class Rounded:
    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Any) -> Any:
        def inner() -> Any:
            return grad

        return inner()


def test_the_return_of_a_decorated_backward() -> None:
    site = returns_at(Rounded)
    assert site is not None and (site.file, site.text) == (__file__, "return inner()")


def test_the_line_of_a_lambda_that_changes_a_gradient() -> None:
    hook = functools.partial(
        lambda scale, grad: grad.mul_(
            scale,
        )
    ).func
    assert text(result_of(hook)) == "lambda scale, grad: grad.mul_("

    def outer(grad: Any) -> Any:
        def inner(grad: Any) -> Any:
            return grad.zero_()

        return inner(grad)

    assert text(result_of(outer)) == "return inner(grad)"


CALLS = """\
import helpers
class Base:
    def shared(self): return 1
class Net(Base):
    def __init__(self):
        self.blocks = [Block(i) for i in range(3)]
    def forward(self, x):
        for i, block in enumerate(self.blocks): x = block(x)
        return self.shared() + super().shared() + Round.apply(x)
    def total(self): return 2
class Other:
    def total(self): return 3
    def shared(self): return 4
class Block:
    def forward(self, x): return x.log()
class Round(Function):
    def forward(ctx, x): return x.sqrt()
def step(x): return x
def train(step, net):
    step(1)
    def total(): return 5
    total()
    double = lambda x: 2 * x
    double(3)
    one = Other()
    one.total()
    helpers.step(4)
    net.shared()
"""


def test_the_functions_that_a_call_runs(script: Any) -> None:
    made = script(CALLS)
    files = [made.file]

    def called(text: str) -> list[str]:
        line = made.at(text).line
        calls = [node for node in made.index.by_line[line] if type(node).__name__ == "Call"]
        found = [one for node in calls for one in functions_called(made.index, node, files)]
        return [f"{scope.parent.name}.{scope.name}" for _, scope in found]

    assert called("block in enumerate") == ["Block.forward"]
    assert called("self.shared() + super") == ["Base.shared", "Base.shared", "Round.forward"]
    assert called("step(1)") == ["<module>.step"]  # a parameter: by name, as the least likely
    assert called("    total()") == ["train.total"]
    assert called("double(3)") == ["train.<lambda>"]
    assert called("one.total()") == ["Other.total"]
    assert called("helpers.step(4)") == ["<module>.step"]
    scope = next(scope for scope in made.index.opened.values() if scope.name == "total" and scope.parent.name == "Net")
    assert calls_of(made.index, scope, files) == []  # all calls of this name are those of others


def test_a_module_of_a_library_is_not_one_of_the_users(script: Any) -> None:
    made = script(
        "from torch import nn\nfrom script0 import build\n"
        "class Net(nn.Module):\n    def forward(self, x):\n        return x\ndef build(): return Net()\n"
        "def use(net):\n    net(1)\ndef library():\n    net = nn.Sequential(nn.ReLU())\n    net(2)\n"
        "def built():\n    net = build()\n    net(3)\ndef direct():\n    net = Net().cuda()\n    net(4)\n"
        "def plain():\n    net = Net()\n    net(5)\n"
    )
    forward = next(scope for scope in made.index.opened.values() if scope.name == "forward")
    calls = calls_of(made.index, forward, [made.file])
    assert [call.args[0].value for _, call in calls] == [1, 3, 4, 5]


def test_conditions_of_another_function_of_the_same_name(script: Any) -> None:
    made = script(
        "class A:\n    def forward(self, x):\n        if x: return 1\n        return 2\n"
        "class B:\n    def forward(self, x):\n        return send(x)\n"
        "def run(rank, b):\n    def send(x):\n        return reduced(x)\n    if rank: send(1)\n"
        "def send(x):\n    return gathered(x)\n"
    )
    assert branch_conditions(made.frames, made.at("return send(x)")) == ()
    assert [s.text for s in branch_conditions(made.frames, made.at("return reduced(x)"))] == ["if rank: send(1)"]
    assert branch_conditions(made.frames, made.at("return gathered(x)")) == ()


def test_a_comprehension_hides_the_variable_of_a_loop(script: Any) -> None:
    made = script("def f(ps):\n    for p in ps:\n        total = sum(p for p in qs)\n        total += p\n")
    assert loop_of(made.at("total = sum")) is None
    assert text(loop_of(made.at("total += p"))) == "for p in ps:"


def test_a_value_is_followed_by_scope(script: Any) -> None:
    made = script(
        "def other(a):\n    y = a / a\n    return y\n"
        "def use(x):\n    y = x\n    return y\n"
        "def nested(x):\n    z = x.log()\n    def inner():\n        return z\n    return inner()\n"
        "def walrus(x):\n    if (w := x.sqrt()) is not None:\n        return w\n"
        "def cases(x):\n    match x.log():\n        case found:\n            return found\n"
        "def parts(x):\n    a, (b, *c) = x, (x.log(), x)\n    return b\n"
    )
    line = made.at("y = x").line + 1
    assert singular_before(Site(made.file, line, "use", ""), made.frames) is None
    assert text(singular_before(made.at("return z"), made.frames)) == "z = x.log()"
    assert text(singular_before(made.at("return w"), made.frames)) == "if (w := x.sqrt()) is not None:"
    assert text(singular_before(made.at("return found"), made.frames)) == "match x.log():"
    assert text(singular_before(made.at("return b"), made.frames)) == "a, (b, *c) = x, (x.log(), x)"


def test_an_array_is_followed_by_scope(script: Any) -> None:
    made = script(
        "def take(t):\n    a = t.numpy()\n    change(a)\n    a = fill(a)\n"
        "def change(b):\n    rows = [a for a in b]\n    a = zeros()\n    a[0] = 1\n"
        "def fill(c):\n    view = c[1:]\n    view += 1\n"
    )
    assert text(written_through(made.at("a = t.numpy()"), made.frames)) == "view += 1"


def test_a_generator_of_random_numbers_that_is_shadowed(script: Any) -> None:
    made = script(
        "import random as dice\nfrom numpy import random as draws\n"
        "def f(random):\n    random.random()\n    x = 1\n"
        "def g():\n    dice.random()\n    y = 1\n"
        "def h():\n    draws.rand()\n    z = 1\n"
        "class A:\n    def forward(self): return dice.random()\nclass B:\n    def forward(self):\n        w = 1\n"
    )
    assert drawn_before(made.at("x = 1")) is None and drawn_before(made.at("w = 1")) is None
    assert text(drawn_before(made.at("y = 1"))) == "dice.random()"
    assert text(drawn_before(made.at("z = 1"))) == "draws.rand()"


def test_a_counter_of_another_function_is_no_counter(script: Any) -> None:
    made = script("def f():\n    total = 0\n    total += 1\ndef g(total):\n    total += 2\n")
    assert [writes_on(made.file, line)[0].likelihood for line in (3, 5)] == [0, 1]


# Files

QUERIES: dict[str, Callable[[Any, Site], Any]] = {
    "conditions": branch_conditions,
    "branches": lambda frames, site: branches_around([(site.file, site.line)]),
    "condition": lambda frames, site: condition_of(site),
    "loop": lambda frames, site: loop_of(site),
    "singular": lambda frames, site: is_singular(site),
    "before": lambda frames, site: singular_before(site, frames),
    "array": lambda frames, site: written_through(site, frames),
    "drawn": lambda frames, site: drawn_before(site),
    "draws": lambda frames, site: draws_inside(site.file, site.line),
    "fill": lambda frames, site: container_fill_near(site),
    "changes": lambda frames, site: changes_of(frames, "x"),
    "used": lambda frames, site: used_before(site, "x"),
    "writes": lambda frames, site: writes_on(site.file, site.line),
    "replaced": lambda frames, site: replaced_at(frames, "x"),
}
BROKEN = {
    "syntax error": "def f(:\n",
    "null byte": "x = 1\n\0",
    "empty": "",
    "sum": "x = " + " + ".join(["x"] * 20_000) + "\n",
    "chain": "x" + ".add_(x)" * 3_000 + "\n",
    "chain that parses": "x = x" + ".view(x).data[0]" * 60 + "\n",
    "brackets": "x = " + "[" * 190 + "x" + "]" * 190 + "\n",
    "too many brackets": "x = " + "(" * 5_000 + ")" * 5_000 + "\n",
    "blocks": "".join(" " * n + "if x:\n" for n in range(90)) + " " * 90 + "x.add_(1)\n",
    "functions": "".join(" " * n + f"def f{n}():\n" for n in range(90)) + " " * 90 + "return x\n",
    "elif": "if x: pass\n" + "elif x: x.log()\n" * 400,
    "lambdas": "x = " + "lambda: " * 400 + "x\n",
}


@pytest.mark.parametrize("name", BROKEN)
def test_any_file_can_be_asked(name: str, script: Any) -> None:
    made = script(BROKEN[name])
    for query in QUERIES.values():
        for line in (0, 1, len(made.lines), len(made.lines) + 1):
            query(made.frames, Site(made.file, line, "f", ""))


@pytest.mark.parametrize("file", ["<string>", "<ipython-input-3>", "/nowhere/gone.py", ""])
def test_code_without_a_file_has_an_empty_index(file: str) -> None:
    frames = SimpleNamespace(users_files=lambda: [file])
    assert index_of(file).nodes == [index_of(file).tree]
    for query in QUERIES.values():
        assert query(frames, Site(file, 3, "f", "")) in (None, False, (), [])


def test_a_cell_is_read_from_the_cache_of_lines() -> None:
    file = "<ipython-input-7-of-a-test>"
    lines = ["def f(x):\n", "    return x.log()\n"]
    linecache.cache[file] = (sum(map(len, lines)), None, lines, file)
    try:
        assert is_singular(Site(file, 2, "f", ""))
    finally:
        del linecache.cache[file]


def test_a_file_that_changed_is_read_again_and_one_that_is_gone_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "changing.py"
    path.write_text("x = 1\n")
    file = str(path)
    first = index_of(file)
    assert index_of(file) is first
    path.write_text("x = 2; y = 33\n")
    assert index_of(file) is first
    linecache.checkcache(file)
    assert index_of(file).lines == ["x = 2; y = 33\n"]
    second = index_of(file)
    path.unlink()
    linecache.checkcache(file)
    assert index_of(file) is second


def test_the_number_of_files_is_bounded_and_files_without_the_word_are_not_parsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexing, "MAX_INDEXED_FILES", 3)
    parsed: list[str] = []
    real = SourceIndex.__init__
    monkeypatch.setattr(
        SourceIndex, "__init__", lambda self, file, lines: (parsed.append(file), real(self, file, lines))[1]
    )
    files = []
    for n in range(6):
        path = tmp_path / f"module{n}.py"
        path.write_text(f"name{n} = {n}\n")
        files.append(str(path))
    assert [index.file for index in indexes(files, "name2", "name4")] == [files[2], files[4]] == parsed
    for file in files:
        index_of(file)
    assert list(indexing._indexes)[-3:] == files[-3:] and len(indexing._indexes) == 3
    assert index_of(files[5]) is indexing._indexes[files[5]] and parsed.count(files[5]) == 1


@pytest.mark.slow
def test_a_file_of_100000_lines(script: Any) -> None:
    made = script("def f(x):\n" + "    x = x + 1\n" * 100_000 + "    return x.log()\n")
    site = Site(made.file, 100_002, "f", "")
    assert text(singular_before(site, made.frames)) == "return x.log()"
    assert used_before(site, "x") is not None
