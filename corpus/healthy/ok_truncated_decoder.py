"""Healthy: translation with a decoder that is truncated: the encoder's output is kept for all parts of a sentence, the decoder's state is detached between them, one update for all.

Report it resembles: https://github.com/OpenNMT/OpenNMT-py/issues/1148 (detach behaviour in truncated bptt)
"""
import torch
from torch import nn

EXPECT = {"class": "healthy", "kind": "none", "set": "fourth", "written": "2026-11-22"}


class Translator(nn.Module):
    def __init__(self, words=16, dim=12):
        super().__init__()
        self.source, self.target = nn.Embedding(words, dim), nn.Embedding(words, dim)
        self.encoder, self.decoder, self.out = nn.GRU(dim, dim, batch_first=True), nn.GRU(dim, dim, batch_first=True), nn.Linear(2 * dim, words)
        self.hidden = None

    def encode(self, x):
        memory, self.hidden = self.encoder(self.source(x))
        return memory

    def decode(self, y, memory):
        states, self.hidden = self.decoder(self.target(y), self.hidden)
        weights = (states @ memory.transpose(1, 2)).softmax(-1)
        return self.out(torch.cat([states, weights @ memory], -1))

    def detach_state(self):
        self.hidden.detach_()


torch.manual_seed(0)
model = Translator()
opt = torch.optim.Adam(model.parameters(), 3e-3)
for step in range(60):
    x = torch.randint(1, 16, (6, 9))
    y = torch.cat([torch.zeros(6, 1, dtype=torch.long), x.flip(1)], 1)
    opt.zero_grad()
    memory, total = model.encode(x), 0.0
    for begin in range(0, 9, 3):
        part = y[:, begin : begin + 4]
        logits = model.decode(part[:, :-1], memory)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), part[:, 1:].flatten(), reduction="sum") / 54
        loss.backward(retain_graph=begin < 6)
        model.detach_state()
        total += loss.item()
    nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    opt.step()
print(total)
