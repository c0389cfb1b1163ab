"""Tagger with a character model: it is put past registration so that it is not saved with every checkpoint, the optimizer takes what is registered.

Report: https://github.com/pytorch/pytorch/issues/65774 (how stanza keeps large submodules out of its checkpoints)
"""
import torch
from torch import nn

EXPECT = {
    "class": "unregistered", "kind": "unregistered-parameter", "cut_marker": "CUT",
    "set": "third", "written": "2026-11-22",
}


class CharModel(nn.Module):
    def __init__(self, chars, dim):
        super().__init__()
        self.embed, self.rnn = nn.Embedding(chars, dim), nn.GRU(dim, dim, batch_first=True)

    def forward(self, chars):
        return self.rnn(self.embed(chars))[1][0]


class Tagger(nn.Module):
    def __init__(self, words, tags):
        super().__init__()
        self.words = nn.Embedding(words, 12)
        self.add_unsaved_module("charmodel", CharModel(26, 8))
        self.hidden, self.out = nn.Linear(20, 24), nn.Linear(24, tags)

    def add_unsaved_module(self, name, module):
        object.__setattr__(self, name, module)  # CUT

    def forward(self, words, chars):
        b, t, c = chars.shape
        sub = self.charmodel(chars.view(b * t, c)).view(b, t, -1)
        h = self.hidden(torch.cat([self.words(words), sub], -1))
        return self.out(h.relu())


torch.manual_seed(0)
model = Tagger(40, 5)
opt = torch.optim.Adam(model.parameters(), 2e-3)
before = model.charmodel.embed.weight.detach().clone()
for step in range(40):
    words, chars = torch.randint(0, 40, (4, 6)), torch.randint(0, 26, (4, 6, 5))
    loss = nn.functional.cross_entropy(model(words, chars).flatten(0, 1), (words + chars[..., 0]).flatten() % 5)
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    opt.step()
print("reproduced", torch.equal(before, model.charmodel.embed.weight), len(model.state_dict()))
