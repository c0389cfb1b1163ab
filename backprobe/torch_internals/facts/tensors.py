"""Facts about tensors: versions, views, hooks, weak references, memory."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

from .. import autograd_engine, modes, references, retain_grad, storage_ids
from .registry import DYNAMO, ENGINE, expect, fact, leaf


def _plain(size: int = 3) -> torch.Tensor:
    """Return a tensor of ones without a graph."""
    return torch.ones(size, dtype=torch.float32, device="cpu")


@fact(
    "versions of tensors",
    "writes in place are not seen: in-place errors name no line, checkpoints that change state are not found, policies "
    "of saved tensors refuse nothing",
    "_version",
)
def versions() -> None:
    """Check that a write moves the version of a tensor, its views and aliases, and not that of ``.data``."""
    x = _plain()
    was, other = x._version, x.data
    view, token = x[:2], x.detach()
    token.data = token.new_empty(0)  # it shares the counter, and holds no memory
    x.add_(1)
    now = [t._version - was for t in (x, view, token)]
    expect(now == [1, 1, 1], f"a write moved the versions of a tensor, its view and its detached alias by {now}")
    expect(other._version == 0, "what .data gives shares the tensor's version")


@fact(
    "views",
    "gradients and edits of views are lost where their base is written, and cuts made under no_grad name no parameter",
    "_is_view _base",
)
def views() -> None:
    """Check that a view knows its base, also one made under ``no_grad``."""
    x = leaf().exp()
    with torch.no_grad():
        view = x[:1]
    expect(view._is_view() and view._base is x and view.grad_fn is None, "a view does not know its base")
    expect(not x._is_view() and x._base is None, "what is no view has a base")


@fact(
    "hooks of tensors",
    "hooks on parameters are not seen, and what they read too early is not found",
    "_backward_hooks _post_accumulate_grad_hooks",
    [ENGINE],
)
def hooks() -> None:
    """Check the attributes that hold a tensor's hooks, and the order in which they run."""
    x, called = leaf(), []
    expect(not x._backward_hooks and not autograd_engine.post_accumulate_hooks(x), "a new tensor has hooks")
    x.register_hook(lambda grad: called.append("first"))
    handle = x.register_hook(lambda grad: called.append("second"))
    known: Any = x._backward_hooks
    expect(len(known) == 2 and handle.id in known, "hooks of a tensor are not in its dict")
    first = next(iter(known))
    known[first] = known.pop(first)
    x.register_post_accumulate_grad_hook(lambda x: called.append("after"))
    expect(len(autograd_engine.post_accumulate_hooks(x)) == 1, "hooks after accumulation are not in their dict")
    made = x.exp().sum()
    accumulator: Any = made.grad_fn.next_functions[0][0].next_functions[0][0]  # type: ignore[union-attr]
    accumulator.register_prehook(lambda grads: called.append("node"))
    made.backward()
    expect(called == ["second", "first", "node", "after"], f"hooks of a leaf ran in the order {called}")


@fact(
    "weak references to tensors",
    "parameters are taken for others, or kept alive",
    "_fix_weakref",
)
def weak() -> None:
    """Check that a weak reference follows a tensor as long as Python or torch uses it."""
    x = _plain()
    view, ref = x[:1], references.tensor_ref(x)
    number = id(x)
    expect(references.tensor_ref(x) is ref, "a second weak reference to a tensor is another object")
    del x
    found = ref()
    expect(found is not None and id(found) == number and view._base is found, "a tensor that is in use was lost")
    del view, found
    expect(ref() is None, "a tensor that nobody uses is there")


@fact(
    "tensors that are swapped",
    "models whose parameters are wrapper subclasses cannot be converted while they are observed",
    "",
)
def swapped() -> None:
    """Check that a tensor with a weak reference can be swapped with another."""
    x, other = _plain(), torch.zeros(3, device="cpu")
    ref = references.tensor_ref(x)
    try:
        torch.utils.swap_tensors(x, other)
    except RuntimeError as e:
        expect(False, str(e))
    expect(ref() is x and not bool(torch.any(x)), "a weak reference leads to another tensor after a swap")


@fact(
    "memory of tensors",
    "what a graph keeps cannot be counted by storage, nor who else holds it",
    "_cdata _storage_Use_Count",
)
def storages() -> None:
    """Check that storages are recognised and their users counted."""
    x, other = _plain(), _plain()
    keys = [storage_ids.storage_key(t.untyped_storage()) for t in (x, x[1:], other)]
    expect(keys[0] == keys[1] != keys[2], f"a tensor, its view and another tensor have the storages {keys}")
    expect(storage_ids.storage_of(x) == (keys[0], 12), f"3 floats are {storage_ids.storage_of(x)}")
    alone = storage_ids.storage_users(x.untyped_storage())
    view = x[1:]
    more = storage_ids.storage_users(view.untyped_storage()) - alone
    expect(more == 1, f"a view adds {more} users to a storage")


@fact(
    "parts of sparse tensors",
    "memory of saved sparse tensors is not counted",
    "_indices _values",
)
def sparse() -> None:
    """Check that the parts of a sparse tensor can be read."""
    indices = torch.zeros((1, 2), dtype=torch.int64, device="cpu")
    made = torch.sparse_coo_tensor(indices, _plain(2), (3,), check_invariants=False)
    shapes = [tuple(t.shape) for t in storage_ids.sparse_parts(made)]
    expect(shapes == [(1, 2), (2,)], f"a sparse tensor of 2 entries has parts of the shapes {shapes}")


@fact(
    "norms of many tensors at once",
    "norms of parameters, gradients and updates are missing from steps",
    "_foreach_norm",
)
def norms() -> None:
    """Check that torch computes the norms of several tensors in one call."""
    found = [float(n) for n in torch._foreach_norm([_plain(4), _plain(9)])]
    expect(found == [2.0, 3.0], f"norms of 4 and 9 ones are {found}")


@fact(
    "many tensors written to at once",
    "statistics by layer have no updates, and nothing of Adam's second moment",
    "_foreach_sub_ _foreach_div_",
)
def written_at_once() -> None:
    """Check that torch writes to several tensors in one call."""
    some = [_plain(2), _plain(2)]
    torch._foreach_div_(some, [2.0, 4.0])
    torch._foreach_sub_(some, [_plain(2), _plain(2)])
    found = [float(one.sum()) for one in some]
    expect(found == [-1.0, -1.5], f"1 / 2 - 1 and 1 / 4 - 1, twice each, are {found}")


@fact(
    "what an op writes",
    "policies that let saved tensors be written do not copy them in time, and a node in float64 may write into a "
    "tensor that was there before",
    "_schema",
)
def schemas() -> None:
    """Check that an op's schema says whether it writes its input."""
    for op, writes in ((torch.ops.aten.add_.Tensor, True), (torch.ops.aten.add.Tensor, False)):
        first = op._schema.arguments[0]
        alias = first.alias_info is not None and first.alias_info.is_write
        expect(bool(first.is_write) is writes and alias is writes, f"{op} says that it writes its input: {alias}")


@fact(
    "trees of tensors",
    "arguments of checkpoints and ops cannot be taken apart",
    "_pytree",
)
def trees() -> None:
    """Check that torch's functions take nested arguments apart and put them together again."""
    tree = {"a": [1, (2,)], "b": 3}
    leaves, spec = tree_flatten(tree)
    expect(leaves == tree_leaves(tree) == [1, 2, 3], f"the leaves of {tree} are {leaves}")
    expect(tree_unflatten(leaves, spec) == tree_map(lambda x: x, tree) == tree, "a tree does not come back")


@fact(
    "activations that retain gradients",
    "each derivative looks through all objects of the process for them",
    "_FunctionBase",
)
def retained() -> None:
    """Check that outputs of nodes that retain their gradient are counted."""
    x = leaf()
    made = retain_grad.InspectedFunction.apply(x.exp()).sin()
    layout = retain_grad.Layout()
    found = [layout.count([made.grad_fn])[0]]
    for tensor in (made, made.view(3, 1), *(parts := x.unbind())):
        tensor.retain_grad()
        found.append(layout.count([tensor.grad_fn])[0])
    expect(found == [0, 1, 2, 1, 2, 3], f"outputs of nodes that retain their gradient are {found}")
    expect(layout.count([parts[0].grad_fn])[0] == 3, "outputs of one node that retain their gradient are not counted")


@fact(
    "what stands for many tensors at once",
    "gradients that are captured inside vmap and is_grads_batched are lost, or are errors",
    "_vmapmode_increment_nesting _vmapmode_decrement_nesting _remove_batch_dim",
    [ENGINE, DYNAMO],
)
def batches() -> None:
    """Check that the tensors behind a batched gradient can be read."""
    x = leaf()
    made = x.exp()
    seen: list[list[torch.Tensor]] = []
    made.register_hook(lambda grad: seen.append(modes.unbatched_tensors(grad)))
    given = torch.arange(6.0, dtype=torch.float32, device="cpu").reshape(2, 3)
    torch.autograd.grad(made, x, given, retain_graph=True, is_grads_batched=True)
    expect(len(seen[0]) == 2 and torch.equal(torch.stack(seen[0]), given), f"a batch of 2 gradients is {seen[0]}")
