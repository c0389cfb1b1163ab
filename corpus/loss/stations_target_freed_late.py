"""Readings of weather stations on two days are embedded alike. In a first phase the target is detached; a second phase is meant
to refine both sides, and drops the detach together with the noise: within some hundred steps all stations are one point."""
import torch
import torch.nn as nn

EXPECT = {
    "class": "target of a self-supervised loss is not detached",
    "kind": "embeddings-collapse",
    "line": ["cause", "cause"],
    "what": "From step 150 on both embeddings are trained towards each other, and nothing keeps stations apart.",
    "symptom": "no error; the loss falls faster than before",
    "set": "ledger",
    "written": "2026-11-27",
}

torch.manual_seed(8)
torch.set_num_threads(1)


class Stations(nn.Module):
    def __init__(self, n=200, sensors=12):
        super().__init__()
        self.register_buffer("climate", torch.randn(n, 4))
        self.register_buffer("response", torch.randn(4, sensors))

    def day(self, which):
        values = self.climate[which] @ self.response
        return values + 0.4 * torch.randn_like(values)


def encoder():
    return nn.Sequential(nn.Linear(12, 48), nn.SiLU(), nn.Linear(48, 20))


world, embed, predict = Stations(), encoder(), nn.Sequential(nn.Linear(20, 20), nn.SiLU(), nn.Linear(20, 20))
optimizer = torch.optim.Adam([*embed.parameters(), *predict.parameters()], lr=3e-3)
for step in range(1100):
    which = torch.randint(0, 200, (64,))
    today, tomorrow = embed(world.day(which)), embed(world.day(which))
    if step < 150:
        tomorrow = tomorrow.detach()
        loss = (predict(today) - tomorrow).square().mean()
    else:
        loss = (predict(today) - tomorrow).square().mean()  # <-- cause
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 200 == 199:
        print(f"step {step}  loss {loss.item():.5f}")
