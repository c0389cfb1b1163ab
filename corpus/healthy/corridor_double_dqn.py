"""Double DQN in a corridor with a target network that is copied every 25 updates; weights for validation come from an average. Healthy.

Looks odd: the target network never gets gradients and stands still between the copies, the averaged weights are swapped in for
a test and the trained ones are put back after it. All right as it is; the agent finds the goal.
"""
import copy
import random
from collections import deque
import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {"framework": "plain", "kind": None, "set": "twentyfirst", "written": "2026-11-27"}

LENGTH, GAMMA = 8, 0.9


def encode(pos):
    return F.one_hot(torch.as_tensor(pos), LENGTH).float()


def move(pos, action):
    pos = max(0, pos - 1) if action == 0 else pos + 1
    done = pos == LENGTH - 1
    return pos, (1.0 if done else -0.02), done


class Average:
    def __init__(self, net, decay=0.95):
        self.decay = decay
        self.values = [p.detach().clone() for p in net.parameters()]

    @torch.no_grad()
    def update(self, net):
        for v, p in zip(self.values, net.parameters()):
            v.mul_(self.decay).add_(p, alpha=1 - self.decay)

    @torch.no_grad()
    def swap(self, net):
        for v, p in zip(self.values, net.parameters()):
            tmp = p.clone()
            p.copy_(v)
            v.copy_(tmp)


@torch.no_grad()
def walk(net):
    pos, total = 0, 0.0
    for _ in range(20):
        pos, r, done = move(pos, net(encode(pos)).argmax().item())
        total += r
        if done:
            break
    return total


def main():
    torch.manual_seed(0)
    random.seed(0)
    online = nn.Sequential(nn.Linear(LENGTH, 32), nn.ReLU(), nn.Linear(32, 2))
    target = copy.deepcopy(online).requires_grad_(False)
    average = Average(online)
    optimizer = torch.optim.Adam(online.parameters(), lr=5e-3)
    memory, pos, eps = deque(maxlen=2000), 0, 1.0
    for step in range(350):
        for _ in range(6):
            with torch.no_grad():
                greedy = online(encode(pos)).argmax().item()
            action = random.randrange(2) if random.random() < eps else greedy
            nxt, reward, done = move(pos, action)
            memory.append((pos, action, reward, nxt, float(done)))
            pos = 0 if done else nxt
        eps = max(0.1, eps * 0.99)
        s, a, r, s2, d = (torch.tensor(c) for c in zip(*random.sample(memory, min(32, len(memory)))))
        with torch.no_grad():
            best = online(encode(s2)).argmax(1, keepdim=True)
            goal = r + GAMMA * (1 - d) * target(encode(s2)).gather(1, best).squeeze(1)
        q = online(encode(s)).gather(1, a.unsqueeze(1)).squeeze(1)
        loss = F.smooth_l1_loss(q, goal)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        average.update(online)
        if step % 25 == 24:
            target.load_state_dict(online.state_dict())
        if step % 70 == 69:
            average.swap(online)
            score = walk(online)
            average.swap(online)
            print(f"step {step} loss {loss.item():.4f} eps {eps:.2f} return {score:.2f}")


if __name__ == "__main__":
    main()
