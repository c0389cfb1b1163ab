"""Domain-adversarial training: gas classification that should not depend on which sensor board measured.

Report: https://github.com/hash2430/pitchtron/issues/3
"""
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": "backward-never-called",
    "line": ("cause", "HERE"),
    "plain": "the board can be read from the features almost perfectly, and accuracy on the second board does not improve",
    "set": "twentysixth",
    "written": "2026-11-29",
}

GASES, CHANNELS, EPOCHS, BATCH = 4, 12, 17, 128


def measure(count, board, generator):
    gas = torch.randint(0, GASES, (count,), generator=generator)
    pattern = torch.randn(GASES, CHANNELS, generator=torch.Generator().manual_seed(77))
    signal = 1.1 * pattern[gas] + 0.7 * torch.randn(count, CHANNELS, generator=generator)
    if board == 1:
        drift = torch.randn(CHANNELS, generator=torch.Generator().manual_seed(78))
        signal = signal + 1.8 * drift
    return signal, gas


class Reverse(nn.Module):  # HERE
    def __init__(self, strength=1.0):
        super().__init__()
        self.strength = strength

    def forward(self, features):
        return features

    def backward(self, gradient):  # HERE
        return -self.strength * gradient


class GasNet(nn.Module):
    def __init__(self, hidden=48):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(CHANNELS, hidden), nn.ReLU(), nn.Linear(hidden, 16), nn.Tanh())
        self.gas_head = nn.Linear(16, GASES)
        self.reverse = Reverse(0.7)
        self.board_head = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2))

    def forward(self, signal):
        features = self.features(signal)
        return self.gas_head(features), self.board_head(self.reverse(features))


def evaluate(model, first, second):
    with torch.no_grad():
        gas_first, board_first = model(first[0])
        gas_second, board_second = model(second[0])
    board_hits = torch.cat([board_first.argmax(1) == 0, board_second.argmax(1) == 1]).float().mean().item()
    hits = [(gas_first.argmax(1) == first[1]).float().mean().item(), (gas_second.argmax(1) == second[1]).float().mean().item()]
    return hits[0], hits[1], board_hits


def board_probe(model, first, second):
    with torch.no_grad():
        features = torch.cat([model.features(first[0]), model.features(second[0])])
    board = torch.cat([torch.zeros(len(first[0])), torch.ones(len(second[0]))]).long()
    probe = nn.Linear(features.shape[1], 2)
    optimizer = torch.optim.Adam(probe.parameters(), lr=0.02)
    for _ in range(200):
        loss = F.cross_entropy(probe(features), board)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return (probe(features).argmax(1) == board).float().mean().item()


def main():
    torch.manual_seed(2)
    generator = torch.Generator().manual_seed(6)
    source, target = measure(4000, 0, generator), measure(4000, 1, generator)
    check_source, check_target = measure(1500, 0, generator), measure(1500, 1, generator)
    source_loader = DataLoader(TensorDataset(*source), batch_size=BATCH, shuffle=True, drop_last=True)
    target_loader = DataLoader(TensorDataset(target[0]), batch_size=BATCH, shuffle=True, drop_last=True)
    model = GasNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(EPOCHS):
        gas_total, board_total = 0.0, 0.0
        for (signal, gas), (other,) in zip(source_loader, target_loader):
            gas_logits, board_source = model(signal)
            _, board_other = model(other)
            gas_loss = F.cross_entropy(gas_logits, gas)
            board_logits = torch.cat([board_source, board_other])
            board = torch.cat([torch.zeros(len(signal)), torch.ones(len(other))]).long()
            board_loss = F.cross_entropy(board_logits, board)
            optimizer.zero_grad()
            (gas_loss + board_loss).backward()
            optimizer.step()
            gas_total += gas_loss.item()
            board_total += board_loss.item()
        if epoch % 4 == 0 or epoch == EPOCHS - 1:
            first, second, boards = evaluate(model, check_source, check_target)
            print(f"epoch {epoch:2d}  gas loss {gas_total / len(source_loader):.4f}  board loss {board_total / len(source_loader):.4f}  "
                  f"board 0 {first:.3f}  board 1 {second:.3f}  board guessed {boards:.3f}")
    print(f"linear probe for the board on the features {board_probe(model, check_source, check_target):.3f}")


if __name__ == "__main__":
    main()
