"""Two processes under accelerate: at the end of each epoch the main process alone gathers its predictions for the accuracy, the other one is already at the next epoch, where the loader agrees on its order.

Report: https://github.com/huggingface/accelerate/issues/2785 (the script hangs in gather_for_metrics, which was called under is_main_process)
"""
import datetime
import os
import socket

import torch
import torch.multiprocessing as mp
from accelerate import Accelerator
from accelerate.utils import InitProcessGroupKwargs
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "class": "ddp", "framework": "accelerate", "kind": "rank-desync", "waiting_marker": "WAITS", "step": 40,
    "set": "ninth", "written": "2026-11-23",
}


def free_port():
    with socket.socket() as s:
        s.bind(("localhost", 0))
        return s.getsockname()[1]


def evaluate(accelerator, model, loader):
    model.eval()
    right, seen = 0, 0
    for images, labels in loader:
        with torch.no_grad():
            predictions = accelerator.unwrap_model(model)(images).argmax(-1)
        if accelerator.is_main_process:
            predictions, labels = accelerator.gather_for_metrics((predictions, labels))  # WAITS
            right += (predictions == labels).sum().item()
            seen += len(labels)
    return right / max(seen, 1)


def work(rank, port):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", LOCAL_WORLD_SIZE="2", MASTER_ADDR="localhost", MASTER_PORT=str(port), ACCELERATE_USE_CPU="true")
    accelerator = Accelerator(cpu=True, kwargs_handlers=[InitProcessGroupKwargs(backend="gloo", timeout=datetime.timedelta(seconds=3))])
    torch.manual_seed(0)
    digits = load_digits()
    images, labels = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
    train = DataLoader(TensorDataset(images[:1280], labels[:1280]), batch_size=16, shuffle=True)
    test = DataLoader(TensorDataset(images[1280:1536], labels[1280:1536]), batch_size=64)
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    model, optimizer, train, test = accelerator.prepare(model, optimizer, train, test)
    for epoch in range(3):
        model.train()
        for x, y in train:  # WAITS
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
        print(f"rank {rank} epoch {epoch} {loss.item():.4f}\n", end="", flush=True)
        accuracy = evaluate(accelerator, model, test)
        if accelerator.is_main_process:
            print(f"accuracy {accuracy:.3f}\n", end="", flush=True)
    accelerator.end_training()


if __name__ == "__main__":
    mp.start_processes(work, args=(free_port(),), nprocs=2, start_method="fork")
