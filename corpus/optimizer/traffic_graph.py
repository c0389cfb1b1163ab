"""A recurrent graph network forecasts node traffic over snapshots; at the first incident the weights are blown away.

Report: https://github.com/VGraphRNN/VGRNN/issues/4 (clip_grad_norm is called after the optimizer's step, so it does
not do anything).
Effect: the first snapshot with an incident (step 90) gives a very large gradient that is applied in full; the loss on quiet
days jumps and does not come back, while with the clipping before the step it stays low.
"""
import torch
import torch.nn as nn

EXPECT = {
    "framework": "plain", "kind": "clipping-without-effect", "line": ("cause", "CAUSE"),
    "what": "clip_grad_norm_ is called after optimizer.step(), so the step uses the unclipped gradient and the clipped one is thrown away; move it between backward() and step()",
    "set": "twentyfirst", "written": "2026-11-27",
}

NODES, FEAT, WINDOW = 16, 3, 6


class GraphGRU(nn.Module):
    def __init__(self, adj, hidden=24):
        super().__init__()
        self.register_buffer("adj", adj)
        self.mix = nn.Linear(FEAT, hidden)
        self.cell = nn.GRUCell(hidden, hidden)
        self.out = nn.Linear(hidden, 1)

    def forward(self, window):
        h = torch.zeros(NODES, self.cell.hidden_size)
        for t in range(window.shape[0]):
            msg = torch.relu(self.mix(self.adj @ window[t]))
            h = self.cell(msg, self.adj @ h)
        return self.out(h).squeeze(-1)


def ring_graph():
    adj = torch.eye(NODES)
    for i in range(NODES):
        for j in (1, 3):
            adj[i, (i + j) % NODES] = adj[(i + j) % NODES, i] = 1.0
    deg = adj.sum(1)
    return adj / (deg[:, None] * deg[None, :]).sqrt()


def snapshot(day, adj, gen):
    base = torch.sin(torch.arange(WINDOW + 1)[:, None] * 0.7 + day * 0.3 + torch.arange(NODES) * 0.4)
    x = torch.stack([base, base.roll(1, 1), 0.1 * torch.randn(WINDOW + 1, NODES, generator=gen)], dim=-1)
    target = adj @ base[-1] + 0.05 * torch.randn(NODES, generator=gen)
    if day >= 90 and day % 30 == 0:
        target = target + 150.0 * (torch.rand(NODES, generator=gen) < 0.5)
    return x[:-1], target


def quiet_error(model, adj):
    gen = torch.Generator().manual_seed(99)
    with torch.no_grad():
        errs = [((model(x) - y) ** 2).mean().item() for x, y in (snapshot(d, adj, gen) for d in range(1, 21))]
    return sum(errs) / len(errs)


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(1)
    adj = ring_graph()
    model = GraphGRU(adj)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.5)
    for day in range(240):
        x, y = snapshot(day, adj, gen)
        loss = ((model(x) - y) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()  # OTHER
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # CAUSE
        if day % 20 == 19:
            print(f"day {day} loss {loss.item():.4f} quiet {quiet_error(model, adj):.4f}")


if __name__ == "__main__":
    main()
