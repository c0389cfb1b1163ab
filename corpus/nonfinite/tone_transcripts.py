"""Reading key tones out of audio frames with CTC: eight keys, variable speed; the fast speakers join after some epochs.

After https://github.com/FangShancheng/ABINet/issues/65 (CTC loss gets inf after some normal steps, then everything is nan).
"""
import numpy as np
import torch
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset

EXPECT = {
    "kind": "nonfinite-forward",
    "line": ("cause", "SOURCE"),
    "plain": "after the fast speakers join, the loss gets inf and then nan for ever",
    "late": True,
    "set": "twentythird",
    "written": "2026-11-28",
}

KEYS = 8
BINS = 20


class Clips(Dataset):
    """Sequences of key presses as spectral frames; 'pace' is the range of frames that a key lasts."""

    def __init__(self, n, pace, seed):
        rng = np.random.default_rng(seed)
        tones = np.random.default_rng(1).normal(size=(KEYS, BINS)).astype(np.float32)
        self.items = []
        for _ in range(n):
            count = int(rng.integers(4, 11))
            keys = rng.integers(0, KEYS, size=count)
            low = int(rng.integers(pace[0], pace[1] + 1))
            frames = []
            for k in keys:
                length = low + int(rng.integers(0, 2))
                frames.append(np.repeat(tones[k][None], length, axis=0))
                frames.append(np.zeros((2 if low > 5 else 1, BINS), dtype=np.float32))
            sound = np.concatenate(frames)
            sound = sound + 0.4 * rng.normal(size=sound.shape).astype(np.float32)
            self.items.append((torch.tensor(sound, dtype=torch.float32), torch.tensor(keys + 1)))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def collate(batch):
    sounds, keys = zip(*batch)
    frames = torch.tensor([len(s) for s in sounds])
    padded = nn.utils.rnn.pad_sequence(sounds, batch_first=True)
    return padded, frames, torch.cat(keys), torch.tensor([len(k) for k in keys])


class Listener(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.front = nn.Sequential(nn.Conv1d(BINS, width, 5, stride=2, padding=2), nn.ReLU(),
                                   nn.Conv1d(width, width, 5, stride=2, padding=2), nn.ReLU())
        self.rnn = nn.GRU(width, width, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * width, KEYS + 1)

    def forward(self, x, frames):
        h = self.front(x.transpose(1, 2)).transpose(1, 2)
        h, _ = self.rnn(h)
        return self.out(h).log_softmax(-1), (frames + 3) // 4


@torch.no_grad()
def exact_rate(model, loader):
    model.eval()
    right, total = 0, 0
    for x, frames, keys, lengths in loader:
        logp, steps = model(x, frames)
        best = logp.argmax(-1)
        for row, n, truth in zip(best, steps, keys.split(lengths.tolist())):
            path = torch.unique_consecutive(row[:n])
            right += path[path > 0].tolist() == truth.tolist()
            total += 1
    model.train()
    return right / total


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    slow = Clips(600, pace=(8, 12), seed=2)
    fast = Clips(200, pace=(3, 6), seed=3)
    held = DataLoader(Clips(150, pace=(8, 12), seed=4), batch_size=50, collate_fn=collate)
    model = Listener()
    criterion = nn.CTCLoss(blank=0)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    step = 0
    for epoch in range(10):
        data = slow if epoch < 6 else ConcatDataset([slow, fast])
        loader = DataLoader(data, batch_size=20, shuffle=True, collate_fn=collate)
        for x, frames, keys, lengths in loader:
            logp, steps = model(x, frames)
            loss = criterion(logp.transpose(0, 1), keys, steps, lengths)  # SOURCE
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            step += 1
            if step % 15 == 0:
                print(f"step {step:3d}  loss {loss.item():.4f}")
        print(f"epoch {epoch + 1}: whole clips right {exact_rate(model, held):.3f}")


if __name__ == "__main__":
    main()
