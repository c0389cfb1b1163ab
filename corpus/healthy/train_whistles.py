"""Healthy: lazy layers made before the optimizer, later heads by add_param_group."""
import torch
import torch.nn.functional as F
from torch import nn

EXPECT = {
    "kind": None,
    "set": "eighteen_classes",
    "written": "2026-11-29",
}


torch.manual_seed(51)
TASKS = {"engine": (4, 0), "distance": (1, 120), "weather": (3, 240)}


class WhistleNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.front = nn.Sequential(nn.LazyConv1d(12, 7, stride=2), nn.ReLU(), nn.LazyConv1d(24, 5, stride=2), nn.ReLU())
        self.neck = nn.LazyLinear(32)
        self.heads = nn.ModuleDict()

    def forward(self, x):
        h = self.front(x)
        h = torch.relu(self.neck(h.mean(-1)))
        return {name: head(h) for name, head in self.heads.items()}

    def add_head(self, name, size):
        self.heads[name] = nn.Linear(32, size)
        return self.heads[name]


def whistles(n, generator):
    t = torch.linspace(0, 1, 64)
    engine = torch.randint(0, 4, (n,), generator=generator)
    distance = torch.rand(n, generator=generator)
    weather = torch.randint(0, 3, (n,), generator=generator)
    tone = 5 + 4 * engine.float()
    wave = torch.sin(2 * torch.pi * tone[:, None] * t + 6 * torch.rand(n, 1, generator=generator))
    wave = wave * (1.2 - distance[:, None])
    hiss = torch.randn(n, 64, generator=generator) * (0.05 + 0.25 * weather.float()[:, None])
    x = (wave + hiss).unsqueeze(1)
    return x, {"engine": engine, "distance": distance, "weather": weather}


def task_loss(name, out, target):
    if name == "distance":
        return 4 * F.mse_loss(out.squeeze(-1), target)
    return F.cross_entropy(out, target)


def main():
    g = torch.Generator().manual_seed(6)
    model = WhistleNet()
    model(whistles(2, g)[0])
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(600):
        for name, (size, start) in TASKS.items():
            if step == start:
                head = model.add_head(name, size)
                opt.add_param_group({"params": list(head.parameters()), "lr": 5e-3})
        x, target = whistles(32, g)
        out = model(x)
        loss = sum(task_loss(name, o, target[name]) for name, o in out.items())
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 120 == 119:
            print(f"step {step + 1}  heads {list(out)}  loss {loss.item():.3f}")
    with torch.no_grad():
        x, target = whistles(800, g)
        out = model(x)
        for name in ("engine", "weather"):
            print(name, f"acc {(out[name].argmax(1) == target[name]).float().mean():.3f}")
        print(f"distance mse {F.mse_loss(out['distance'].squeeze(-1), target['distance']):.4f}")


if __name__ == "__main__":
    main()
