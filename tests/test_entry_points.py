"""The roots and the inputs of a backward call, in every form that torch accepts."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.autograd.graph import get_gradient_edge

import backprobe
from backprobe.torch_internals.entry_points import BY_FUNCTION, BY_KIND, as_list

x = torch.ones(2, requires_grad=True)
loss = (x * 2).sum()
edge = get_gradient_edge(loss)


@pytest.mark.parametrize(
    ("kind", "args", "kwargs", "roots"),
    [
        ("Tensor.backward", (loss,), {}, [loss]),
        ("Tensor.backward", (), {"self": loss, "retain_graph": True}, [loss]),
        ("autograd.backward", ([loss, x],), {}, [loss, x]),
        ("autograd.backward", (edge,), {}, [edge]),
        ("autograd.backward", (), {"tensors": (edge, loss)}, [edge, loss]),
        ("autograd.grad", (loss, x), {}, [loss]),
        ("autograd.grad", ({"a": loss}.values(),), {"inputs": x}, [loss]),
        ("autograd.grad", (), {"inputs": x}, []),  # wrong use, as all below
        ("autograd.backward", (None,), {}, []),
        ("autograd.backward", ("loss",), {}, []),
    ],
)
def test_where_a_call_begins(kind: str, args: Any, kwargs: Any, roots: list[Any]) -> None:
    assert BY_FUNCTION[BY_KIND[kind].function] is BY_KIND[kind]
    found = BY_KIND[kind].begins_at(args, kwargs)
    assert len(found) == len(roots) and all(a is b for a, b in zip(found, roots, strict=True))


def test_an_iterator_is_left_to_torch() -> None:
    given = iter([loss])
    assert as_list(given) == [given] and next(given) is loss


def test_inputs_in_a_view_of_a_dict_are_known() -> None:
    model = torch.nn.Linear(3, 1)
    with backprobe.trace(model) as trace:
        model(torch.ones(2, 3)).sum().backward(inputs={"w": model.weight}.values())
    (call,) = trace.backwards
    ran = {run.parameter for run in call.nodes if run.parameter and run.order is not None}
    assert ran == {"weight"}
