"""Recognise spelled words from synthetic filterbank frames with a small GRU and CTC.

Report: https://github.com/raidastauras/tf2-crnn/issues/1
"""
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

EXPECT = {
    "kind": "blank-in-targets",
    "line": ("cause", "LOSS"),
    "plain": "the loss falls below zero, the character error rate stays high, every 'a' is missing in the output",
    "set": "twentythird",
    "written": "2026-11-28",
}

LETTERS = "abdeiklmnorst"
WORDS = ("banana salad alarm drama dame kabin arena mantra salsa mama atlas radar balkan rabat natal "
         "tiara saddam madras sandal lambada tamil ararat karma samba dakar malta").split()


class Spelling:
    def __init__(self, letters):
        self.blank = 0
        self.index = {c: i for i, c in enumerate(letters)}
        self.letter = {i: c for c, i in self.index.items()}
        self.size = len(letters) + 1

    def encode(self, word):
        return [self.index[c] for c in word]

    def decode(self, path):
        out, previous = [], None
        for i in path:
            if i != previous and i != self.blank and i in self.letter:
                out.append(self.letter[i])
            previous = i
        return "".join(out)


class SpokenWords(Dataset):
    def __init__(self, n, spelling, seed, bands=20):
        rng = np.random.default_rng(seed)
        shapes = np.random.default_rng(5).normal(size=(len(LETTERS), bands))
        pause = np.zeros(bands)
        self.rows = []
        for _ in range(n):
            word = WORDS[rng.integers(len(WORDS))]
            frames = []
            for c in word:
                frames += [shapes[LETTERS.index(c)]] * rng.integers(2, 5) + [pause] * rng.integers(1, 3)
            frames = np.array(frames) + rng.normal(scale=0.5, size=(len(frames), bands))
            self.rows.append((torch.tensor(frames, dtype=torch.float32), torch.tensor(spelling.encode(word)), word))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def collate(rows):
    frames = nn.utils.rnn.pad_sequence([r[0] for r in rows], batch_first=True)
    return (frames, torch.tensor([len(r[0]) for r in rows]), torch.cat([r[1] for r in rows]),
            torch.tensor([len(r[1]) for r in rows]), [r[2] for r in rows])


class Recognizer(nn.Module):
    def __init__(self, bands, n_out, width=64):
        super().__init__()
        self.conv = nn.Conv1d(bands, width, 3, padding=1)
        self.rnn = nn.GRU(width, width, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * width, n_out)

    def forward(self, frames):
        h = F.relu(self.conv(frames.transpose(1, 2))).transpose(1, 2)
        return self.out(self.rnn(h)[0]).log_softmax(-1)


def distance(a, b):
    row = list(range(len(b) + 1))
    for i, ca in enumerate(a, 1):
        previous, row[0] = row[0], i
        for j, cb in enumerate(b, 1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (ca != cb))
    return row[-1]


@torch.no_grad()
def error_rate(model, loader, spelling):
    model.eval()
    errors = total = 0
    sample = ""
    for frames, lengths, _, _, words in loader:
        paths = model(frames).argmax(-1)
        for path, n, word in zip(paths, lengths, words):
            guess = spelling.decode(path[:n].tolist())
            errors += distance(guess, word)
            total += len(word)
            sample = f"{word} -> {guess}"
    model.train()
    return errors / total, sample


def main():
    torch.manual_seed(0)
    spelling = Spelling(LETTERS)
    train = DataLoader(SpokenWords(640, spelling, 1), batch_size=32, shuffle=True, collate_fn=collate)
    test = DataLoader(SpokenWords(150, spelling, 2), batch_size=50, collate_fn=collate)
    model = Recognizer(20, spelling.size)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(12):
        total = 0.0
        for frames, lengths, targets, target_lengths, _ in train:
            log_probs = model(frames).transpose(0, 1)
            loss = F.ctc_loss(log_probs, targets, lengths, target_lengths, blank=spelling.blank)  # LOSS
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            total += loss.item()
        rate, sample = error_rate(model, test, spelling)
        print(f"epoch {epoch:2d}  loss {total / len(train):.4f}  character error rate {rate:.3f}  {sample}")


if __name__ == "__main__":
    main()
