"""The rollout stores log-probabilities with their graph, so in the single PPO pass log-prob minus old log-prob has a
gradient of exactly zero and the policy gets only the entropy bonus.

Report: a ratio of always 1: tensorforce issue #312, nikhilbarhate99/PPO-PyTorch issues #12 and #18 (detaching the
old log-probs)
"""
import torch
from torch import nn
from torch.distributions import Categorical

EXPECT = {
    "kind": "gradient-cancels",
    "line": ("cause", "HERE"),
    "plain": "mean reward stays at -1.23 and entropy at 1.099 (uniform); with detached old log-probs reward -0.20 and entropy 0.15",
    "set": "twentyseventh",
    "written": "2026-11-29",
}


class Greenhouse:
    """Many greenhouses in parallel: keep the air at the crop's target with vent/idle/heat."""

    def __init__(self, n, gen):
        self.n, self.gen = n, gen
        self.reset()

    def reset(self):
        self.temp = torch.rand(self.n, generator=self.gen) * 4 - 2
        self.goal = torch.rand(self.n, generator=self.gen) * 2 - 1
        return self.obs()

    def obs(self):
        return torch.stack([self.temp, self.goal, self.temp - self.goal], dim=1)

    def step(self, action):
        drift = 0.05 * torch.randn(self.n, generator=self.gen)
        self.temp = (self.temp + 0.25 * (action.float() - 1) + drift).clamp(-3, 3)
        reward = -(self.temp - self.goal).abs()
        return self.obs(), reward


def net(n_out):
    return nn.Sequential(nn.Linear(3, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh(), nn.Linear(48, n_out))


class PPO:
    def __init__(self, env, horizon=24, gamma=0.95, lam=0.9, clip=0.2):
        self.env, self.horizon, self.gamma, self.lam, self.clip = env, horizon, gamma, lam, clip
        self.actor, self.critic = net(3), net(1)
        self.opt = torch.optim.Adam(
            list(self.actor.parameters()) + list(self.critic.parameters()), lr=3e-3)

    def rollout(self):
        obs = self.env.reset()
        buf = {"obs": [], "act": [], "logp": [], "rew": []}
        for _ in range(self.horizon):
            dist = Categorical(logits=self.actor(obs))
            act = dist.sample()
            buf["obs"].append(obs)
            buf["act"].append(act)
            buf["logp"].append(dist.log_prob(act))  # HERE
            obs, rew = self.env.step(act)
            buf["rew"].append(rew)
        return {k: torch.stack(v) for k, v in buf.items()}, obs

    def advantages(self, batch, last_obs):
        with torch.no_grad():
            values = self.critic(batch["obs"]).squeeze(-1)
            nxt = self.critic(last_obs).squeeze(-1)
        adv = torch.zeros_like(batch["rew"])
        run = torch.zeros_like(nxt)
        for t in reversed(range(self.horizon)):
            delta = batch["rew"][t] + self.gamma * nxt - values[t]
            run = delta + self.gamma * self.lam * run
            adv[t] = run
            nxt = values[t]
        return adv, adv + values

    def update(self, batch, adv, ret):
        dist = Categorical(logits=self.actor(batch["obs"]))
        ratio = torch.exp(dist.log_prob(batch["act"]) - batch["logp"])
        adv = (adv - adv.mean()) / (adv.std() + 1e-8)
        surr = torch.min(ratio * adv, ratio.clamp(1 - self.clip, 1 + self.clip) * adv)
        v_loss = (self.critic(batch["obs"]).squeeze(-1) - ret).pow(2).mean()
        loss = -surr.mean() + 0.5 * v_loss - 0.005 * dist.entropy().mean()
        self.opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.actor.parameters(), 0.5)
        nn.utils.clip_grad_norm_(self.critic.parameters(), 0.5)
        self.opt.step()
        return v_loss.item(), dist.entropy().mean().item()


def main():
    torch.manual_seed(3)
    agent = PPO(Greenhouse(64, torch.Generator().manual_seed(9)))
    for it in range(250):
        batch, last = agent.rollout()
        adv, ret = agent.advantages(batch, last)
        v_loss, ent = agent.update(batch, adv, ret)
        if it % 50 == 0 or it == 249:
            print(f"iter {it:3d}  reward {batch['rew'].mean().item():.3f}  "
                  f"value loss {v_loss:.3f}  entropy {ent:.3f}")


if __name__ == "__main__":
    main()
