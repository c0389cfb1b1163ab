"""Temporal graph network: link prediction on a stream of interactions with node memory.

Story: in a first "static" phase the memory is reset before every batch, afterwards the
stream is replayed with the memory kept from batch to batch.  The first batch of the second
phase still works, the next one raises.
Based on public reports on TGN implementations, where the memory has to be detached after each
batch (memgraph/mage#121 has `detach_tensor_grads` with a link to the very question,
bfGraph/STGraph#4 shows the error).
"""
import torch
from torch import nn
import torch.nn.functional as F

EXPECT = {
    "class": "x", "kind": "second-backward", "bridge_marker": "BRIDGE", "plain": {"outcome": "error", "error": "Trying to backward through the graph a second time"},
    "set": "fourteenth", "written": "2026-11-26",
}

NODES, DIM, EVENT_DIM = 60, 24, 8


def interaction_stream(events, seed=2):
    """Nodes belong to four communities; most interactions stay inside one."""
    g = torch.Generator().manual_seed(seed)
    src = torch.randint(NODES, (events,), generator=g)
    inside = torch.rand(events, generator=g) < 0.85
    shift = 4 * torch.randint(1, NODES // 4, (events,), generator=g)
    other = torch.randint(NODES, (events,), generator=g)
    dst = torch.where(inside, (src + shift) % NODES, other)
    features = torch.randn(events, EVENT_DIM, generator=g) + (src % 4).unsqueeze(1)
    return src, dst, features


class NodeMemory(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(DIM + EVENT_DIM, DIM)
        self.start = nn.Embedding(NODES, DIM)
        self.state = None

    def reset(self):
        self.state = self.start.weight.clone()

    def update(self, src, dst, features):
        old_src = self.state.index_select(0, src)  # BRIDGE
        message = torch.cat([self.start(dst), features], dim=1)
        new_src = self.cell(message, old_src)
        self.state = self.state.index_copy(0, src, new_src)
        return new_src


class LinkPredictor(nn.Module):
    def __init__(self):
        super().__init__()
        self.memory = NodeMemory()
        self.score = nn.Sequential(nn.Linear(2 * DIM, DIM), nn.ReLU(), nn.Linear(DIM, 1))

    def forward(self, src, dst, features):
        h = self.memory.update(src, dst, features)
        fake = torch.randint(NODES, dst.shape)
        positive = self.score(torch.cat([h, self.memory.start(dst)], 1)).squeeze(1)
        negative = self.score(torch.cat([h, self.memory.start(fake)], 1)).squeeze(1)
        logits = torch.cat([positive, negative])
        labels = torch.cat([torch.ones_like(positive), torch.zeros_like(negative)])
        return F.binary_cross_entropy_with_logits(logits, labels)


def run_epoch(model, optimizer, stream, batch, keep_memory):
    src, dst, features = stream
    total, count = 0.0, 0
    model.memory.reset()
    for lo in range(0, len(src), batch):
        if not keep_memory:
            model.memory.reset()
        s = slice(lo, lo + batch)
        first = torch.unique(src[s], return_inverse=True)
        keep = torch.zeros(len(first[0]), dtype=torch.long).scatter_(0, first[1], torch.arange(len(first[1])))
        loss = model(src[s][keep], dst[s][keep], features[s][keep])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total, count = total + loss.item(), count + 1
    return total / count


def main():
    torch.manual_seed(0)
    model = LinkPredictor()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    stream = interaction_stream(2400)
    for epoch in range(8):
        temporal = epoch >= 4
        loss = run_epoch(model, optimizer, stream, 50, keep_memory=temporal)
        print(f"epoch {epoch} {'temporal' if temporal else 'static'} loss {loss:.4f}")


if __name__ == "__main__":
    main()
