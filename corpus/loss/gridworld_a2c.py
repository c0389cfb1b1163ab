"""Advantage actor-critic on a small grid; the advantage (N, 1) times the log-probability (N,) becomes an (N, N) table, so the policy gradient averages to nothing and the policy stays random.

Report: https://github.com/RITCHIEHuang/DeepRL_Algorithms/issues/13 (advantages have shape (batch, 1), the ratio (batch,), the surrogate is (batch, batch) and learning suffers; `.reshape(-1)` mends it)
"""
import torch
import torch.nn as nn
from torch.distributions import Categorical

EXPECT = {
    "framework": "plain", "kind": "silent-broadcast", "line": ("cause", "CAUSE"),
    "what": "the advantage of shape (N, 1) is multiplied with log-probabilities of shape (N,), which broadcasts to (N, N); flatten the advantage so that each action gets its own advantage",
    "set": "nineteenth", "written": "2026-11-27",
}

SIZE, N_ENVS, HORIZON, GAMMA = 5, 32, 12, 0.95
MOVES = torch.tensor([[0, 1], [0, -1], [1, 0], [-1, 0]])


class GridBatch:
    def __init__(self, n):
        self.n = n
        self.pos = torch.randint(0, SIZE, (n, 2))

    def obs(self):
        return nn.functional.one_hot(self.pos[:, 0] * SIZE + self.pos[:, 1], SIZE * SIZE).float()

    def step(self, actions):
        self.pos = (self.pos + MOVES[actions]).clamp(0, SIZE - 1)
        done = (self.pos == SIZE - 1).all(dim=1)
        reward = torch.where(done, 1.0, -0.02)
        self.pos[done] = torch.randint(0, SIZE - 1, (int(done.sum()), 2))
        return self.obs(), reward, done


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(SIZE * SIZE, 64), nn.Tanh())
        self.actor = nn.Linear(64, 4)
        self.critic = nn.Linear(64, 1)

    def forward(self, x):
        h = self.body(x)
        return self.actor(h), self.critic(h)


def main():
    torch.manual_seed(0)
    env = GridBatch(N_ENVS)
    net = ActorCritic()
    opt = torch.optim.Adam(net.parameters(), lr=5e-3)
    obs = env.obs()
    for update in range(200):
        states, actions, rewards, dones = [], [], [], []
        for _ in range(HORIZON):
            with torch.no_grad():
                a = Categorical(logits=net(obs)[0]).sample()
            states.append(obs)
            actions.append(a)
            obs, r, d = env.step(a)
            rewards.append(r)
            dones.append(d)
        with torch.no_grad():
            running = net(obs)[1].squeeze(-1)
        returns = []
        for r, d in zip(reversed(rewards), reversed(dones)):
            running = r + GAMMA * running * (~d)
            returns.insert(0, running)
        returns = torch.cat(returns).unsqueeze(1)

        logits, values = net(torch.cat(states))
        dist = Categorical(logits=logits)
        logp = dist.log_prob(torch.cat(actions))
        adv = (returns - values).detach()  # OTHER
        adv = (adv - adv.mean()) / (adv.std() + 1e-8)
        policy_loss = -(logp * adv).mean()  # CAUSE
        value_loss = nn.functional.mse_loss(values, returns)
        loss = policy_loss + 0.5 * value_loss - 0.003 * dist.entropy().mean()
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        opt.step()
        if update % 40 == 0 or update == 199:
            goals = torch.stack(dones).float().sum().item() / N_ENVS
            print(f"update {update:3d}  goals per env {goals:.3f}  entropy {dist.entropy().mean():.3f}  value loss {value_loss.item():.4f}")


if __name__ == "__main__":
    main()
