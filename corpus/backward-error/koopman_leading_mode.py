"""Linear latent dynamics (Koopman operator) with an alignment term on the leading mode.

Source: https://github.com/GaloisInc/dlkoopman/issues/1
Plain PyTorch 2.13: RuntimeError "linalg_eig_backward: The eigenvectors in the complex case are specified up to
multiplication by e^{i phi}" once the two leading eigenvalues have become a complex pair.
"""
import torch
from torch import nn

EXPECT = {
    "class": "i", "kind": "backward-error", "node": "LinalgEigBackward0", "source_marker": "CULPRIT", "step": 100,
    "plain": {"outcome": "raises", "match": "linalg_eig_backward"},
    "set": "thirteenth", "written": "2026-11-25",
}


class Operator(nn.Module):
    def __init__(self, width):
        super().__init__()
        start = torch.diag(torch.linspace(0.95, 0.2, width))
        mix = torch.randn(width, width) * 0.02
        self.matrix = nn.Parameter(start + mix + mix.t())

    def modes(self):
        values, vectors = torch.linalg.eig(self.matrix)  # CULPRIT
        order = values.abs().argsort(descending=True)
        return values[order], vectors[:, order]

    def forward(self, z):
        return z @ self.matrix.t()


class Koopman(nn.Module):
    def __init__(self, width=6):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, width))
        self.decode = nn.Sequential(nn.Linear(width, 32), nn.Tanh(), nn.Linear(32, 2))
        self.operator = Operator(width)
        self.register_buffer("axis", nn.functional.normalize(torch.ones(width), dim=0))

    def forward(self, x, horizon):
        z, out = self.encode(x), []
        for _ in range(horizon):
            z = self.operator(z)
            out.append(self.decode(z))
        return torch.stack(out, 1)

    def alignment(self):
        _, vectors = self.operator.modes()
        return 1 - (vectors[:, 0].real @ self.axis).square()


def trajectories(count, horizon):
    x = torch.randn(count, 2)
    path = []
    turn = torch.tensor([[0.90, -0.35], [0.35, 0.90]])
    for _ in range(horizon + 1):
        path.append(x)
        x = x @ turn.t()
    return path[0], torch.stack(path[1:], 1)


def main():
    torch.manual_seed(0)
    model = Koopman()
    opt = torch.optim.Adam(model.parameters(), lr=6e-4)
    for step in range(900):
        x, future = trajectories(32, 4)
        loss = nn.functional.mse_loss(model(x, 4), future) + 0.5 * model.alignment()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 50 == 0:
            print(step, f"{loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
