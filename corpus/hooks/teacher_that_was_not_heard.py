"""A small network for ECG beats is to imitate the third stage of a large one, whose features are caught with a forward hook: the teacher runs its stages through `.forward`, no hook is called, and the imitation term stays away unnoticed.

Report: https://github.com/mlfoundations/open_flamingo/issues/91 ("pytorch even says not to call x.forward(...) because then the hooks are ignored"), https://github.com/pytorch/pytorch/issues/117925
"""
import torch
from torch import nn
from torch.nn import functional as F

EXPECT = {
    "class": "silent", "kind": "hook-never-fires", "hook_marker": "HOOK",
    "set": "eleventh", "written": "2026-11-23",
}


def stage(inside, outside):
    return nn.Sequential(nn.Conv1d(inside, outside, 5, stride=2, padding=2), nn.BatchNorm1d(outside), nn.ReLU())


class BeatNet(nn.Module):
    def __init__(self, width, beats=5):
        super().__init__()
        self.stages = nn.ModuleList([stage(1, width), stage(width, width), stage(width, 2 * width)])
        self.classify = nn.Linear(2 * width, beats)

    def features(self, x):
        for part in self.stages:
            x = part.forward(x)
        return x

    def forward(self, x):
        return self.classify(self.features(x).mean(-1))


class Imitation:
    """Keeps what a stage of the teacher put out, and compares."""

    def __init__(self, teacher, number, inside, outside):
        self.caught = {}
        self.adapt = nn.Conv1d(inside, outside, 1)
        teacher.stages[number].register_forward_hook(self.catch)  # HOOK

    def catch(self, module, inputs, output):
        self.caught["teacher"] = output.detach()

    def __call__(self, features):
        if "teacher" not in self.caught:
            return features.new_zeros(())
        return F.mse_loss(self.adapt(features), self.caught.pop("teacher"))


def beats(shapes, count=32):
    kind = torch.randint(0, len(shapes), (count,))
    return shapes[kind][:, None] + 0.4 * torch.randn(count, 1, shapes.shape[1]), kind


torch.manual_seed(0)
shapes = torch.randn(5, 64).cumsum(1) / 4
teacher, student = BeatNet(24), BeatNet(6)
optimizer = torch.optim.Adam(teacher.parameters(), lr=2e-3)
for step in range(40):
    x, kind = beats(shapes)
    loss = F.cross_entropy(teacher(x), kind)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"teacher loss {loss.item():.4f}")

teacher.eval().requires_grad_(False)
imitation = Imitation(teacher, 2, 12, 48)
optimizer = torch.optim.Adam([*student.parameters(), *imitation.adapt.parameters()], lr=2e-3)
for step in range(80):
    x, kind = beats(shapes)
    with torch.no_grad():
        target = teacher(x)
    features = student.features(x)
    logits = student.classify(features.mean(-1))
    soft = F.kl_div(logits.log_softmax(1), target.softmax(1), reduction="batchmean")
    alike = imitation(features)
    loss = F.cross_entropy(logits, kind) + soft + 5.0 * alike
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(f"step {step} loss {loss.item():.4f} imitation {alike.item():.4f}")
