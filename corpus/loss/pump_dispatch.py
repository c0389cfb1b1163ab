"""The log-probabilities stored at sampling keep their graph, so in the ratio exp(new - old) the gradients of both
cancel and the actor gets no gradient but the entropy bonus.

Report: kind of mistake known to the author, no particular link: PPO questions: ratio always one and the policy does
not change, old log-probabilities not detached
"""

import torch
import torch.nn as nn
from torch.distributions import Categorical

EXPECT = {
    "kind": "gradient-cancels",
    "line": ("cause", "HERE"),
    "plain": "reward per step -0.90 after 120 updates, entropy stays at 1.099 (uniform); with the stored log-probabilities detached: reward 0.739, entropy 0.677",
    "set": "twentyninth",
    "written": "2026-11-29",
}


TANKS, HORIZON, GAMMA, LAM = 48, 40, 0.97, 0.95


class WaterTower:
    """Keep many towers near half full; pumping costs more while the tariff is high."""

    def __init__(self, n, gen):
        self.n, self.gen = n, gen
        self.level = torch.rand(n, generator=gen)
        self.clock = torch.randint(0, 24, (n,), generator=gen)

    def observe(self):
        angle = self.clock * (6.2832 / 24)
        return torch.stack([2 * self.level - 1, torch.sin(angle), torch.cos(angle), (self.level - 0.5).abs()], 1)

    def step(self, action):
        demand = 0.05 + 0.03 * torch.sin(self.clock * (6.2832 / 24)) + 0.01 * torch.randn(self.n, generator=self.gen)
        self.level = (self.level + 0.08 * action - demand).clamp(0, 1)
        tariff = torch.where((self.clock > 7) & (self.clock < 20), 0.25, 0.05)
        self.clock = (self.clock + 1) % 24
        return 1 - 4 * (self.level - 0.5).abs() - tariff * action


class Agent(nn.Module):
    def __init__(self, obs=4, acts=3, width=48):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(obs, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, acts))
        self.critic = nn.Sequential(nn.Linear(obs, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1))

    def policy(self, obs):
        return Categorical(logits=self.actor(obs))

    def value(self, obs):
        return self.critic(obs).squeeze(-1)


def collect(env, agent):
    memory = {"obs": [], "act": [], "logp": [], "rew": []}
    for _ in range(HORIZON):
        obs = env.observe()
        pi = agent.policy(obs)
        act = pi.sample()
        memory["obs"].append(obs)
        memory["act"].append(act)
        memory["logp"].append(pi.log_prob(act))  # HERE
        memory["rew"].append(env.step(act))
    batch = {k: torch.stack(v) for k, v in memory.items()}
    batch["last"] = env.observe()
    return batch


@torch.no_grad()
def advantages(agent, batch):
    values = agent.value(batch["obs"])
    following = torch.cat([values[1:], agent.value(batch["last"]).unsqueeze(0)])
    delta = batch["rew"] + GAMMA * following - values
    adv, running = torch.zeros_like(delta), torch.zeros(TANKS)
    for t in reversed(range(HORIZON)):
        running = delta[t] + GAMMA * LAM * running
        adv[t] = running
    returns = adv + values
    return (adv - adv.mean()) / (adv.std() + 1e-8), returns


def update(agent, opt, batch, clip=0.2):
    adv, returns = advantages(agent, batch)
    pi = agent.policy(batch["obs"])
    ratio = torch.exp(pi.log_prob(batch["act"]) - batch["logp"])
    surrogate = torch.min(ratio * adv, ratio.clamp(1 - clip, 1 + clip) * adv).mean()
    value_loss = (agent.value(batch["obs"]) - returns).pow(2).mean()
    loss = -surrogate + 0.5 * value_loss - 0.003 * pi.entropy().mean()
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(agent.parameters(), 2.0)
    opt.step()
    return value_loss.item(), pi.entropy().mean().item()


def main():
    torch.manual_seed(8)
    gen = torch.Generator().manual_seed(8)
    agent = Agent()
    opt = torch.optim.Adam(agent.parameters(), lr=4e-3, eps=1e-5)
    env = WaterTower(TANKS, gen)
    recent = []
    for it in range(120):
        batch = collect(env, agent)
        vloss, ent = update(agent, opt, batch)
        recent.append(batch["rew"].mean().item())
        if (it + 1) % 20 == 0:
            mean = sum(recent[-20:]) / 20
            print(f"update {it + 1} reward per step {mean:.3f} value loss {vloss:.3f} entropy {ent:.3f}")


if __name__ == "__main__":
    main()
