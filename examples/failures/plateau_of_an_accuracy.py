"""ReduceLROnPlateau minimizes what it is given, and it is given the validation accuracy: each gain counts as a bad
epoch, and the rate is cut while the model improves.
"""

import torch
from torch import nn

EXPECT = {"kind": "plateau-wrong-direction", "line": ("cause", "PLATEAU")}

torch.manual_seed(1)
net = nn.Sequential(nn.Linear(10, 40), nn.ReLU(), nn.Linear(40, 5))
sgd = torch.optim.SGD(net.parameters(), lr=0.4)
plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(sgd, factor=0.5, patience=1)  # PLATEAU
validation = torch.randn(300, 10)

for epoch in range(14):
    for batch in range(6):
        points = torch.randn(40, 10)
        loss = nn.functional.cross_entropy(net(points), points[:, :5].argmax(1))
        sgd.zero_grad()
        loss.backward()
        sgd.step()
    with torch.no_grad():
        hits = net(validation).argmax(1) == validation[:, :5].argmax(1)
    val_accuracy = hits.float().mean().item()
    plateau.step(val_accuracy)
