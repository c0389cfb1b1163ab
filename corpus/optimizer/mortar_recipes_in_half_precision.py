"""Mortar recipes, with Accelerate. A helper casts what it is given to the dtype of the settings, also the model: its updates are rounded away."""
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import nn

EXPECT = {
    "class": "weights cast to bfloat16 in a helper", "framework": "accelerate", "kind": "update-rounds-away", "line": ("cause", "HERE"),
    "set": "ledger", "written": "2026-11-29",
}

SETTINGS = {"precision": "bf16", "rate": 2e-4, "steps": 300}
DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}


def prepared(things, precision):
    return [one.to(DTYPES[precision]) for one in things]  # HERE


def main():
    torch.manual_seed(8)
    model = nn.Sequential(nn.Linear(12, 48), nn.LayerNorm(48), nn.GELU(), nn.Linear(48, 1))
    mixes, noise = torch.rand(1200, 12), torch.randn(1200)
    strength = (mixes @ torch.linspace(-1, 2, 12) + 0.05 * noise).unsqueeze(1)
    model, mixes, strength = prepared((model, mixes, strength), SETTINGS["precision"])
    accelerator = Accelerator(cpu=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=SETTINGS["rate"], momentum=0.9)
    model, optimizer = accelerator.prepare(model, optimizer)
    for step in range(SETTINGS["steps"]):
        pick = torch.randint(0, 1200, (64,))
        loss = F.mse_loss(model(mixes[pick]).float(), strength[pick].float())
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
