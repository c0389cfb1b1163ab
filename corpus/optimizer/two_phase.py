"""Two-phase training: after step 60 the encoder shall stay as it is and only the head goes on learning. The encoder's
outputs drift away nonetheless, as if it were not frozen: its gradients are set to zero by hand instead of being taken
from the optimizer, and AdamW still moves it by its momentum and its weight decay."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

EXPECT = {
    "class": "frozen parameters still move",
    "kind": "frozen-parameter-moves",
    "line": ["zeroed", "cause"],
    "what": "From step 60 on the encoder's gradients are zeroed as a way of freezing, but AdamW still applies momentum and weight decay to parameters with a zero gradient, so the 'frozen' encoder moves at each step.",
    "symptom": "no error; the encoder moves away from its snapshot after the freeze",
    "set": "sixteenth",
    "written": "2026-11-27",
}

torch.manual_seed(6)
torch.set_num_threads(1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU())
        self.head = nn.Linear(32, 10)

    def forward(self, x):
        return self.head(self.encoder(x))


class TwoPhaseTrainer:
    def __init__(self, model, freeze_after):
        self.model = model
        self.freeze_after = freeze_after
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.1)
        self.snapshot = None
        self.step_no = 0

    def freeze_encoder(self):
        for p in self.model.encoder.parameters():
            p.grad.zero_()  # <-- cause

    def step(self, xb, yb):
        loss = F.cross_entropy(self.model(xb), yb)
        self.optimizer.zero_grad()
        loss.backward()
        if self.step_no >= self.freeze_after:
            if self.snapshot is None:
                self.snapshot = [p.detach().clone() for p in self.model.encoder.parameters()]
            self.freeze_encoder()
        self.optimizer.step()
        self.step_no += 1
        return loss.item()

    def drift(self):
        if self.snapshot is None:
            return 0.0
        pairs = zip(self.model.encoder.parameters(), self.snapshot)
        return sum(float((p.detach() - q).norm() ** 2) for p, q in pairs) ** 0.5


digits = load_digits()
x = torch.tensor(digits.data, dtype=torch.float32) / 16
y = torch.tensor(digits.target)

trainer = TwoPhaseTrainer(Net(), freeze_after=60)
losses = []
for epoch in range(7):
    order = torch.randperm(len(x))
    for i in range(0, len(x) - 63, 64):
        idx = order[i:i + 64]
        losses.append(trainer.step(x[idx], y[idx]))
    print(f"epoch {epoch}  step {trainer.step_no:3d}  loss {sum(losses[-28:]) / 28:.4f}"
          f"  drift of the frozen encoder {trainer.drift():.4f}")
