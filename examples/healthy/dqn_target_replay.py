"""Healthy: DQN with replay buffer (deque of detached tensors), target network, epsilon-greedy argmax."""

import random
from collections import deque

import torch
from torch import nn

EXPECT = {"kind": None}


class Q(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 24), nn.Linear(24, 2)

    def forward(self, s):
        return self.b(torch.relu(self.a(s)))


def act(q, s, eps):
    if random.random() < eps:
        return random.randrange(2)
    return q(s[None]).argmax(1).item()


def main():
    random.seed(0)
    torch.manual_seed(0)
    policy, target = Q(), Q()
    target.load_state_dict(policy.state_dict())
    memory, opt, s = deque(maxlen=200), torch.optim.AdamW(policy.parameters(), lr=1e-3), torch.randn(4)
    for t in range(60):
        a = act(policy, s, 0.2)
        s2, r = torch.randn(4), float(s[a] > 0)
        memory.append((s, a, r, s2))
        s = s2
        if len(memory) >= 16:
            batch = random.sample(memory, 16)
            S, A, R, N = (
                torch.stack([b[0] for b in batch]),
                torch.tensor([b[1] for b in batch]),
                torch.tensor([b[2] for b in batch]),
                torch.stack([b[3] for b in batch]),
            )
            value = policy(S).gather(1, A[:, None]).squeeze(1)
            with torch.no_grad():
                expected = R + 0.9 * target(N).max(1).values
            loss = nn.functional.smooth_l1_loss(value, expected)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_value_(policy.parameters(), 100)
            opt.step()
            for tp, p in zip(target.parameters(), policy.parameters()):
                tp.data.mul_(0.995).add_(p.data, alpha=0.005)
    print(loss.item())


if __name__ == "__main__":
    main()
