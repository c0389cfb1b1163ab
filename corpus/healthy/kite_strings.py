"""Healthy: exec, FunctionType and fx rewrite a forward; an averaged target."""
import copy
import types

import torch
import torch.nn.functional as F
from torch import fx, nn

EXPECT = {
    "kind": None,
    "set": "eighteen_classes",
    "written": "2026-11-29",
}


torch.manual_seed(81)
LINE = "    h{o} = h{i} + self.scale[{n}] * torch.{act}(self.lin[{n}](h{i}))"


def generated_forward(acts):
    rows = ["def forward(self, x):", "    h0 = self.inp(x)"]
    for n, act in enumerate(acts):
        rows.append(LINE.format(o=n + 1, i=n, n=n, act=act))
    rows.append(f"    return self.out(h{len(acts)})")
    space = {"torch": torch}
    exec("\n".join(rows), space)
    return space["forward"]


class LineModel(nn.Module):
    def __init__(self, acts, inputs=6, width=32, outputs=8):
        super().__init__()
        self.inp = nn.Linear(inputs, width)
        self.lin = nn.ModuleList(nn.Linear(width, width) for _ in acts)
        self.scale = nn.ParameterList(nn.Parameter(torch.tensor(0.1)) for _ in acts)
        self.out = nn.Linear(width, outputs)


def make(acts):
    made = generated_forward(acts)
    clone = types.FunctionType(made.__code__, made.__globals__, f"forward_{len(acts)}", made.__defaults__)
    cls = type("KiteLine", (LineModel,), {"forward": clone})
    return cls(acts)


def swap_tanh(net):
    for node in net.graph.nodes:
        if node.op == "call_function" and node.target is torch.tanh:
            node.target = F.silu
    for node in list(net.graph.nodes):
        if node.op == "output":
            (result,) = node.args
            with net.graph.inserting_before(node):
                kept = net.graph.call_function(F.normalize, (result,), {"dim": -1})
            node.args = (kept,)
    net.recompile()
    return net


def flights(n, generator):
    state = torch.randn(n, 6, generator=generator)
    wind = torch.randn(n, 1, generator=generator)
    a = state + 0.1 * torch.randn(n, 6, generator=generator)
    b = state + 0.1 * torch.randn(n, 6, generator=generator)
    return a, b, torch.sin(state[:, 0]) * state[:, 1] + 0.02 * wind[:, 0]


def main():
    g = torch.Generator().manual_seed(4)
    online = swap_tanh(fx.symbolic_trace(make(["tanh", "relu", "tanh"])))
    target = copy.deepcopy(online).requires_grad_(False)
    predictor = nn.Linear(8, 8)
    probe = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
    opt = torch.optim.Adam([*online.parameters(), *predictor.parameters(), *probe.parameters()], lr=3e-3)
    for step in range(500):
        a, b, lift = flights(64, g)
        za, zb = online(a), target(b).detach()
        align = 1 - F.cosine_similarity(predictor(za), zb).mean()
        loss = F.mse_loss(probe(za).squeeze(-1), lift) + 0.2 * align
        opt.zero_grad()
        loss.backward()
        opt.step()
        with torch.no_grad():
            for t, p in zip(target.parameters(), online.parameters()):
                t.lerp_(p, 0.02)
        if step % 100 == 0:
            print(f"step {step:3d}  loss {loss.item():.4f}  align {align.item():.3f}")
    a, b, lift = flights(1000, g)
    with torch.no_grad():
        print(f"lift mse {F.mse_loss(probe(online(a)).squeeze(-1), lift):.4f}  variance {lift.var():.4f}")


if __name__ == "__main__":
    main()
