"""Message passing with a hand-written row gather (a kernel that scatters gradients back to the nodes).

Source: https://github.com/pytorch/pytorch/issues/94336 (the gradient takes its shape from the index) and
        https://github.com/pyg-team/pytorch_geometric/issues/814
Plain PyTorch 2.13: RuntimeError "GatherRowsBackward returned an invalid gradient at index 0" after hundreds of good steps.
"""
import torch
from torch import nn
from torch.nn import functional as F

EXPECT = {
    "class": "g", "kind": "wrong-backward-shape", "function": "GatherRows", "node": "GatherRowsBackward", "input_index": 0,
    "apply_marker": "APPLY", "backward_marker": "BACKWARD", "step": 249,
    "plain": {"outcome": "raises", "match": "returned an invalid gradient at index 0"},
    "set": "thirteenth", "written": "2026-11-25",
}

NODES, EDGES = 24, 150


class GatherRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, table, index):
        ctx.save_for_backward(index)
        return table[index]

    @staticmethod
    def backward(ctx, grad):
        (index,) = ctx.saved_tensors
        rows = int(index.max()) + 1
        back = grad.new_zeros(rows, grad.shape[1]).index_add_(0, index, grad)  # BACKWARD
        return back, None


def take(table, index):
    return GatherRows.apply(table, index)  # APPLY


class Conv(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.message, self.update = nn.Linear(2 * width + 1, width), nn.GRUCell(width, width)

    def forward(self, h, edges, length):
        source, target = edges
        m = F.gelu(self.message(torch.cat([take(h, source), take(h, target), length], 1)))
        return self.update(torch.zeros_like(h).index_add(0, target, m) / 6, h)


class GraphNet(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.embed = nn.Linear(4, width)
        self.convs = nn.ModuleList(Conv(width) for _ in range(2))
        self.out = nn.Linear(width, 1)

    def forward(self, x, edges, length):
        h = torch.tanh(self.embed(x))
        for conv in self.convs:
            h = conv(h, edges, length)
        return self.out(h).mean()


def graph(generator):
    x = torch.randn(NODES, 4, generator=generator)
    edges = torch.randint(NODES, (2, EDGES), generator=generator)
    length = (x[edges[0], :2] - x[edges[1], :2]).norm(dim=1, keepdim=True)
    energy = (length[:, 0] - 1).square().mean() + x[:, 2].mean()
    return x, edges, length, energy


def main():
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(SEED)
    net = GraphNet()
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    loss = 0.0
    for step in range(900):
        x, edges, length, energy = graph(generator)
        loss = (net(x, edges, length) - energy).square()
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        if step % 50 == 0:
            print(step, f"{loss.item():.4f}", flush=True)


SEED = 6

if __name__ == "__main__":
    main()
