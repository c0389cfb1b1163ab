"""Reading saved tensors where torch does not show them (2.8), held against torch's own view where it does."""

from __future__ import annotations

import functools
import gc
import signal
import sys

import pytest
import torch
import torch.nn.functional as F
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

from backprobe.torch_internals import backward_by_name, checkpoints, saved_by_nodes, saved_by_unpacking


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        out = a * b
        ctx.save_for_backward(a, None, b, out)
        return out

    @staticmethod
    def backward(ctx, grad):
        a, _, b, _ = ctx.saved_tensors
        return grad * b, grad * a


def slots(node):
    """name -> slot, read as on an old torch whichever this is."""
    found = {}
    for attribute in dir(type(node)):
        if attribute.startswith("_raw_saved_"):
            raw = getattr(node, attribute)
            for i, slot in enumerate(saved_by_unpacking.slots(node, attribute, raw)):
                found[attribute[len("_raw_saved_") :] + (f"[{i}]" if slot.many else "")] = slot
    return found


def nodes_of(loss):
    seen = [loss.grad_fn]
    for node in seen:
        seen += [n for n, _ in node.next_functions if n is not None and n not in seen]
    return seen


def message(call):
    with pytest.raises(RuntimeError) as raised:
        call()
    return str(raised.value)


def test_read_tensors_are_the_saved_ones():
    x = torch.randn(4, 3, requires_grad=True)
    w = torch.randn(3, 3, requires_grad=True)
    h = torch.cat([F.gelu(x @ w), x.exp().clone()[:, :2]], 1)
    loss = F.layer_norm(Product.apply(h, torch.rand(4, 5)), (5,)).softmax(1).max(1).values.sum()
    read = 0
    for node in nodes_of(loss):
        for attribute in [a for a in dir(type(node)) if a.startswith("_raw_saved_")]:
            unpack = attribute[4:] if hasattr(type(node), attribute[4:]) else attribute[5:]
            truth = getattr(node, unpack)
            raw = getattr(node, attribute)
            many = isinstance(raw, (tuple, list))
            made = saved_by_unpacking.slots(node, attribute, raw)
            for slot, tensor in zip(made, truth if many else [truth], strict=True):
                assert slot.unpack_hook is None and not slot.changed and not slot.freed
                if tensor is None:
                    assert slot.data is None
                    continue
                read += 1
                assert torch.equal(slot.data, tensor) and slot.data._version == tensor._version
                assert slot.data.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr()
                assert slot.own == (tensor.grad_fn is node) and (slot.data.grad_fn is None or not slot.own)
                if saved_by_nodes.SHOWS_SAVED:  # torch's own view
                    shown = (raw if many else [raw])[made.index(slot)]
                    assert torch.equal(shown.data, slot.data) and shown.unpack_hook is None
    assert read >= 12
    loss.backward()
    assert all(s.freed for s in slots(loss.grad_fn.next_functions[0][0]).values())
    assert saved_by_nodes.slot_content(next(iter(slots(loss.grad_fn.next_functions[0][0]).values()))) is None


def test_no_unpack_hook_runs_and_its_packed_object_is_visible():
    called = []

    def unpack(box):
        called.append(box)
        return box[0]

    class Unpacker:
        def method(self, box):
            return unpack(box)

        def __call__(self, box):
            return unpack(box)

    def several(*boxes):
        return unpack(boxes[0])

    x = torch.randn(3, requires_grad=True)
    for hook in (unpack, lambda box, more=1: unpack(box), Unpacker().method, Unpacker(), several):
        with saved_tensors_hooks(lambda t: (t.detach(),), hook):
            y = x.exp().sin()
        slot = slots(y.grad_fn)["self"]
        assert torch.equal(slot.data[0], x.exp().detach()) and slot.hidden_users == 0
        expected = getattr(hook, "__code__", type(hook).__call__.__code__ if type(hook) is Unpacker else None)
        assert slot.unpack_hook.__code__ is expected
    with saved_tensors_hooks(lambda t: (t.detach(),), functools.partial(lambda box: unpack(box))):
        product = Product.apply(x.exp(), x.sin())
    read = slots(product.grad_fn)
    assert torch.equal(read["tensors[0]"].data[0], x.exp().detach())
    assert isinstance(read["tensors[2]"].data, saved_by_unpacking.Unseen)  # of several, only the first is shown
    assert called == []
    product.sum().backward()
    assert len(called) >= 2 and x.grad is not None


def test_a_checkpoint_does_not_run_again():
    runs = []

    def block(h):
        runs.append(1)
        return h.sin().exp().sin()

    out = checkpoint(block, torch.randn(3, requires_grad=True), use_reentrant=False)
    slot = slots(out.grad_fn)["self"]
    frame = slot.unpack_hook.__closure__[slot.unpack_hook.__code__.co_freevars.index("frame")].cell_contents
    assert runs == [1] and type(frame).__name__ == "_CheckpointFrame"
    (given,) = checkpoints.checkpoint_inputs(frame)
    assert saved_by_nodes.slot_content(given)[0].shape == (3,)


def test_a_tensor_that_was_written_is_read_and_torch_says_the_same_about_it():
    def program():
        torch.manual_seed(0)
        x = torch.randn(3, requires_grad=True)
        a, b = x.exp(), x.sin().clone()
        out = Product.apply(a, b)
        cosine = b.cos()
        b.mul_(2)
        return a, b, out, cosine

    _, _, out, cosine = program()
    plain = [message(out.sum().backward), message(cosine.sum().backward)]
    a, b, out, cosine = program()
    for _ in range(2):  # also when it has our pair already
        read = slots(out.grad_fn)
        assert [s.changed for s in read.values()] == [False, False, True, False]
        assert torch.equal(read["tensors[2]"].data, b) and torch.equal(read["tensors[0]"].data, a)
        assert read["tensors[2]"].data.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()
        only = slots(cosine.grad_fn)["self"]
        assert only.changed and torch.equal(only.data, b) and only.unpack_hook is None
    assert [message(out.sum().backward), message(cosine.sum().backward)] == plain
    b.add_(1)
    assert "is at version 2; expected version 0" in message(cosine.sum().backward)
    with torch.no_grad():  # what torch does not refuse, we do not either
        torch._C._autograd._unsafe_set_version_counter((b,), (0,))
    cosine.sum().backward()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGALRM")
def test_collector_and_signals_are_left_alone():
    x = torch.randn(3, requires_grad=True)
    with saved_tensors_hooks(lambda t: (t,), lambda t: t[0]):
        hooked = x.exp().sin()
    node, plain = hooked.grad_fn, x.sin().grad_fn
    collected, rang = [], []

    def collector(*_):
        collected.append(1)

    before, old = gc.get_threshold(), signal.signal(signal.SIGALRM, lambda *_: rang.append(1))
    gc.callbacks.append(collector)
    gc.set_threshold(1)
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
    try:
        for _ in range(2000):
            assert slots(node)["self"].unpack_hook is not None
            assert slots(plain)["self"].data is x
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
        gc.set_threshold(*before)
        gc.callbacks.remove(collector)
    assert gc.isenabled() and sys.getprofile() is None and collected and rang


def test_profilers_and_debuggers_stay():
    x = torch.randn(3, requires_grad=True)
    called = []

    def unpack(t):
        called.append(1)
        return t

    with saved_tensors_hooks(lambda t: t.detach(), unpack):
        node = x.exp().sin().grad_fn

    def nothing(*_):
        return None

    old_trace, old_profile = sys.gettrace(), sys.getprofile()
    try:
        sys.settrace(None)
        sys.setprofile(nothing)
        assert slots(node)["self"].unpack_hook.__qualname__.endswith("unpack")
        assert sys.getprofile() is nothing and sys.gettrace() is None
        sys.settrace(nothing)
        slot = slots(node)["self"]
        assert sys.getprofile() is nothing and sys.gettrace() is nothing
    finally:
        sys.settrace(old_trace)
        sys.setprofile(old_profile)
    assert type(slot.unpack_hook) is saved_by_unpacking.Occupied and isinstance(slot.data, saved_by_unpacking.Unseen)
    assert called == []


def test_a_mode_sees_backward_called_by_its_name_only_while_it_wants_to(monkeypatch):
    seen = []

    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            if func is backward_by_name.shown:
                seen.append((args, kwargs))
            return func(*args, **(kwargs or {}))

    own = torch.autograd.backward
    monkeypatch.setattr(backward_by_name, "SHOWS", False)
    first, second = Mode(), Mode()
    x = torch.ones(2, requires_grad=True)
    with first, second:
        backward_by_name.show(first)
        backward_by_name.show(second)
        assert torch.autograd.backward is not own and torch.autograd.backward.__doc__ == own.__doc__
        torch.autograd.backward(x.sum())
        assert len(seen) == 2 and x.grad.tolist() == [1, 1]  # each mode of the stack, as torch does it
        backward_by_name.unshow(first)
        assert torch.autograd.backward is not own
        backward_by_name.unshow(second)
        assert torch.autograd.backward is own
    backward_by_name.show(first)  # not on this thread's stack
    count = len(seen)
    torch.autograd.backward((x * 2).sum())
    backward_by_name.unshow(first)
    assert len(seen) == count and x.grad.tolist() == [3, 3] and torch.autograd.backward is own
    assert "has no attribute" not in message(lambda: torch.autograd.backward(torch.ones(2)))
