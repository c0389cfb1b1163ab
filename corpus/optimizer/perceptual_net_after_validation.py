"""Signals are denoised with a loss on the features of a frozen recogniser. The validation of every third epoch puts
everything back into training mode, the recogniser too: its features change with the other signals of the batch."""
import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {
    "class": "a frozen part is put into training mode", "framework": "plain", "kind": "frozen-in-training-mode",
    "line": ("cause", "CAUSE"),
    "what": "system.train() after the validation also switches the frozen recogniser, which was in eval mode.",
    "set": "ledger", "written": "2026-11-27",
}


class Recogniser(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(1, 8, 5, padding=2), nn.BatchNorm1d(8), nn.ReLU(),
            nn.Conv1d(8, 16, 5, stride=2, padding=2), nn.BatchNorm1d(16), nn.ReLU())
        self.top = nn.Linear(16, 3)

    def forward(self, x):
        return self.top(self.body(x).mean(2))


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv1d(1, 12, 7, padding=3), nn.GELU(), nn.Conv1d(12, 1, 7, padding=3))

    def forward(self, x):
        return x + self.layers(x)


class System(nn.Module):
    def __init__(self, recogniser):
        super().__init__()
        self.denoiser, self.judge = Denoiser(), recogniser
        for weight in self.judge.parameters():
            weight.requires_grad = False

    def forward(self, noisy, clean):
        out = self.denoiser(noisy)
        return F.mse_loss(out, clean) + F.mse_loss(self.judge.body(out), self.judge.body(clean))


def signals(count, kinds):
    kind = kinds[torch.randint(0, len(kinds), (count,))]
    time = torch.linspace(0, 6.28, 64)
    waves = torch.stack([torch.sin(3 * time), torch.sign(torch.sin(2 * time)), (time % 1.5) - 0.7])
    return (waves[kind] * (0.5 + torch.rand(count, 1)))[:, None], kind


def pretrained():
    net = Recogniser()
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    for _ in range(60):
        x, kind = signals(32, torch.arange(3))
        loss = F.cross_entropy(net(x), kind)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return net.eval()


def main():
    torch.manual_seed(4)
    system = System(pretrained())
    optimizer = torch.optim.Adam(system.denoiser.parameters(), lr=2e-3)
    for epoch in range(8):
        for _ in range(30):
            clean, _ = signals(16, torch.randint(0, 3, (1,)))  # one kind of signal for each recording
            loss = system(clean + 0.3 * torch.randn_like(clean), clean)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if epoch % 3 == 2:
            system.eval()
            with torch.no_grad():
                clean, _ = signals(64, torch.arange(3))
                print(f"epoch {epoch}: {F.mse_loss(system.denoiser(clean + 0.3 * torch.randn_like(clean)), clean):.4f}")
            system.train()  # CAUSE


if __name__ == "__main__":
    main()
