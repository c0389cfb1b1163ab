"""Trains a small CTC speech model, long utterances first; late in the epoch the loss turns inf and every weight becomes NaN.
Report: https://github.com/k2-fsa/icefall/issues/135 (very short recordings have fewer frames after subsampling than labels, the CTC loss
is inf) and https://github.com/wenet-e2e/wenet/pull/2299 (zero_infinity=True for exactly that)
Effect: healthy and falling until the first too short recording, then inf and NaN to the end.
"""
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence

EXPECT = {
    "framework": "plain", "kind": "nonfinite-forward", "line": ("cause", "LOSS"),
    "what": "recordings with fewer frames after subsampling than labels give an infinite CTC loss and NaN gradients; use zero_infinity=True or leave such recordings out",
    "set": "twentieth", "written": "2026-11-27",
}

N_MELS, N_PHONES = 20, 12


def make_utterance(prototypes, gen):
    n = int(torch.randint(3, 9, (1,), generator=gen))
    phones = torch.randint(1, N_PHONES + 1, (n,), generator=gen)
    rate = float(torch.empty(1).uniform_(3.4, 11.0, generator=gen))
    durations = (rate * (0.9 + 0.2 * torch.rand(n, generator=gen))).round().long()
    frames = prototypes[phones].repeat_interleave(durations, dim=0)
    return frames + 0.4 * torch.randn(frames.shape, generator=gen), phones


class Corpus:
    def __init__(self, n, gen):
        prototypes = torch.randn(N_PHONES + 1, N_MELS, generator=gen)
        self.items = [make_utterance(prototypes, gen) for _ in range(n)]  # OTHER
        self.items.sort(key=lambda it: -len(it[0]) / len(it[1]))

    def batches(self, size):
        for i in range(0, len(self.items), size):
            chunk = self.items[i:i + size]
            feats = pad_sequence([f for f, _ in chunk], batch_first=True)
            yield feats, torch.tensor([len(f) for f, _ in chunk]), torch.cat([p for _, p in chunk]), torch.tensor([len(p) for _, p in chunk])


class Encoder(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.sub = nn.Sequential(nn.Conv1d(N_MELS, width, 3, stride=2, padding=1), nn.ReLU(),
                                 nn.Conv1d(width, width, 3, stride=2, padding=1), nn.ReLU())
        self.rnn = nn.GRU(width, width, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * width, N_PHONES + 1)

    def forward(self, feats, lengths):
        h, _ = self.rnn(self.sub(feats.transpose(1, 2)).transpose(1, 2))
        lengths = (lengths + 1) // 2
        return self.out(h).log_softmax(-1).transpose(0, 1), (lengths + 1) // 2


def main():
    torch.manual_seed(4)
    corpus = Corpus(960, torch.Generator().manual_seed(8))
    model = Encoder()
    ctc = nn.CTCLoss(blank=0)  # CAUSE
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    for step, (feats, lens, targets, target_lens) in enumerate(corpus.batches(8)):
        log_probs, out_lens = model(feats, lens)
        loss = ctc(log_probs, targets, out_lens, target_lens)  # LOSS
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        if step % 10 == 9:
            print(f"step {step + 1:3d}  frames {feats.shape[1]:3d}  ctc {loss.item():.3f}")


if __name__ == "__main__":
    main()
