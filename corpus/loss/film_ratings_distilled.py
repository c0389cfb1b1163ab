"""A small rating model is distilled from a larger one: the student should give the same spread over the stars.

Report: https://github.com/microsoft/ProDA/issues/20
"""
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": "logarithm-missing",
    "line": ("cause", "HERE"),
    "plain": "the distillation loss is negative, the student becomes overconfident and its likelihood on held-out ratings is worse than a constant guess",
    "set": "twentysixth",
    "written": "2026-11-29",
}

USERS, FILMS, STARS = 300, 200, 5
BATCH, TEACHER_EPOCHS, STUDENT_EPOCHS = 256, 4, 6


def make_ratings(count, seed):
    taste = torch.Generator().manual_seed(50)
    user_traits, film_traits = torch.randn(USERS, 4, generator=taste), torch.randn(FILMS, 4, generator=taste)
    generator = torch.Generator().manual_seed(seed)
    user = torch.randint(0, USERS, (count,), generator=generator)
    film = torch.randint(0, FILMS, (count,), generator=generator)
    liking = (user_traits[user] * film_traits[film]).sum(1) / 2 + 1.0 * torch.randn(count, generator=generator)
    stars = torch.bucketize(liking, torch.tensor([-1.5, -0.5, 0.5, 1.5]))
    return user, film, stars


class Rater(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.user = nn.Embedding(USERS, width)
        self.film = nn.Embedding(FILMS, width)
        self.head = nn.Sequential(nn.Linear(3 * width, hidden), nn.ReLU(), nn.Linear(hidden, STARS))

    def forward(self, user, film):
        u, f = self.user(user), self.film(film)
        return self.head(torch.cat([u, f, u * f], 1))


def train_teacher(teacher, loader):
    optimizer = torch.optim.AdamW(teacher.parameters(), lr=5e-3, weight_decay=0.02)
    for epoch in range(TEACHER_EPOCHS):
        total = 0.0
        for user, film, stars in loader:
            loss = F.cross_entropy(teacher(user, film), stars)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"teacher epoch {epoch}  loss {total / len(loader):.4f}")


def distill(student, teacher, loader):
    optimizer = torch.optim.Adam(student.parameters(), lr=4e-3)
    for epoch in range(STUDENT_EPOCHS):
        total = 0.0
        for user, film, _ in loader:
            with torch.no_grad():
                wanted = F.softmax(teacher(user, film), dim=1)
            given = F.softmax(student(user, film), dim=1)  # HERE
            loss = F.kl_div(given, wanted, reduction="batchmean")
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"student epoch {epoch}  distillation loss {total / len(loader):.4f}")


@torch.no_grad()
def report(name, model, teacher, data):
    user, film, stars = data
    logits = model(user, film)
    nll = F.cross_entropy(logits, stars).item()
    wanted = F.softmax(teacher(user, film), dim=1)
    gap = (wanted * (wanted.log() - F.log_softmax(logits, dim=1))).sum(1).mean().item()
    print(f"{name}: held-out negative log-likelihood {nll:.4f}  divergence from the teacher {gap:.4f}")


def main():
    torch.manual_seed(4)
    train, check = make_ratings(40000, 1), make_ratings(5000, 2)
    loader = DataLoader(TensorDataset(*train), batch_size=BATCH, shuffle=True)
    teacher, student = Rater(16, 64), Rater(8, 32)
    train_teacher(teacher, loader)
    report("teacher", teacher, teacher, check)
    distill(student, teacher, loader)
    report("student", student, teacher, check)


if __name__ == "__main__":
    main()
