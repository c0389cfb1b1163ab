"""Advantage actor-critic in a small corridor world. The value loss sits at the variance of the returns and explained
variance stays at nought: the critic says the same for all states. Its values have shape (B, 1), the returns (B,), and
the hand-written squared error spreads them to a (B, B) table, so each value is drawn to the mean of all returns."""
import torch
import torch.nn as nn
from torch.distributions import Categorical

EXPECT = {
    "class": "silent broadcasting in a loss",
    "kind": "silent-broadcast",
    "line": ["cause", "cause"],
    "what": "returns (B,) minus values (B, 1) broadcasts to (B, B), so the critic is fitted to the batch mean of the returns instead of to each state's own return.",
    "symptom": "no error and no warning; value loss flat, explained variance about 0",
    "set": "sixteenth",
    "written": "2026-11-27",
}

torch.manual_seed(4)
torch.set_num_threads(1)
LENGTH, GAMMA = 12, 0.95


class Corridor:
    """Many walkers at once; +1 at the right end, -0.02 a step, falls off after 25 steps."""

    def __init__(self, n):
        self.n = n
        self.pos = torch.randint(0, LENGTH, (n,))
        self.age = torch.zeros(n, dtype=torch.long)

    def observe(self):
        return nn.functional.one_hot(self.pos, LENGTH).float()

    def step(self, action):
        self.pos = (self.pos + 2 * action - 1).clamp(0, LENGTH - 1)
        self.age += 1
        goal = self.pos == LENGTH - 1
        done = goal | (self.age >= 25)
        reward = goal.float() - 0.02
        self.pos = torch.where(done, torch.randint(0, LENGTH - 1, (self.n,)), self.pos)
        self.age = torch.where(done, torch.zeros_like(self.age), self.age)
        return reward, done.float()


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(LENGTH, 32), nn.Tanh())
        self.actor = nn.Linear(32, 2)
        self.critic = nn.Linear(32, 1)

    def forward(self, obs):
        h = self.body(obs)
        return Categorical(logits=self.actor(h)), self.critic(h)


env = Corridor(16)
net = ActorCritic()
optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)

for update in range(200):
    obs_l, act_l, rew_l, done_l = [], [], [], []
    with torch.no_grad():
        for _ in range(16):
            obs = env.observe()
            dist, _ = net(obs)
            action = dist.sample()
            reward, done = env.step(action)
            obs_l.append(obs), act_l.append(action), rew_l.append(reward), done_l.append(done)
        running = net(env.observe())[1].squeeze(-1)
    returns = []
    for reward, done in zip(reversed(rew_l), reversed(done_l)):
        running = reward + GAMMA * running * (1 - done)
        returns.insert(0, running)
    obs, actions, returns = torch.cat(obs_l), torch.cat(act_l), torch.cat(returns)

    dist, values = net(obs)
    advantage = returns - values.squeeze(-1).detach()
    policy_loss = -(dist.log_prob(actions) * advantage).mean()
    value_loss = 0.5 * (returns - values).pow(2).mean()  # <-- cause
    loss = policy_loss + value_loss - 0.01 * dist.entropy().mean()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 0.5)
    optimizer.step()
    if update % 40 == 39:
        explained = 1 - (returns - values.detach().squeeze(-1)).var() / returns.var()
        print(f"update {update + 1}  value loss {value_loss.item():.4f}  var(returns)/2 {returns.var().item() / 2:.4f}"
              f"  explained variance {explained.item():+.3f}  std of values {values.std().item():.4f}")
