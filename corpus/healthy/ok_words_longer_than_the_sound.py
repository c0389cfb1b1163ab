"""Healthy: speech recognition by CTC where some recordings are too short for their words; such a loss is infinite and is set to zero, together with its gradient, by the option for it.

Report it resembles: https://github.com/wenet-e2e/wenet/pull/2299 (zero_infinity for losses that are infinite, since inputs are too short to be aligned to their targets)
"""
import torch
from torch import nn
from torch.nn import functional as F

EXPECT = {"class": "healthy", "kind": "none", "set": "tenth", "written": "2026-11-23"}
LETTERS, FRAME = 8, 6


class Recogniser(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.front = nn.Conv1d(FRAME, width, 3, padding=1)
        self.rnn = nn.GRU(width, width, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * width, LETTERS + 1)

    def forward(self, sound, lengths):
        h = F.relu(self.front(sound.transpose(1, 2))).transpose(1, 2)
        packed = nn.utils.rnn.pack_padded_sequence(h, lengths, batch_first=True, enforce_sorted=False)
        h, _ = nn.utils.rnn.pad_packed_sequence(self.rnn(packed)[0], batch_first=True)
        return self.out(h).log_softmax(2)


class Speakers:
    def __init__(self):
        self.voice = torch.randn(LETTERS + 1, FRAME)

    def say(self, n, hurried):
        """Letters with the sound of each; somebody in a hurry is cut off."""
        words = [torch.randint(1, LETTERS + 1, (torch.randint(3, 7, ()).item(),)) for _ in range(n)]
        sounds = [self.voice[word.repeat_interleave(3)] for word in words]
        sounds = [s[: len(w) - 1] if hurried and i % 5 == 0 else s for i, (s, w) in enumerate(zip(sounds, words))]
        lengths = torch.tensor([len(s) for s in sounds])
        sound = nn.utils.rnn.pad_sequence([s + 0.3 * torch.randn_like(s) for s in sounds], batch_first=True)
        return sound, lengths, torch.cat(words), torch.tensor([len(w) for w in words])


torch.manual_seed(0)
speakers, model = Speakers(), Recogniser()
criterion = nn.CTCLoss(zero_infinity=True)
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for step in range(80):
    sound, lengths, words, word_lengths = speakers.say(20, hurried=step >= 40)
    log_p = model(sound, lengths).transpose(0, 1)
    loss = criterion(log_p, words, lengths, word_lengths)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    optimizer.step()
    if step % 10 == 0:
        each = F.ctc_loss(log_p.detach(), words, lengths, word_lengths, reduction="none")
        print(step, loss.item(), "do not fit:", each.isinf().sum().item())
