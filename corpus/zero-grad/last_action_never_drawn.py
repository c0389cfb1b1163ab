"""A small DQN for a thermostat, with accelerate. Exploration draws from one action too few, and the greedy choice is
limited to those: the value of the last action is never trained."""
import torch
import torch.nn as nn
from accelerate import Accelerator

EXPECT = {
    "class": "part of a parameter never learns",
    "kind": "part-never-learns",
    "line": ["cut", "cause"],
    "what": "The last action is never in the batch, so that gather never picks its value: its row gets no gradient.",
    "symptom": "no error; the thermostat never cools",
    "framework": "accelerate",
    "set": "ledger",
    "written": "2026-11-28",
}

torch.manual_seed(6)
torch.set_num_threads(1)
ACTIONS = 4
effects = torch.tensor([0.0, 0.3, 0.6, -0.5])

accelerator = Accelerator(cpu=True)
net = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, ACTIONS))
optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
net, optimizer = accelerator.prepare(net, optimizer)
room = torch.randn(64)
for step in range(400):
    outside = torch.randn(64)
    state = torch.stack([room, outside], 1)
    with torch.no_grad():
        greedy = net(state)[:, : ACTIONS - 1].argmax(1)
    action = torch.where(torch.rand(64) < 0.3, torch.randint(0, ACTIONS - 1, (64,)), greedy)
    following = (0.9 * room + 0.1 * outside + effects[action]).clamp(-3, 3)
    reward = -following.square()
    with torch.no_grad():
        best = net(torch.stack([following, outside], 1))[:, : ACTIONS - 1].max(1).values
    value = net(state).gather(1, action[:, None]).squeeze(1)  # <-- cause
    loss = nn.functional.smooth_l1_loss(value, reward + 0.8 * best)
    optimizer.zero_grad()
    accelerator.backward(loss)
    optimizer.step()
    room = torch.where(torch.rand(64) < 0.1, torch.randn(64), following)
    if step % 100 == 99:
        print(f"step {step}  loss {loss.item():.3f}  reward {reward.mean().item():.3f}")
