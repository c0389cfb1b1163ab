"""Speech recogniser: one utterance is shorter than its transcript, the CTC loss is infinite.

Report: https://github.com/FangShancheng/ABINet/issues/65 (fixed elsewhere with zero_infinity: wenet-e2e/wenet pull 2299)
"""
import torch
from torch import nn

EXPECT = {
    "class": "edge-of-domain", "kind": "nonfinite-forward-poisons-backward", "source_marker": "CULPRIT",
    "set": "first", "written": "2026-11-22",
}


class Recogniser(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.out = nn.GRU(5, 16, batch_first=True), nn.Linear(16, 6)

    def forward(self, x):
        return self.out(self.rnn(x)[0]).log_softmax(2)


torch.manual_seed(0)
model = Recogniser()
opt = torch.optim.Adam(model.parameters(), 2e-3)
for step in range(40):
    x = torch.randn(4, 12, 5)
    frames = torch.tensor([12, 10, 9, 8])
    labels = torch.randint(1, 6, (4, 5))
    if step == 22:
        frames[3] = 3  # cut off by the segmenter
    logp = model(x).transpose(0, 1)
    loss = nn.functional.ctc_loss(logp, labels, frames, torch.full((4,), 5))  # CULPRIT
    opt.zero_grad()
    loss.backward()
    opt.step()
print("reproduced", model.out.weight.isnan().any().item())
