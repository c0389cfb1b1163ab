"""Healthy: truncated backpropagation over 1,500 chunks; the state is detached, reset by torch.where and bounded out of the graph, chunks become longer at step 920."""
import torch
from torch import nn

EXPECT = {"class": "healthy", "kind": "none", "set": "late", "written": "2026-11-22"}


class RNN(nn.Module):
    def __init__(self, hidden=10):
        super().__init__()
        self.inputs, self.recurrent = nn.Linear(2, hidden), nn.Linear(hidden, hidden, bias=False)
        self.out = nn.Linear(hidden, 1)

    def forward(self, chunk, state):
        outputs = []
        for x in chunk:
            state = torch.relu(self.inputs(x) + self.recurrent(state))
            outputs.append(self.out(state)[:, 0])
        return torch.stack(outputs), state


torch.manual_seed(0)
model = RNN()
nn.init.eye_(model.recurrent.weight)
model.recurrent.weight.data.mul_(0.7)
opt = torch.optim.Adam(model.parameters(), 1e-3)
state, memory, average = torch.zeros(8, 10), torch.zeros(8), 0.0
for step in range(1500):
    length = 3 if step < 920 else 5
    chunk, targets = torch.randn(length, 8, 2), []
    for x in chunk:
        memory = 0.6 * memory + x[:, 0]
        targets.append(memory)
    outputs, state = model(chunk, state)
    loss = nn.functional.smooth_l1_loss(outputs, torch.stack(targets))
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    average = 0.98 * average + 0.02 * loss.item()
    state = state.detach()
    if state.abs().max() > 4:
        state.clamp_(max=4)
    if step > 300:  # episodes end now and then
        ended = torch.rand(8) < 0.01
        state = torch.where(ended[:, None], torch.zeros_like(state), state)
        memory = torch.where(ended, torch.zeros_like(memory), memory)
    if step % 100 == 0:
        with torch.no_grad():
            steady, _ = model(torch.ones(20, 1, 2), torch.zeros(1, 10))
        print(step, round(average, 4), round(steady[-1].item(), 3))
