"""Trains a recurrent classifier of audio-like clips with a plateau scheduler; the learning rate is cut while the accuracy is still rising.

Report: https://github.com/md-mohaiminul/ViS4mer/issues/4 (ReduceLROnPlateau assumes a "min" metric by default, but is given the accuracy)

Effect: the learning rate falls by 10 at step 80 and again every 60 steps while the accuracy improves, and learning stops; with mode="max" the accuracy ends much higher.
"""
import torch
import torch.nn as nn

EXPECT = {
    "framework": "plain", "kind": "plateau-wrong-direction", "line": ("cause", "CAUSE"),
    "what": "ReduceLROnPlateau runs in its default mode 'min' but is fed the accuracy, so every improvement counts as a bad epoch and the learning rate is cut; pass mode='max'.",
    "set": "eighteenth", "written": "2026-11-27",
}


def clips(n, seed):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 4, (n,), generator=g)
    t = torch.arange(20).float()
    freq = 0.3 + 0.25 * y[:, None]
    phase = torch.rand(n, 1, generator=g) * 6.28
    x = torch.sin(freq * t + phase) + 0.5 * torch.randn(n, 20, generator=g)
    return x[..., None], y


class GenreNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(1, 48, batch_first=True)
        self.fc = nn.Linear(48, 4)

    def forward(self, x):
        out, _ = self.gru(x)
        return self.fc(out.mean(1))


class Trainer:
    def __init__(self):
        torch.manual_seed(0)
        self.model = GenreNet()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=2e-3)
        self.scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(self.optimizer, factor=0.1, patience=2)  # CAUSE
        self.criterion = nn.CrossEntropyLoss()
        self.x, self.y = clips(1200, 1)
        self.vx, self.vy = clips(400, 2)

    @torch.no_grad()
    def accuracy(self):
        self.model.eval()
        return (self.model(self.vx).argmax(1) == self.vy).float().mean().item()

    def fit(self, epochs=17):
        for epoch in range(epochs):
            self.model.train()
            for idx in torch.randperm(len(self.x)).split(60):
                loss = self.criterion(self.model(self.x[idx]), self.y[idx])
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
            acc = self.accuracy()
            self.scheduler.step(acc)  # OTHER
            print(f"epoch {epoch} loss {loss.item():.3f} acc {acc:.3f} lr {self.optimizer.param_groups[0]['lr']:.1e}")


Trainer().fit()
