"""Facts about the tensors that nodes save, the hooks that pack them, and the related errors."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch.autograd.graph import saved_tensors_hooks

from ...basics import torch_texts
from ...ops import canonical
from .. import code_objects, forward_again, loss_terms, saved_by_nodes
from .registry import ENGINE, OWN_PROCESS, expect, fact, leaf, said_by


class _Product(torch.autograd.Function):
    """A custom function that multiplies two tensors and saves both."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """Save `a` and `b`, and return their product."""
        ctx.save_for_backward(a, b)
        return a * b

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the gradients of both factors."""
        a, b = ctx.saved_tensors
        return grad * b, grad * a


def _read(node: object) -> list[tuple[str, torch.Tensor | None, bool, bool]]:
    """Read the tensors that `node` saved, without unpack hooks.
    :returns: for each: its name, the tensor, whether the node itself made it, whether it was written in place since.
    """
    found, _ = saved_by_nodes.read_saved(node, saved_by_nodes.saved_attributes(type(node), node))
    return [(name, tensor, own, changed) for name, tensor, own, changed, _ in found]


@fact(
    "saved tensors",
    "what nodes keep is not seen: no values behind a NaN, no bytes by module, no writes behind autograd's back",
    "_saved_result _raw_saved_tensors",
)
def saved() -> None:
    """Check which tensors nodes save, under which names, and that a write to one of them shows."""
    x = leaf()
    power, product, custom = x.exp(), x * x, _Product.apply(x, x)
    ((name, tensor, own, changed),) = _read(power.grad_fn)
    expect((name, own, changed) == ("result", True, False), f"exp keeps {name}, its own: {own}, changed: {changed}")
    expect(torch.equal(tensor, power), "exp keeps another tensor than its result")
    names = [name for name, *_ in _read(product.grad_fn)]
    expect(names == ["self", "other"] or names == ["other", "self"], f"a product keeps {names}")
    expect([t is x for _, t, *_ in _read(product.grad_fn)] == [True, True], "a product does not keep its factors")
    names = [name for name, _ in saved_by_nodes.saved_tensors(custom.grad_fn)]
    expect(names == ["tensors[0]", "tensors[1]"], f"a custom function that keeps two tensors keeps {names}")
    with torch.no_grad():
        power.add_(1)
    expect([changed for *_, changed in _read(power.grad_fn)] == [True], "a write to what exp keeps does not show")


@fact(
    "tensors behind hooks",
    "offloaded and packed tensors are unpacked by looking at them: hooks of the user's run, checkpoints recompute",
    "_autograd _top_saved_tensors_default_hooks _push_saved_tensors_default_hooks _pop_saved_tensors_default_hooks "
    "_saved_tensors_hooks_get_disabled_error_message",
)
def hooked() -> None:
    """Check that a tensor packed by hooks can be seen without being unpacked, and that the stack of hooks can be
    read.
    """
    called: list[object] = []

    def pack(tensor: torch.Tensor) -> object:
        """Pack a tensor for the check."""
        return ("packed", tensor.detach())

    def unpack(packed: Any) -> Any:
        """Record the call, and return the tensor."""
        called.append(packed)
        return packed[1]

    with saved_tensors_hooks(pack, unpack):
        expect(saved_by_nodes.top_hooks() == (pack, unpack), "the innermost pair of hooks cannot be read")
        expect(saved_by_nodes.stacked_hooks() == [(pack, unpack)], "the pairs of hooks cannot be listed")
        node: torch.autograd.graph.Node | None = leaf().sin().grad_fn
    expect(saved_by_nodes.top_hooks() is None, "a pair of hooks is there that is over")
    ((name, slot),) = saved_by_nodes.saved_slots(node)
    content: Any
    content, packed = saved_by_nodes.slot_content(slot) or ((None,), False)
    expect(name == "self" and packed and content[0] == "packed", "what a hook has packed cannot be seen")
    expect(slot.unpack_hook.__code__ is unpack.__code__, "the hook that unpacks cannot be seen")
    expect(_read(node) == [("self", None, False, False)] and not called, "looking at a packed tensor unpacks it")
    saved_by_nodes.push_hooks(pack, unpack)
    expect(saved_by_nodes.top_hooks() == (pack, unpack), "a pair of hooks cannot be put on")
    saved_by_nodes.pop_hooks()
    expect(saved_by_nodes.top_hooks() is None, "a pair of hooks cannot be taken off")


@fact(
    "freed tensors",
    "a second backward through one graph is not explained, and freed graphs are taken for live ones",
    "FREED FREED_TENSORS",
    [ENGINE],
)
def freed() -> None:
    """Check that a node counts as freed after a backward, and the error of a second backward."""
    made = _Product.apply(leaf().exp(), leaf())
    nodes: tuple[torch.autograd.graph.Node, ...] = (made.grad_fn, made.grad_fn.next_functions[0][0])
    expect([saved_by_nodes.is_freed(n) for n in nodes] == [False, False], "nodes count as freed before any backward")
    made.sum().backward()
    expect([saved_by_nodes.is_freed(n) for n in nodes] == [True, True], "nodes do not count as freed after a backward")
    text = said_by(lambda: made.sum().backward())
    expect(torch_texts.FREED in text and torch_texts.FREED_TENSORS in text, f"torch says {text}")


@fact(
    "in-place errors",
    "in-place errors: the tensor, the line that saved it and the line that wrote it are not named",
    "IN_PLACE IN_PLACE_DETAIL",
)
def in_place() -> None:
    """Check the error for a saved tensor that was written in place, and what can be read from it."""
    text = saved_by_nodes.in_place_error()
    found = torch_texts.IN_PLACE_DETAIL.search(text)
    expect(torch_texts.IN_PLACE in text and found is not None, f"torch says {text}")
    said = found.groupdict() if found is not None else {}
    op = said.pop("op", None) or ""
    expect(said == {"shape": "1", "output": "0", "found": "1", "saved": "0"}, f"torch says {text}")
    expect(op in ("Exp", "ExpBackward0"), f"torch calls the node of an exp {op}")


@fact(
    "nodes of C++ extensions",
    "nodes of C++ extensions count as keeping nothing, where what they keep is unknown",
    needs=[OWN_PROCESS],
)
def extensions() -> None:
    """Check that the node of a compiled TorchScript function counts as one whose saved tensors are not listed."""
    compiled = torch.jit.CompilationUnit("def twice(x):\n    return x * 2 + 1\n")
    made: Any = None
    for _ in range(3):  # the node of the whole function appears once it is optimised; Python knows only its name
        made = compiled.twice(leaf())
    node = made.grad_fn
    expect(node is not None and not saved_by_nodes.lists_its_tensors(node), f"such a node is a {type(node).__name__}")


@fact(
    "the forward again",
    "a loss that nothing saw become NaN is named by the line of its backward only",
    "_saved_correction _saved_dim _saved_eps _saved_exponent _saved_keepdim",
)
def again() -> None:
    """Check that results of ops can be computed again from the tensors that their nodes save."""
    x = torch.full((2, 3), 0.3, dtype=torch.float64, requires_grad=True)
    for made in (x.log(), x / (x + 1), x * x.exp(), x**2.5, torch.logit(x, 1e-3), x.var(1, keepdim=True), x.acos()):
        node: Any = made.grad_fn
        kept = dict(saved_by_nodes.saved_tensors(node))
        name = canonical(node.name())
        found = forward_again.forward_again(name, node, kept)
        expect(found is not None and torch.equal(found, made), f"{name} cannot be computed from what its node keeps")


@fact(
    "the forward from its inputs",
    "a loss that becomes NaN in a step that is not recorded is explained less often",
    "_saved_alpha _saved_beta _saved_dim _saved_dim0 _saved_dim1 _saved_keepdim _saved_exponent",
)
def from_inputs() -> None:
    """Check that results of ops can be computed again from their inputs and the settings that their nodes save."""
    x = torch.tensor([[0.3, 0.5, 0.9], [0.2, 0.7, 0.4]], dtype=torch.float64, requires_grad=True)
    w = torch.tensor([[0.6, 0.1, 0.8], [0.3, 0.2, 0.5]], dtype=torch.float64, requires_grad=True)
    made = [x + w, torch.sub(x, w, alpha=2), x * w, x / w, x**2, -x, x.abs(), x.softmax(-1), x.sum(-1), x.mean()]
    made += [x.half(), x.transpose(0, -1), x.view(3, 2), x.expand(4, 2, 3), torch.addmm(x[:, :2], x, w.t(), beta=2)]
    for one in made:
        node: Any = one.grad_fn
        kept = dict(saved_by_nodes.saved_tensors(node))
        leaves = [getattr(before, "variable", None) for before, _ in node.next_functions]
        name = canonical(node.name())
        if name == "addmm":
            leaves = [x[:, :2], x, w.t()]
        found = forward_again.forward_from_inputs(name, node, kept, leaves)
        expect(found is not None and torch.equal(found, one), f"{name} cannot be computed from what goes in")
    powers = [forward_again.raises_to_natural_number(one.grad_fn) for one in (x**2, x**0.5, x**-1)]
    expect(powers == [True, False, False], "a power does not say its exponent")


@fact(
    "normalisations",
    "statistics that change before the backward of a normalisation in eval mode are not noticed",
    "_saved_training",
)
def statistics() -> None:
    """Check that a normalisation's node says whether it used running statistics."""
    x, mean, var = torch.ones(2, 3, requires_grad=True), torch.zeros(3), torch.ones(3)
    made = (torch.nn.functional.batch_norm(x, mean, var, training=training) for training in (True, False))
    read = [saved_by_nodes.uses_running_statistics(one.grad_fn) for one in made]
    expect(read == [False, True], "a normalisation does not say in which mode it ran")


@fact(
    "settings of attention",
    "entropy and greatest logit of attention are taken for those of the default scale, and of no causal mask",
    "_saved_scale _saved_is_causal",
)
def attention() -> None:
    """Check that an attention's node says its scale and whether it is causal."""
    q = torch.ones(1, 1, 3, 4, requires_grad=True)
    attend = torch.nn.functional.scaled_dot_product_attention
    made = (attend(q, q, q, scale=scale, is_causal=scale is not None) for scale in (None, 0.25))
    read = [saved_by_nodes.attention_settings(one.grad_fn) for one in made]
    expect(read == [(None, False), (0.25, True)], f"attention says of its scale and mask {read}")


@fact(
    "lookups in embeddings",
    "a padding row that stands for a real id is not noticed",
    "_saved_padding_idx",
)
def lookups() -> None:
    """Check that an embedding's node keeps its ids and its padding row."""
    table, ids = torch.ones(3, 2, requires_grad=True), torch.tensor([0, 2])
    for row, given in ((0, 0), (1, -2), (-1, None)):
        node = torch.nn.functional.embedding(ids, table, padding_idx=given).grad_fn
        found, looked_up = saved_by_nodes.embedding_lookup(node)
        expect(found == row, f"an embedding with the padding row {given} keeps {found}")
        expect(looked_up is not None and torch.equal(looked_up, ids), "an embedding does not keep its ids")


@fact(
    "targets of classes",
    "targets that are not the next tokens of a sequence are not noticed",
    "_saved_ignore_index",
)
def class_targets() -> None:
    """Check that the node of ``nll_loss`` keeps its targets and the class that it ignores."""
    targets = torch.tensor([1, 0])
    for ignored in (-100, 2):
        scores = torch.zeros(2, 3, requires_grad=True)
        node = torch.nn.functional.nll_loss(scores, targets, ignore_index=ignored).grad_fn
        kept, index = saved_by_nodes.class_targets(node)
        expect(index == ignored, f"a loss that ignores {ignored} says that it ignores {index}")
        expect(kept is not None and torch.equal(kept, targets), "a loss does not keep its targets")


@fact(
    "targets of ctc_loss",
    "targets that are the blank are not noticed",
    "_saved_target_lengths _saved_blank",
)
def ctc_targets() -> None:
    """Check that the node of ``ctc_loss`` keeps its targets, their lengths and the blank."""
    scores = torch.zeros(4, 2, 3, requires_grad=True)
    targets, lengths = torch.tensor([[1, 2], [1, 0]]), torch.tensor([2, 1])
    node: torch.autograd.graph.Node | None = torch.nn.functional.ctc_loss(
        scores, targets, torch.tensor([4, 4]), lengths, 2, "none"
    ).grad_fn
    kept, read, blank = saved_by_nodes.ctc_targets(node)
    expect((read, blank) == ((2, 1), 2), f"a loss with the blank 2 and the lengths 2 and 1 says {blank} and {read}")
    expect(kept is not None and torch.equal(kept, targets), "a loss does not keep its targets")


@fact(
    "choices",
    "the load of routers is not measured",
    "_saved_dim _saved_self_sym_sizes",
)
def choices() -> None:
    """Check that nodes of ``topk`` and ``max`` keep dimension and shape of their input, and views the shape before."""
    x = torch.arange(6.0).reshape(2, 3).requires_grad_()
    made: tuple[torch.Tensor, ...] = (x.topk(2, -1).values, x.topk(2, 1).values, x.max(-1).values, x.topk(1, 0).values)
    read = [saved_by_nodes.chosen_from(one.grad_fn) for one in made]
    expect(read == [(1, (2, 3))] * 3 + [(0, (2, 3))], f"topk and max say of what they chose from {read}")
    names = [name for name, _ in saved_by_nodes.saved_slots(made[0].grad_fn)]
    expect(names == ["indices"], f"topk keeps {names}")
    shape = saved_by_nodes.shape_before(x.view(3, 2).grad_fn)
    expect(shape == (2, 3), f"a view says that its input had the shape {shape}")


@fact(
    "slices",
    "targets that are shifted are not compared with the tokens of the input",
    "_saved_dim _saved_self_sym_sizes _saved_start _saved_end _saved_step",
)
def slices() -> None:
    """Check that a slice's node says which positions it took."""
    x = torch.zeros(2, 5, 3, requires_grad=True)
    made: tuple[torch.Tensor, ...] = x[:, :-1], x[..., 1:, :], x[:, 1:-1], x[:, ::2], x[1:], x.mul(2)
    read = [saved_by_nodes.slice_of(one.grad_fn) for one in made]
    expect(read == [(0, 4, 5), (1, 4, 5), (1, 3, 5), None, None, None], f"slices say that they took {read}")


@fact(
    "functions without a second derivative",
    "an error about one names no line of the forward, and clipping may be blamed for gradients that are not finite",
    "FUNCTION_FILE KEEPS_FINITE",
)
def once() -> None:
    """Check that functions marked ``once_differentiable`` are recognised, and the files of functions that use
    gradients.
    """

    class Once(_Product):
        """A custom function without a second derivative."""

        backward = staticmethod(torch.autograd.function.once_differentiable(_Product.backward))

    expect(
        code_objects.is_once(Once) and not code_objects.is_once(_Product), "a function that is marked so cannot be told"
    )
    files = {torch.nn.utils.clip_grad_norm_, torch.amp.GradScaler.unscale_, torch.optim.Optimizer.zero_grad}
    codes = {inspect.unwrap(function).__code__.co_filename for function in files}
    expect(codes <= code_objects.KEEPS_FINITE, f"functions that use gradients are in {codes}")


@fact(
    "terms of a loss",
    "an autoencoder whose codes carry nothing is not noticed, nor a loss that is not divided by the batches",
    "_saved_alpha _saved_dim _saved_exponent _saved_ignore_index _saved_reduction _saved_self_sym_sizes",
)
def terms_of_losses() -> None:
    """Check that the terms of a loss and their weights can be read from its graph."""
    x = torch.full((2, 3), 0.5).requires_grad_()
    error = torch.nn.functional.mse_loss(x.tanh(), torch.zeros(2, 3))
    loss = 3 * torch.sub(error, x.square().mean(1).sum(), alpha=2) - x.exp().sum() / 4
    found = {term.node.name(): term.weight for term in loss_terms.terms_of(loss.grad_fn)}
    expect(
        found == {"MseLossBackward0": 3.0, "PowBackward0": -2.0, "ExpBackward0": -0.25}, f"a loss has the terms {found}"
    )
    counted = [loss_terms.comparison_of(term) for term in loss_terms.terms_of(loss.grad_fn)]
    expect(("mse_loss", 6, 0.5) in counted, f"a mean over 6 elements with the factor 3 is read as {counted}")
    loss = torch.nn.functional.cross_entropy(x, torch.tensor([1, 0]), label_smoothing=0.25)
    shares = [loss_terms.share_of(path) for path in loss_terms.paths_of(loss.grad_fn)]
    expect(loss_terms.Share(True, 0.75, 1, 1) in shares, f"a mean with the factor 0.75 is read as {shares}")
