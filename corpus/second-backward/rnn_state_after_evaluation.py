"""Character model with a state that goes from chunk to chunk: the chunk with an evaluation skips the line that detaches it."""
import torch
from torch import nn

EXPECT = {
    "class": "late-second-backward", "kind": "second-backward", "bridge_marker": "REUSED", "step": 613,
    "set": "late", "written": "2026-11-22",
}


class CharRNN(nn.Module):
    def __init__(self, vocab=12, hidden=24):
        super().__init__()
        self.embed, self.inputs = nn.Embedding(vocab, 8), nn.Linear(8, hidden)
        self.recurrent, self.out = nn.Linear(hidden, hidden, bias=False), nn.Linear(hidden, vocab)

    def forward(self, ids, state):
        outputs = []
        for x in self.embed(ids).unbind(1):
            state = torch.tanh(self.inputs(x) + self.recurrent(state))  # REUSED
            outputs.append(self.out(state))
        return torch.stack(outputs, 1), state


@torch.no_grad()
def evaluate(model, stream):
    logits, _ = model(stream[:, :-1], torch.zeros(len(stream), 24))
    return nn.functional.cross_entropy(logits.flatten(0, 1), stream[:, 1:].flatten()).item()


torch.manual_seed(0)
stream = (torch.randint(0, 3, (8, 5500)).cumsum(1) + torch.arange(8)[:, None]) % 12
held_out = stream[:, -60:]
model = CharRNN()
opt = torch.optim.Adam(model.parameters(), 1e-3)
state, best = torch.zeros(8, 24), float("inf")
for step in range(800):
    chunk = stream[:, 6 * step : 6 * step + 7]
    logits, state = model(chunk[:, :-1], state)
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), chunk[:, 1:].flatten())
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    if step % 613 == 612:
        score = evaluate(model, held_out)
        print(f"step {step} loss {loss.item():.4f} held out {score:.4f}")
        if score < best:
            best = score
            continue
    state = state.detach()
