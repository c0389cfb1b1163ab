"""Speech synthesis with attention over characters: batches mix lengths, and the attention that fell on padding is set to zero through .data after the softmax, which keeps its output for backward; the gradient is wrong and nothing complains.

Report: https://github.com/r9y9/tacotron_pytorch/issues/16 (alignment.data.masked_fill_ in the attention wrapper: does the mask get set, and is it fine)
"""
import torch
from torch import nn
from torch.nn import functional as F

EXPECT = {
    "class": "silent-write", "kind": "silent-mutation", "mutating_marker": "MUTATES",
    "set": "ninth", "written": "2026-11-23",
}
CHARACTERS, MELS = 16, 6


class Attention(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.query, self.memory, self.v = nn.Linear(dim, dim, bias=False), nn.Linear(dim, dim, bias=False), nn.Linear(dim, 1, bias=False)

    def forward(self, query, memory, mask):
        energy = self.v(torch.tanh(self.query(query)[:, None] + self.memory(memory))).squeeze(-1)
        alignment = F.softmax(energy, dim=-1)
        alignment.data.masked_fill_(mask, 0.0)  # MUTATES
        return (alignment[:, None] @ memory).squeeze(1), alignment


class Synthesizer(nn.Module):
    def __init__(self, dim=24):
        super().__init__()
        self.embed = nn.Embedding(CHARACTERS, dim)
        self.encoder = nn.GRU(dim, dim // 2, batch_first=True, bidirectional=True)
        self.prenet, self.cell = nn.Linear(MELS, dim), nn.GRUCell(2 * dim, dim)
        self.attention, self.out = Attention(dim), nn.Linear(2 * dim, MELS)

    def forward(self, text, mels, mask):
        memory, _ = self.encoder(self.embed(text))
        n, frames, _ = mels.shape
        state = context = memory.new_zeros(n, memory.shape[2])
        previous, outputs = mels.new_zeros(n, MELS), []
        for t in range(frames):
            state = self.cell(torch.cat([F.relu(self.prenet(previous)), context], 1), state)
            context, _ = self.attention(state, memory, mask)
            outputs.append(self.out(torch.cat([state, context], 1)))
            previous = mels[:, t]
        return torch.stack(outputs, 1)


def utterances(n, table):
    longest = 8
    length = torch.randint(4, longest + 1, (n,))
    mask = torch.arange(longest) >= length[:, None]
    text = torch.randint(1, CHARACTERS, (n, longest)).masked_fill(mask, 0)
    mels = table[text].repeat_interleave(2, 1)
    return text, mels, mask


torch.manual_seed(0)
table = torch.randn(CHARACTERS, MELS)
table[0] = 0
model = Synthesizer()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for step in range(120):
    text, mels, mask = utterances(16, table)
    loss = F.l1_loss(model(text, mels, mask), mels)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if step % 15 == 0:
        print(step, loss.item())

attention = model.attention.double()
query, memory, mask = torch.randn(2, 24).double(), torch.randn(2, 8, 24).double().requires_grad_(True), torch.arange(8) >= torch.tensor([[5], [7]])
print("gradient of the masked attention right:", torch.autograd.gradcheck(lambda m: attention(query, m, mask)[0], (memory,), raise_exception=False))
