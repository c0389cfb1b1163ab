"""Tensors in nested values: search, names and replacement."""

from __future__ import annotations

from collections import OrderedDict, UserDict, namedtuple
from dataclasses import dataclass
from typing import Any

import torch

from backprobe.torch_internals.structure import leaves, mapped, parts, tensors_in

a, b, c = torch.zeros(1), torch.ones(1), torch.full((1,), 2.0)
Pair = namedtuple("Pair", "left right")


@dataclass(frozen=True)
class Out:
    first: Any
    rest: Any = None


@dataclass
class ModelOutput(OrderedDict):
    """As transformers has them: a mapping and a dataclass."""

    hidden: Any = None

    def __post_init__(self) -> None:
        self["hidden"] = self.hidden


NESTED = {"one": [a, (b, 3)], "two": Pair(Out(c), None)}


def same(found: list[Any], expected: list[Any]) -> bool:
    return len(found) == len(expected) and all(x is y for x, y in zip(found, expected, strict=True))


def test_all_kinds_in_order_with_their_paths() -> None:
    assert [(path, getattr(one, "item", lambda one=one: one)()) for path, one in leaves(NESTED, "x")] == [
        ("x['one'][0]", 0.0),
        ("x['one'][1][0]", 1.0),
        ("x['one'][1][1]", 3),
        ("x['two'].left.first", 2.0),
        ("x['two'].left.rest", None),
        ("x['two'].right", None),
    ]
    assert same(tensors_in(NESTED), [a, b, c]) and same(tensors_in(NESTED, most=2), [a, b])
    assert same(tensors_in(ModelOutput(a)), [a]) and [p.key for p in parts(ModelOutput(a)) or ()] == ["hidden"]
    assert parts(3) is None and parts(Out) is None and tensors_in(Out) == []


def test_cyclic_and_deep_values_are_bounded() -> None:
    ring: list[Any] = [a]
    ring += [ring, ring]
    assert same(tensors_in(ring), [a]) and [path for path, _ in leaves(ring)] == ["[0]", "[1]", "[2]"]
    deep: Any = a
    for _ in range(100_000):
        deep = (deep,)
    assert tensors_in(deep) == [] and len(list(leaves(deep))) == 1
    assert same(tensors_in(((a,), b), depth=1), [b])


def test_attributes_of_plain_objects_without_code_of_theirs() -> None:
    class Holder:
        def __init__(self) -> None:
            self.inner = [a]

        @property
        def never(self) -> Any:
            raise AssertionError

    class Lazy(UserDict):
        def __iter__(self) -> Any:
            raise AssertionError

    lazy = Lazy()
    lazy.data["x"] = b
    assert tensors_in([Holder()]) == []
    assert same(tensors_in([Holder(), lazy, torch.nn.Linear(1, 1), Holder], attributes=True), [a, b])


def test_exchanged_in_new_containers() -> None:
    new = mapped(NESTED, lambda one: -one if isinstance(one, torch.Tensor) else one)
    assert new["one"][1] == (-b, 3) and type(new["two"]) is Pair and type(new["two"].left) is Out
    assert new["two"].left.first == -c and NESTED["two"].left.first is c
    assert type(mapped(ModelOutput(a), lambda one: one)) is dict
    assert mapped(torch.Size([2, 3]), lambda one: one) == torch.Size([2, 3])
