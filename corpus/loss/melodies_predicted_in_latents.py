"""The second half of a melody is predicted from the first one, not as sound but as its embedding (a joint embedding
predictive architecture). The target comes from the same encoder and keeps its graph, so the encoder makes all melodies
the same."""
import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {
    "class": "target of a self-supervised loss is not detached",
    "kind": "embeddings-collapse",
    "line": ["cause", "cause"],
    "what": "The embedding of the second half is a target and is trained, too; the loss is least if all embeddings are equal.",
    "symptom": "no error; the loss falls to nearly zero",
    "set": "ledger",
    "written": "2026-11-27",
}

torch.manual_seed(3)
torch.set_num_threads(1)
TIME = torch.linspace(0, 6.28, 64)


def melodies(n):
    pitch, phase = 1 + 5 * torch.rand(n, 1), 6.28 * torch.rand(n, 1)
    return (torch.sin(pitch * TIME + phase) + 0.3 * torch.sin(2.5 * pitch * TIME))[:, None]


class LatentPredictor(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv1d(1, 8, 5, 2), nn.GELU(), nn.Conv1d(8, 16, 5, 2), nn.GELU(), nn.Flatten(), nn.Linear(80, width))
        self.predictor = nn.Sequential(nn.Linear(width, 48), nn.GELU(), nn.Linear(48, width))

    def forward(self, sound):
        seen, hidden = sound.chunk(2, dim=-1)
        expected = self.predictor(self.encoder(seen))
        found = self.encoder(hidden)
        return F.smooth_l1_loss(expected, found)  # <-- cause


model = LatentPredictor()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(160):
    loss = model(melodies(48))
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    if step % 40 == 39:
        print(f"step {step}  loss {loss.item():.5f}")
