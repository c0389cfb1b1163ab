"""Recurrent speech model whose frames are weighted by their energy: from the recordings of another room on there are batches in which an utterance is silent, and its weights are 0/0."""
import torch
from torch import nn

EXPECT = {
    "class": "late-nonfinite", "kind": "nonfinite-forward-poisons-backward", "source_marker": "CULPRIT", "step": 310,
    "set": "late_again", "written": "2026-11-22",
}


class Recogniser(nn.Module):
    def __init__(self, hidden=20):
        super().__init__()
        self.rnn, self.out = nn.GRU(5, hidden, batch_first=True), nn.Linear(hidden, 4)

    def forward(self, frames):
        energy = self.rnn(frames)[0] * frames.square().sum(-1, keepdim=True)
        weight = frames.square().sum(-1, keepdim=True)
        pooled = energy.sum(1) / weight.sum(1)  # CULPRIT
        return self.out(pooled)


torch.manual_seed(0)
model = Recogniser()
opt = torch.optim.RMSprop(model.parameters(), 1e-3)
for step in range(340):
    y = torch.randint(0, 4, (8,))
    x = torch.randn(8, 12, 5)
    x[torch.arange(8), :, y] += 1
    if step == 310:
        x[3] = 0
    loss = nn.functional.cross_entropy(model(x), y)
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 2.0)
    opt.step()
    if step % 60 == 0:
        print(step, round(loss.item(), 4))
