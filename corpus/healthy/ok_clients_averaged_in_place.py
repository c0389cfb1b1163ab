"""Healthy: federated averaging. The server holds one state dict of its model, which is the model's own memory on purpose: averages are written into it in place, and loading it afterwards is a formality."""
import copy

import torch
from sklearn.datasets import load_digits
from torch import nn

EXPECT = {"class": "healthy", "kind": "none", "set": "ledger", "written": "2026-11-27"}

torch.manual_seed(0)
digits = load_digits()
x, y = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
parts = torch.randperm(1200).split(400)
server = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
state = server.state_dict()
refine = torch.optim.SGD(server.parameters(), lr=0.05)
clients = [copy.deepcopy(server) for _ in parts]
optimizers = [torch.optim.SGD(client.parameters(), lr=0.3) for client in clients]

for turn in range(6):
    for client, optimizer, part in zip(clients, optimizers, parts):
        client.load_state_dict(state)
        for pick in part[torch.randperm(400)].split(50):
            loss = nn.functional.cross_entropy(client(x[pick]), y[pick])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    states = [client.state_dict() for client in clients]
    for name, value in state.items():
        value.copy_(torch.stack([one[name] for one in states]).mean(0))
    server.load_state_dict(state)
    for pick in (1200 + torch.randperm(200)).split(50):  # a few steps on the server's own data
        loss = nn.functional.cross_entropy(server(x[pick]), y[pick])
        refine.zero_grad()
        loss.backward()
        refine.step()
    with torch.no_grad():
        right = (server(x[1400:]).argmax(1) == y[1400:]).float().mean().item()
    print(turn, loss.item(), right)
