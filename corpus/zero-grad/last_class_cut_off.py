"""Six kinds of soil from spectra. The outputs are cut as in a language model, where the last position has no target: the
first axis of the outputs is the batch here, and the second one the kinds. The last kind never reaches the loss."""
import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {
    "class": "part of a parameter never learns",
    "kind": "part-never-learns",
    "line": ["cut", "cause"],
    "what": "[:, :-1] leaves out the last kind; its row of the head gets no gradient.",
    "symptom": "no error; the score of the last kind is arbitrary",
    "set": "ledger",
    "written": "2026-11-28",
}

torch.manual_seed(1)
torch.set_num_threads(1)
KINDS = 6
centres = torch.randn(KINDS, 20)


class Soil(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(20, 48), nn.GELU(), nn.Linear(48, 48), nn.GELU())
        self.head = nn.Linear(48, KINDS)

    def forward(self, spectra):
        return self.head(self.body(spectra))


def loss_of(scores, kind):
    scores = scores[:, :-1]  # <-- cause
    wanted = F.one_hot(kind, KINDS)[:, : scores.shape[1]].float()
    return F.binary_cross_entropy_with_logits(scores, wanted)


model = Soil()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for step in range(240):
    kind = torch.randint(0, KINDS, (64,))
    spectra = centres[kind] + 0.8 * torch.randn(64, 20)
    loss = loss_of(model(spectra), kind)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 60 == 59:
        guess = model(spectra).argmax(1)
        print(f"step {step}  loss {loss.item():.3f}  right {(guess == kind).float().mean().item():.2f}"
              f"  right for the last kind {(guess == kind)[kind == KINDS - 1].float().mean().item():.2f}")
