"""A small text encoder is ported, with its trained weights, to a second code base and both are trained on from there with the same batches: the original uses the tanh approximation of GELU, the port the exact one.

Report: https://github.com/NVIDIA-NeMo/Megatron-Bridge/pull/4661 (the bridge set exact GELU for weights trained with the tanh approximation: slightly wrong activations and logits; also https://github.com/kyutai-labs/pocket-tts/pull/278)
"""
import torch
from torch import nn
from torch.nn import functional as F

EXPECT = {
    "class": "differs", "kind": "first-divergence", "module": "blocks.0.act",
    "set": "eleventh", "written": "2026-11-23",
}
VOCAB, LENGTH = 30, 12


class Block(nn.Module):
    def __init__(self, width, act):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.up, self.act, self.down = nn.Linear(width, 4 * width), act, nn.Linear(4 * width, width)

    def forward(self, x):
        h = self.norm1(x)
        x = x + self.attention(h, h, h, need_weights=False)[0]
        return x + self.down(self.act(self.up(self.norm2(x))))


class TextEncoder(nn.Module):
    def __init__(self, make_act, width=32, depth=3, classes=4):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, width)
        self.blocks = nn.ModuleList(Block(width, make_act()) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.classify = nn.Linear(width, classes)

    def forward(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.classify(self.norm(x).mean(1))


def texts(topic, count=32):
    label = torch.randint(0, len(topic), (count,))
    return torch.multinomial(topic[label], LENGTH, replacement=True), label


def one_step(model, optimizer, ids, label):
    loss = F.cross_entropy(model(ids), label)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


torch.manual_seed(0)
topic = torch.rand(4, VOCAB).pow(3)
original = TextEncoder(lambda: nn.GELU(approximate="tanh"))
port = TextEncoder(nn.GELU)
optimizer = torch.optim.SGD(original.parameters(), lr=0.05, momentum=0.9)
for step in range(40):
    loss = one_step(original, optimizer, *texts(topic))
print(f"trained in the original: loss {loss:.4f}")

port.load_state_dict(original.state_dict())
optimizers = [torch.optim.SGD(m.parameters(), lr=0.05, momentum=0.9) for m in (original, port)]
for step in range(20):
    ids, label = texts(topic)
    there, here = one_step(original, optimizers[0], ids, label), one_step(port, optimizers[1], ids, label)
    if step % 5 == 0:
        print(f"step {step} original {there:.6f} port {here:.6f} apart {abs(there - here):.1e}")
