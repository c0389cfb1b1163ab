"""Scripts with one mistake each."""

from __future__ import annotations

CHECKPOINTED = """
from torch.utils.checkpoint import checkpoint
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.drop, self.calls = nn.Linear(4, 4), nn.Dropout(0.5), 0
    def forward(self, x):
        self.calls += 1
        h = self.linear(x)
        if {when}:
            h = {op}  # HERE
        return h.sin().relu()
block = Block()
model = nn.Sequential(nn.Linear(4, 4), block)
for _ in range(2):
    h = model[0](torch.randn(6, 4))
    out = checkpoint(block, h, use_reentrant={reentrant}{more})
    {after}
    {end}
"""


def checkpointed(when="True", op="h", reentrant=False, more="", after="", end="out.sum().backward()"):
    """A script with a checkpointed block that does `op` in the calls in which `when` holds."""
    return CHECKPOINTED.format(when=when, op=op, reentrant=reentrant, more=more, after=after, end=end)


RAISES = "raises(out.sum().backward)"
#: name -> (script, kind, part of the main line or None, module)
BROKEN = {
    "a list in a dict keeps graphs": (
        """
        class Probe:
            def __init__(self):
                self.history = {"pooled": []}
            def seen(self, out):
                self.history["pooled"].append(out)  # HERE
        net, probe = nn.Linear(4, 2), Probe()
        opt = torch.optim.SGD(net.parameters(), lr=0.01)
        for _ in range(8):
            out = net(torch.randn(3, 4))
            opt.zero_grad()
            out.square().mean().backward()
            opt.step()
            probe.seen(out)
        """,
        "graph-retained",
        "HERE",
        "",
    ),
    "a penalty on a gradient without a graph": (
        """
        net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
        x = torch.randn(8, 4, requires_grad=True)
        grad, = torch.autograd.grad(net(x).sum(), x)  # HERE
        raises(grad.norm().backward)
        """,
        "none-grad",
        "HERE",
        None,
    ),
    "a compiled model that gives Inf": (
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.linear, self.scale = nn.Linear(4, 4), nn.Parameter(torch.zeros(()))
            def forward(self, x):
                return (self.linear(x).abs() * self.scale).log()  # HERE
        net = torch.compile(Net(), backend="aot_eager")
        out = net(torch.randn(6, 4))
        out.mean().backward()
        """,
        "nonfinite-forward",
        "HERE",
        None,
    ),
    "a hook that changes the size": (
        """
        net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
        def cut_short(module, grad_inputs, grad_outputs):
            return (grad_inputs[0][:2],)
        net[1].register_full_backward_hook(cut_short)
        raises(net(torch.randn(6, 4)).sum().backward)  # HERE
        """,
        "backward-error",
        "HERE",
        "1",
    ),
    "a state that is carried on, where nothing says where a step ends": (
        """
        cell, state = nn.GRUCell(4, 8), torch.zeros(3, 8)
        for _ in range(8):
            state = cell(torch.randn(3, 4), state)  # HERE
            state.square().mean().backward(retain_graph=True)
        """,
        "graph-retained",
        "HERE",
        "",
    ),
    "an average of weights with gradient mode on": (
        """
        net = nn.Linear(6, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.01)
        average = [p.detach().clone() for p in net.parameters()]
        for step in range(24):
            opt.zero_grad()
            net(torch.randn(8, 6)).square().mean().backward()
            opt.step()
            if step > 4:
                for a, p in zip(average, net.parameters()):
                    a.mul_(0.9).add_(0.1 * p)  # HERE
        """,
        "graph-retained",
        "HERE",
        None,
    ),
    "a loss of indices, made a leaf by force": (
        """
        net = nn.Linear(6, 4)
        predicted = net(torch.randn(8, 6)).max(1)[1]  # HERE
        loss = (predicted.float() - 1).square().mean()
        loss.requires_grad = True
        loss.backward()
        """,
        "none-grad",
        "HERE",
        "",
    ),
    "a loss that was made without gradient mode, and a leaf by force": (
        """
        net = nn.Linear(6, 4)
        with torch.no_grad():  # HERE
            loss = net(torch.randn(8, 6)).square().mean()
        loss.requires_grad_()
        loss.backward()
        """,
        "grad-mode-disabled",
        "HERE",
        None,
    ),
    "the indices of a sort go on": (
        """
        net, head = nn.Linear(6, 4), nn.Linear(4, 1)
        _, order = net(torch.randn(8, 6)).sort(1)  # HERE
        head(order.float()).sum().backward()
        """,
        "none-grad",
        "HERE",
        "",
    ),
    "an op more in the recomputation": (
        checkpointed("self.calls % 2 == 0", "torch.tanh(h)", end=RAISES),
        "checkpoint-mismatch",
        "HERE",
        "1",
    ),
    "an op less in the recomputation": (
        checkpointed("self.calls % 2", "torch.tanh(h)", end=RAISES),
        "checkpoint-mismatch",
        "HERE",
        "1",
    ),
    "an op more in a reentrant recomputation": (
        checkpointed("self.calls % 2 == 0", "h.exp()", reentrant=True),
        "checkpoint-mismatch",
        "HERE",
        "1",
    ),
    "another shape in the recomputation": (
        checkpointed(op="h[: 3 + self.calls]", end=RAISES),
        "checkpoint-mismatch",
        "HERE",
        "1",
    ),
    "another dtype in the recomputation": (
        checkpointed(op="h.to(torch.float64 if self.calls % 2 else torch.float32)", end=RAISES),
        "checkpoint-mismatch",
        "HERE",
        "1",
    ),
    "dropout whose random state is not kept": (
        checkpointed(op="self.drop(h)", more=", preserve_rng_state=False"),
        "checkpoint-mismatch",
        "HERE",
        "1.drop",
    ),
    "a count in the values of a recomputation": (
        checkpointed(op="h * self.calls", reentrant=True),
        "checkpoint-mismatch",
        "HERE",
        "1",
    ),
    "another function at the end of a recomputation": (
        """
        from torch.utils.checkpoint import checkpoint
        net, flag = nn.Linear(4, 4), [True]
        def block(x):
            h = net(x)
            if flag[0]:
                return torch.sigmoid(h)
            return torch.tanh(h)  # HERE
        for _ in range(2):
            loss = checkpoint(block, torch.randn(3, 4), use_reentrant=False).sum()
            flag[0] = not flag[0]
            loss.backward()
            flag[0] = True
        """,
        "checkpoint-mismatch",
        "HERE",
        "",
    ),
    "forgotten over time": (
        """
        cell, out = nn.RNNCell(2, 16), nn.Linear(16, 1)
        nn.init.orthogonal_(cell.weight_hh, gain=0.4)
        for _ in range(2):
            h = torch.zeros(4, 16)
            for x in torch.rand(40, 4, 2):
                h = cell(x, h)  # HERE
            out(h).square().mean().backward()
        """,
        "vanishing-gradient",
        "HERE",
        None,
    ),
    "a head that comes after the optimizer": (
        """
        net = nn.ModuleDict({"a": nn.Linear(3, 2)})
        opt = torch.optim.SGD(net.parameters(), lr=0.1)  # HERE
        net["b"] = nn.Linear(3, 2)
        for _ in range(3):
            x = torch.randn(4, 3)
            opt.zero_grad(); (net["a"](x) + net["b"](x)).square().mean().backward(); opt.step()
        """,
        "parameter-not-in-optimizer",
        "HERE",
        None,
    ),
    "groups by name that miss a layer": (
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.body, self.neck, self.head = nn.Linear(3, 4), nn.Linear(4, 4), nn.Linear(4, 1)
            def forward(self, x):
                return self.head(self.neck(self.body(x)))
        net = Net()
        groups = [{"params": [p for n, p in net.named_parameters() if part in n]} for part in ("body", "head")]
        opt = torch.optim.SGD(groups, lr=0.01)  # HERE
        for _ in range(3):
            opt.zero_grad(); net(torch.randn(4, 3)).square().mean().backward(); opt.step()
        """,
        "parameter-not-in-optimizer",
        "HERE",
        None,
    ),
    "a division outside the graph": (
        """
        class Scale(nn.Module):
            def forward(self, x):
                return (x - x.mean(0)) / x.std(0)  # HERE
        net = nn.Sequential(Scale(), nn.Linear(3, 1))
        x = torch.randn(5, 3)
        x[:, 1] = 2.0
        net(x).square().mean().backward()
        """,
        "nonfinite-forward",
        "HERE",
        "0",
    ),
    "an expert that the data never choose": (
        """
        gate, experts = nn.Linear(3, 4), nn.ModuleList(nn.Linear(3, 2) for _ in range(4))
        class Mix(nn.Module):
            def __init__(self):
                super().__init__()
                self.gate, self.experts = gate, experts  # HERE
            def forward(self, x, k):
                weight = self.gate(x).softmax(-1)
                return sum(weight[:, i : i + 1] * self.experts[i](x) for i in k)
        mix = Mix()
        for k in ([0, 1], [0, 2], [0, 2]):
            mix(torch.randn(5, 3), k).square().mean().backward()
        """,
        "none-grad",
        None,
        "experts.3",
    ),
    "frozen between forward and recomputation": (
        checkpointed(after="model.requires_grad_(False)", end=RAISES + "; model.requires_grad_(True)"),
        "checkpoint-mismatch",
        "h = self.linear(x)",
        "1.linear",
    ),
    "weights stepped between forward and recomputation": (
        checkpointed(after="with torch.no_grad(): block.linear.weight.mul_(2)  # CHANGED"),
        "checkpoint-mismatch",
        "CHANGED",
        "1.linear",
    ),
    "evaluation mode between forward and recomputation": (
        checkpointed(op="self.drop(h)", after="model.eval()", end=RAISES + "; model.train()"),
        "checkpoint-mismatch",
        "HERE",
        "1.drop",
    ),
    "an input of a checkpoint changed in place": (
        checkpointed(after="h += 1  # CHANGED", end=RAISES),
        "inplace",
        "CHANGED",
        None,
    ),
    "a reentrant checkpoint whose input needs no gradient": (
        """
        from torch.utils.checkpoint import checkpoint
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 2)
            def forward(self, x):
                return self.last(checkpoint(self.first, x, use_reentrant=True))  # HERE
        net = Net()
        for _ in range(3):
            net(torch.randn(5, 4)).sum().backward()
        """,
        "none-grad",
        "HERE",
        "",
    ),
    "features from inference mode": (
        """
        body, head = nn.Linear(4, 4), nn.Linear(4, 2)
        with torch.inference_mode():  # HERE
            features = body(torch.randn(5, 4))
        assert raises(lambda: head(features))
        """,
        "grad-mode-disabled",
        "HERE",
        "head",
    ),
    "a picture normalised in place through numpy": (
        """
        def look(t):
            picture = t.detach().numpy()
            picture -= picture.min()  # HERE
            return picture.copy()
        net = nn.Linear(4, 3)
        out = torch.tanh(net(torch.randn(5, 4)))
        look(out)
        out.square().sum().backward()
        """,
        "silent-mutation",
        "HERE",
        "",
    ),
    "a buffer of a loader that is filled again": (
        """
        import numpy as np
        buffer = np.zeros((5, 4), dtype=np.float32)
        def load(k):
            buffer[:] = k + np.arange(20).reshape(5, 4)  # HERE
            return torch.from_numpy(buffer)
        net = nn.Linear(4, 3)
        losses = [net(load(k)).square().mean() for k in range(2)]
        sum(losses).backward()
        """,
        "silent-mutation",
        "HERE",
        "",
    ),
    "an optimizer that steps in hooks on parameters": (
        """
        net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))
        def step(p):
            if p.grad is not None:  # HERE
                p.data.sub_(0.01 * p.grad)
                p.grad = None
        for p in net.parameters():
            p.register_hook(lambda g, p=p: step(p))
        for _ in range(3):
            net(torch.randn(4, 3)).square().mean().backward()
        """,
        "hook-order",
        "HERE",
        None,
    ),
    "a hook on a parameter that reads its gradient": (
        """
        net = nn.Linear(3, 2)
        norms = []
        net.weight.register_hook(lambda g: norms.append(net.weight.grad))  # HERE
        for _ in range(3):
            net(torch.randn(4, 3)).sum().backward()
        """,
        "hook-order",
        "HERE",
        "",
    ),
    "a hook that fails on a gradient that is not there": (
        """
        net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
        def clip(g, p=net[1].bias):
            return g / p.grad.norm()  # HERE
        net[1].bias.register_hook(clip)
        try:
            net(torch.randn(4, 3)).sum().backward()
        except AttributeError:
            pass
        """,
        "hook-order",
        "HERE",
        "1",
    ),
    "a backward pre-hook that reads the gradient of the step before": (
        """
        net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
        seen = []
        def look(module, grad_output):
            seen.append(module.weight.grad)  # HERE
        net[1].register_full_backward_pre_hook(look)
        for _ in range(3):
            net(torch.randn(4, 3)).sum().backward()
        """,
        "hook-order",
        "HERE",
        "1",
    ),
    "log of zero": (
        """
        net = nn.Linear(4, 3)
        p = F.relu(net(torch.randn(5, 4)))
        loss = -(p.log()).mean()  # HERE
        loss.backward()
        """,
        *("nonfinite-forward", "HERE", ""),
    ),
    "sqrt at zero": (
        """
        class Distance(nn.Module):
            def forward(self, a, b):
                return (a - b).square().sum(1).sqrt()  # HERE
        net = nn.Sequential(nn.Linear(4, 3))
        distance = Distance()
        x = torch.randn(5, 4)
        distance(net(x), net(x)).mean().backward()
        """,
        *("nonfinite-backward", "HERE", None),
    ),
    "norm at zero": (
        """
        w = torch.zeros(3, requires_grad=True)
        (w * torch.ones(3)).square().sum().pow(0.5).backward()  # HERE
        """,
        *("nonfinite-backward", "HERE", ""),
    ),
    "overflow in half precision": (
        """
        net = nn.Linear(4, 4).half()
        h = net(torch.full((2, 4), 300.0, dtype=torch.half))
        h = h * 60000 * 60000  # HERE
        h.float().sum().backward()
        """,
        *("nonfinite-forward", "HERE", ""),
    ),
    "division inside a mask": (
        """
        a = torch.ones(4, requires_grad=True)
        b = torch.tensor([1.0, 0.0, 2.0, 0.0])
        q = (a * b) / (b * a)  # HERE
        torch.where(b > 0, q, torch.zeros(4)).sum().backward()
        """,
        *("nonfinite-backward", "HERE", ""),
    ),
    "after many good steps": (
        """
        net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
        opt = torch.optim.SGD(net.parameters(), lr=0.01)
        for step in range(30):
            x = torch.randn(6, 4)
            scale = torch.tensor(0.0 if step == 25 else 1.0)
            out = net(x)
            loss = (out / scale).square().mean()  # HERE
            opt.zero_grad(); loss.backward(); opt.step()
        """,
        *("nonfinite-forward", "HERE", ""),
    ),
    "gradient after many good steps": (
        """
        net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
        opt = torch.optim.SGD(net.parameters(), lr=0.01)
        for step in range(30):
            out = net(torch.randn(6, 4))
            if step == 25:
                out = out * 0
            loss = (out.square().sum() + 0.0).sqrt()  # HERE
            opt.zero_grad(); loss.backward(); opt.step()
        """,
        *("nonfinite-backward", "HERE", ""),
    ),
    "error in a custom function": (
        """
        class Bad(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x.clone()
            @staticmethod
            def backward(ctx, g):
                raise ValueError("not written yet")
        class Layer(nn.Module):
            def forward(self, x):
                return Bad.apply(x)  # HERE
        net = nn.Sequential(nn.Linear(3, 3), Layer(), nn.Linear(3, 1))
        try:
            net(torch.ones(2, 3)).sum().backward()
        except ValueError:
            pass
        """,
        *("backward-error", "HERE", "1"),
    ),
    "added in place after exp": (
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(3, 3)
            def forward(self, x):
                y = self.fc(x).exp()
                y += 1  # HERE
                return y
        raises(lambda: Net()(torch.ones(2, 3)).sum().backward())
        """,
        *("inplace", "HERE", ""),
    ),
    "written through a view": (
        """
        a = torch.randn(4, requires_grad=True)
        h = torch.sigmoid(a)
        part = h[1:3]
        part.mul_(2)  # HERE
        raises(lambda: h.sum().backward())
        """,
        *("inplace", "HERE", ""),
    ),
    "written by an out argument": (
        """
        a = torch.randn(4, requires_grad=True)
        scratch = torch.zeros(4)
        y = a * scratch
        torch.add(torch.ones(4), 1, out=scratch)  # HERE
        raises(lambda: y.sum().backward())
        """,
        *("inplace", "HERE", ""),
    ),
    "optimizer step between forward and backward": (
        """
        net = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1))
        opt = torch.optim.Adam(net.parameters())
        for step in range(6):
            a, b = net(torch.randn(2, 3)).sum(), net(torch.randn(2, 3)).square().sum()
            opt.zero_grad()
            a.backward()
            opt.step()  # HERE
            if raises(b.backward):
                break
        """,
        *("inplace", "HERE", "2"),
    ),
    "in-place module": (
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc, self.act = nn.Linear(3, 3), nn.ReLU(inplace=True)
            def forward(self, x):
                h = torch.tanh(self.fc(x))
                return self.act(h)  # HERE
        raises(lambda: Net()(torch.ones(2, 3)).sum().backward())
        """,
        *("inplace", "HERE", ""),
    ),
    "a buffer changed by a helper": (
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(3, 3)
                self.register_buffer("scale", torch.ones(3))
            def forward(self, x):
                y = self.fc(x) * self.scale
                update(self.scale)
                return y
        def update(t):
            with torch.no_grad():
                t.lerp_(torch.zeros(3), 0.1)  # HERE
        net = Net()
        raises(lambda: net(torch.ones(2, 3)).sum().backward())
        """,
        *("inplace", "HERE", ""),
    ),
    "state of the step before": (
        """
        cell, head = nn.GRUCell(3, 4), nn.Linear(4, 1)
        h = torch.zeros(2, 4)
        for step in range(5):
            h = cell(torch.randn(2, 3), h)  # HERE
            if raises(head(h).sum().backward):
                break
        """,
        *("second-backward", "HERE", "cell"),
    ),
    "features computed once": (
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.body, self.head = nn.Linear(3, 4), nn.Linear(4, 1)
        net = Net()
        features = torch.tanh(net.body(torch.randn(5, 3)))
        for step in range(3):
            loss = net.head(features).sum()  # HERE
            if raises(loss.backward):
                break
        """,
        *("second-backward", "HERE", "head"),
    ),
    "the same loss twice": (
        """
        a = torch.randn(3, requires_grad=True)
        loss = a.exp().sum()
        loss.backward()
        raises(lambda: loss.backward())  # HERE
        """,
        *("second-backward", "HERE", ""),
    ),
    "losses of several steps summed": (
        """
        net = nn.Linear(3, 1)
        total = 0
        for step in range(4):
            loss = net(torch.randn(2, 3)).exp().mean()
            total = total + loss  # HERE
            if raises(total.backward):
                break
        """,
        *("second-backward", "HERE", ""),
    ),
    "modules in a dict": (
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.heads = {"a": nn.Linear(3, 2), "b": nn.Linear(3, 2)}  # HERE
                self.body = nn.Linear(3, 3)
            def forward(self, x):
                h = self.body(x)
                return sum(head(h) for head in self.heads.values())
        net = Net()
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(4):
            opt.zero_grad(); net(torch.randn(2, 3)).sum().backward(); opt.step()
        """,
        *("unregistered-parameter", "HERE", ""),
    ),
    "a tensor that is not a parameter": (
        """
        class Scale(nn.Module):
            def __init__(self):
                super().__init__()
                self.scale = torch.ones(3, requires_grad=True)  # HERE
            def forward(self, x):
                return x * self.scale
        net = nn.Sequential(nn.Linear(3, 3), Scale())
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(4):
            opt.zero_grad(); net(torch.randn(2, 3)).sum().backward(); opt.step()
        """,
        *("unregistered-parameter", "HERE", "1"),
    ),
    "a layer made in the forward": (
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.body = nn.Linear(3, 3)
            def forward(self, x):
                h = self.body(x)
                return nn.Linear(3, 1)(h)  # HERE
        net = Net()
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(4):
            opt.zero_grad(); net(torch.randn(2, 3)).sum().backward(); opt.step()
        """,
        *("unregistered-parameter", "HERE", ""),
    ),
    "head replaced after a few steps": (
        """
        net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
        opt = torch.optim.SGD(net.parameters(), lr=0.1)  # HERE
        for step in range(6):
            if step == 3:
                net[1] = nn.Linear(3, 4)
            opt.zero_grad(); net(torch.randn(2, 3)).sum().backward(); opt.step()
        """,
        *("parameter-not-in-optimizer", "HERE", None),
    ),
    "one generator twice in an optimizer": (
        """
        there, back = nn.Sequential(nn.Linear(3, 3), nn.Tanh()), nn.Sequential(nn.Linear(3, 3), nn.Tanh())
        both = [*there.parameters(), *there.parameters()]
        opt = torch.optim.SGD(both, lr=0.1)  # HERE
        for step in range(6):
            x = torch.randn(4, 3)
            opt.zero_grad(); (back(there(x)) - x).square().mean().backward(); opt.step()
        """,
        *("parameter-not-in-optimizer", "HERE", None),
    ),
    "results of a function that are cached": (
        """
        from functools import lru_cache
        @lru_cache(maxsize=64)  # HERE
        def scaled(h):
            return h / h.detach().norm()
        net = nn.Linear(3, 3)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for step in range(12):
            opt.zero_grad(); scaled(net(torch.randn(4, 3))).square().sum().backward(); opt.step()
        """,
        *("graph-retained", "HERE", ""),
    ),
    "weights that are no parameters any more": (
        """
        from torch.nn.utils import parametrizations, parametrize
        net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
        parametrizations.weight_norm(net[0])
        opt = torch.optim.SGD(net.parameters(), lr=0.1)  # HERE
        for step in range(30):
            if step == 10:
                with torch.no_grad():  # where what is put back is no parameter
                    parametrize.remove_parametrizations(net[0], "weight")
                    net(torch.randn(2, 3))
                    parametrizations.weight_norm(net[0])
            opt.zero_grad(); net(torch.randn(2, 3)).sum().backward(); opt.step()
        """,
        *("parameter-not-in-optimizer", "HERE", None),
    ),
    "gradient mode left off": (
        """
        net = nn.Linear(3, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        def evaluate():
            torch.set_grad_enabled(False)  # HERE
            return net(torch.randn(2, 3)).mean().item()
        for _ in range(3):
            opt.zero_grad()
            if raises(lambda: net(torch.randn(2, 3)).sum().backward()):
                break
            opt.step()
            evaluate()
        torch.set_grad_enabled(True)
        """,
        *("grad-mode-disabled", "HERE", ""),
    ),
    "gradient of a tensor that is no leaf": (
        """
        w = torch.randn(3, requires_grad=True)
        w = w * 2  # HERE
        w.sum().backward()
        print(w.grad)
        """,
        *("nonleaf-grad", "HERE", ""),
    ),
    "module never called": (
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)
                self.extra = nn.Linear(3, 3)  # HERE
            def forward(self, x):
                return self.b(self.a(x))
        net = Net()
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(4):
            opt.zero_grad(); net(torch.randn(2, 3)).sum().backward(); opt.step()
        """,
        *("none-grad", "HERE", "extra"),
    ),
    "output not used": (
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.a = nn.Linear(3, 3)
                self.aux = nn.Linear(3, 2)  # HERE
            def forward(self, x):
                h = self.a(x)
                return h, self.aux(h)
        net = Net()
        out, aux = net(torch.randn(2, 3))
        out.sum().backward()
        """,
        *("none-grad", "HERE", "aux"),
    ),
    "detached on the way": (
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.encoder, self.head = nn.Linear(3, 3), nn.Linear(3, 1)
            def forward(self, x):
                h = self.encoder(x).detach()  # HERE
                return self.head(h)
        net = Net()
        opt = torch.optim.Adam(net.parameters())
        for _ in range(5):
            loss = net(torch.randn(2, 3)).mean()
            opt.zero_grad(); loss.backward(); opt.step()
            print(loss.item())
        """,
        *("none-grad", "HERE", ""),
    ),
    "sampled without a path": (
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.e, self.d = nn.Linear(4, 4), nn.Linear(4, 1)
            def forward(self, x):
                dist = torch.distributions.Normal(self.e(x), 1.0)
                z = dist.sample()  # HERE
                return self.d(z)
        net = Net()
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(4):
            loss = net(torch.randn(2, 4)).square().mean()
            opt.zero_grad(); loss.backward(); opt.step()
        """,
        *("none-grad", "HERE", ""),
    ),
    "an encoder that runs without gradients": (
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.e, self.d = nn.Linear(4, 4), nn.Linear(4, 1)
            @torch.no_grad()  # HERE
            def encode(self, x):
                return torch.tanh(self.e(x))
            def forward(self, x):
                return self.d(self.encode(x))
        net = Net()
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(4):
            loss = net(torch.randn(2, 4)).square().mean()
            opt.zero_grad(); loss.backward(); opt.step()
        """,
        *("none-grad", "HERE", "e"),
    ),
    "made anew from its values": (
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.e, self.d = nn.Linear(4, 4), nn.Linear(4, 1)
            def forward(self, x):
                h = torch.relu(self.e(x))
                self.active = (h > 0).float().mean().item()
                h = torch.tensor(h.tolist())  # HERE
                return self.d(h)
        net = Net()
        for _ in range(4):
            net.zero_grad(); net(torch.randn(2, 4)).square().mean().backward()
        """,
        *("none-grad", "HERE", ""),
    ),
    "monitored, then cut": (
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.e, self.d = nn.Linear(4, 4), nn.Linear(4, 1)
            def forward(self, x):
                h = self.e(x)
                self.active = (h > 0).float().mean()
                h = torch.from_numpy(h.detach().numpy())  # HERE
                return self.d(h)
        net = Net()
        for _ in range(4):
            net.zero_grad(); net(torch.randn(2, 4)).square().mean().backward()
        """,
        *("none-grad", "HERE", ""),
    ),
    "a full hook before an in-place relu": (
        """
        net = nn.Sequential(nn.Linear(3, 3), nn.ReLU(inplace=True), nn.Linear(3, 1))
        net[0].register_full_backward_hook(lambda m, gi, go: None)  # HERE
        raises(lambda: net(torch.randn(2, 3)))
        """,
        *("hook-inplace-conflict", "HERE", "0"),
    ),
    "a hook on a module that returns a dict": (
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(3, 3)
            def forward(self, x):
                return {"y": self.fc(x)}
        def show(m, gi, go):
            print(go)
        net = Net()
        other = nn.Linear(3, 3)
        other.register_full_backward_hook(print)
        net.register_full_backward_hook(show)  # HERE
        net(torch.randn(2, 3, requires_grad=True))["y"].sum().backward()
        """,
        *("hook-never-fires", "HERE", ""),
    ),
    "a hook on a module whose forward is called": (
        """
        net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))
        net[1].register_full_backward_hook(lambda m, gi, go: None)  # HERE
        for _ in range(2):
            net[1].forward(net[0](torch.randn(2, 3))).sum().backward()
        """,
        *("hook-never-fires", "HERE", "1"),
    ),
    "the legacy hook": (
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(3, 3)
            def forward(self, x):
                return torch.tanh(self.fc(x)) * 2
        net = Net()
        net.register_backward_hook(lambda m, gi, go: None)  # HERE
        net(torch.randn(2, 3)).sum().backward()
        """,
        *("legacy-hook-partial", "HERE", ""),
    ),
    "batch norm inside a checkpoint": (
        """
        from torch.utils.checkpoint import checkpoint
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.block, self.fc = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)), nn.Linear(3, 1)
            def forward(self, x):
                return self.fc(checkpoint(self.block, x, use_reentrant=False))  # HERE
        net = Net()
        net(torch.randn(4, 3)).sum().backward()
        """,
        *("checkpoint-side-effect", "HERE", "block.1"),
    ),
    "a gradient of the wrong shape": (
        """
        class Scale(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, w):
                ctx.save_for_backward(x, w)
                return x * w
            @staticmethod
            def backward(ctx, g):
                x, w = ctx.saved_tensors
                return g * w, (g * x).sum(1)
        w = torch.ones(3, requires_grad=True)
        y = Scale.apply(torch.randn(4, 3), w)  # HERE
        raises(lambda: y.sum().backward())
        """,
        *("wrong-backward-shape", "HERE", ""),
    ),
    "a list of losses": (
        """
        net = nn.Linear(3, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        history = []
        for _ in range(8):
            loss = net(torch.randn(2, 3)).square().mean()
            opt.zero_grad(); loss.backward(); opt.step()
            history.append(loss)  # HERE
        """,
        *("graph-retained", "HERE", ""),
    ),
    "a sum of losses on an object": (
        """
        class Trainer:
            def __init__(self):
                self.total = 0.0
                self.net = nn.Linear(3, 1)
                self.opt = torch.optim.SGD(self.net.parameters(), lr=0.1)
            def step(self):
                loss = self.net(torch.randn(2, 3)).square().mean()
                self.opt.zero_grad(); loss.backward(); self.opt.step()
                self.total = self.total + loss  # HERE
        trainer = Trainer()
        for _ in range(8):
            trainer.step()
        """,
        *("graph-retained", "HERE", ""),
    ),
    "outputs kept in dicts": (
        """
        net = nn.Linear(3, 1)
        log = []
        for i in range(6):
            y = net(torch.randn(2, 3))
            log.append({"step": i, "y": y})  # HERE
        """,
        *("graph-retained", "HERE", ""),
    ),
    "a decorated forward": (
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(3, 1)
            @torch.no_grad()  # HERE
            def forward(self, x):
                return self.fc(x)
        net = Net()
        raises(lambda: net(torch.randn(2, 3)).sum().backward())
        """,
        *("grad-mode-disabled", "HERE", ""),
    ),
    "inference mode": (
        """
        net = nn.Linear(3, 1)
        with torch.inference_mode():  # HERE
            loss = net(torch.randn(2, 3)).sum()
        raises(lambda: loss.backward())
        """,
        *("grad-mode-disabled", "HERE", ""),
    ),
    "head replaced by a method": (
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.body, self.head = nn.Linear(3, 3), nn.Linear(3, 2)
            def reset(self, classes):
                self.head = nn.Linear(3, classes)
            def forward(self, x):
                return self.head(self.body(x))
        net = Net()
        opt = torch.optim.SGD(net.parameters(), lr=0.1)  # HERE
        net.reset(4)
        for step in range(4):
            opt.zero_grad(); net(torch.randn(2, 3)).sum().backward(); opt.step()
        """,
        *("parameter-not-in-optimizer", "HERE", None),
    ),
    "the function applied twice": (
        """
        class Scale(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, w):
                ctx.save_for_backward(x, w)
                return x * w
            @staticmethod
            def backward(ctx, g):
                x, w = ctx.saved_tensors
                return g * w, (g * x).sum(1)
        w = torch.ones(3, requires_grad=True)
        v = torch.ones(2, 1, requires_grad=True)
        y = Scale.apply(torch.randn(4, 3), w)  # HERE
        z = Scale.apply(torch.randn(3, 3), torch.ones(3, 3, requires_grad=True)[0])
        raises(lambda: (y.sum() + 0 * z.sum()).backward())
        """,
        *("wrong-backward-shape", None, ""),
    ),
    "written through data": (
        """
        net = nn.Sequential(nn.Linear(3, 3), nn.Sigmoid(), nn.Linear(3, 1))
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for step in range(6):
            h = net[1](net[0](torch.randn(2, 3)))
            loss = net[2](h).sum()
            h.data.clamp_(max=0.5)  # HERE
            opt.zero_grad(); loss.backward(); opt.step()
        """,
        *("silent-mutation", "HERE", None),
    ),
    "gradients with a graph": (
        """
        net = nn.Linear(3, 1)
        for step in range(2):
            loss = net(torch.randn(2, 3)).square().sum()
            loss.backward(create_graph=True)  # HERE
        """,
        *("reference-cycle", "HERE", None),
    ),
    "a loss made of indices": (
        """
        net = nn.Linear(4, 3)
        y = net(torch.randn(5, 4))
        right = (y.argmax(1) == torch.zeros(5)).float()  # HERE
        raises(lambda: (1 - right.mean()).backward())
        """,
        *("none-grad", "HERE", ""),
    ),
    "a row of the state set in place": (
        """
        cell, h, c = nn.LSTMCell(4, 4), torch.zeros(2, 4), torch.zeros(2, 4)
        loss = 0
        for t in range(3):
            h, c = cell(torch.randn(2, 4), (h, c))
            loss = loss + h.square().sum()
            h[0] = 0  # HERE
        raises(lambda: loss.backward())
        """,
        *("inplace", "HERE", ""),
    ),
    "a model that is gone before its backward": (
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.w = nn.Parameter(torch.randn(16, 16))
            def forward(self, h):
                for _ in range(20):
                    h = F.relu(h @ self.w)  # HERE
                return h
        Net()(torch.randn(4, 16)).mean().backward()
        """,
        *("exploding-gradient", "HERE", ""),
    ),
    "rounded": (
        """
        net = nn.Linear(3, 2)
        y = torch.round(net(torch.randn(4, 3)))  # HERE
        (y - 1).square().mean().backward()
        """,
        *("zero-grad", "HERE", ""),
    ),
    "every relu is dead": (
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b = nn.Linear(3, 4), nn.Linear(4, 1)
                nn.init.constant_(self.a.bias, -100.0)
            def forward(self, x):
                return self.b(F.relu(self.a(x)))  # HERE
        net = Net()
        for _ in range(4):
            net.zero_grad(); net(torch.randn(4, 3)).sum().backward()
        """,
        *("zero-grad", "HERE", ""),
    ),
    "deep tanh with small weights": (
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(20))
                for layer in self.layers:
                    nn.init.normal_(layer.weight, std=0.05)
            def forward(self, x):
                for layer in self.layers:
                    x = torch.tanh(layer(x))  # HERE
                return x
        net = Net()
        opt = torch.optim.SGD(net.parameters(), lr=0.01)
        for _ in range(4):
            opt.zero_grad(); net(torch.randn(8, 16)).square().mean().backward(); opt.step()
        """,
        *("vanishing-gradient", "HERE", "layers"),
    ),
    "deep linear with large weights": (
        """
        net = nn.Sequential(*(nn.Linear(16, 16) for _ in range(14)))
        for layer in net:
            nn.init.normal_(layer.weight, std=1.0)
        net(torch.randn(8, 16)).mean().backward()  # HERE
        """,
        *("exploding-gradient", "HERE", ""),
    ),
    "recurrent weight too large": (
        """
        w = nn.Linear(8, 8, bias=False)
        nn.init.normal_(w.weight, std=1.0)
        h = torch.randn(2, 8)
        for _ in range(40):
            h = w(h)  # HERE
        h.mean().backward()
        """,
        *("exploding-gradient", "HERE", ""),
    ),
}
