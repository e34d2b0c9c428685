"""A training step of Opacus, timed on demand for `step_time.py`.

Runs with the interpreter of an environment that has torch and opacus, not
TensorFlow; answers as `tf_privacy_step.py` does.
"""

from __future__ import annotations

import sys

import torch
from opacus import grad_sample, optimizers
from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping
from torch import nn

# A script, not a module: Opacus installs a package `benchmarks` of its own.
from workloads import WORKLOADS, answer_on_demand

CLIP, NOISE = 1.0, 1.1


def _cifar_blocks() -> list[nn.Module]:
    blocks, inputs = [], 3
    for width in (32, 64, 128):
        blocks += [nn.Conv2d(inputs, width, 3, padding=1), nn.ReLU()]
        blocks += [nn.Conv2d(width, width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        inputs = width
    return blocks


class _Block(nn.Module):
    """Two convolutions after normalisation, beside the image or a convolution of it."""

    def __init__(self, inputs: int, width: int, stride: int, first: bool):
        super().__init__()
        self.before = nn.Sequential(nn.GroupNorm(16, inputs), nn.ReLU())
        self.shortcut = (
            nn.Conv2d(inputs, width, 1, stride, bias=False) if first else None
        )
        self.inner = nn.Sequential(
            nn.Conv2d(inputs, width, 3, stride, padding=1, bias=False),
            nn.GroupNorm(16, width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1, bias=False),
        )

    def forward(self, x):
        normalized = self.before(x)
        short = x if self.shortcut is None else self.shortcut(normalized)
        return short + self.inner(normalized)


def _wide_resnet() -> list[nn.Module]:
    """WideResNet-16-4 with group normalisation, as `workloads.py` has it."""
    blocks, inputs = [nn.Conv2d(3, 16, 3, padding=1, bias=False)], 16
    for width, stride in ((64, 1), (128, 2), (256, 2)):
        blocks += [_Block(inputs, width, stride, True), _Block(width, width, 1, False)]
        inputs = width
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 10)]
    return [*blocks, nn.GroupNorm(16, inputs), nn.ReLU(), *head]


MODELS = {
    "W6": _wide_resnet,
    "W1": lambda: [
        nn.Conv2d(1, 16, 8, stride=2, padding=3),
        nn.ReLU(),
        nn.MaxPool2d(2, 1),
        nn.Conv2d(16, 32, 4, stride=2),
        nn.ReLU(),
        nn.MaxPool2d(2, 1),
        nn.Flatten(),
        nn.Linear(512, 32),
        nn.ReLU(),
        nn.Linear(32, 10),
    ],
    "W2": lambda: [nn.Linear(784, 1000), nn.ReLU(), nn.Linear(1000, 10)],
    "W3": lambda: [
        *_cifar_blocks(),
        nn.Flatten(),
        nn.Linear(2048, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    ],
}


def make_step(name: str, workload_name: str):
    workload = WORKLOADS[workload_name]
    x, y = (torch.from_numpy(value) for value in workload.batch())
    if x.ndim == 4:
        x = x.permute(0, 3, 1, 2).contiguous()
    y = y.long()
    model = nn.Sequential(*MODELS[workload_name]())
    loss = nn.CrossEntropyLoss()
    plain = torch.optim.SGD(model.parameters(), lr=0.01)
    arguments = {
        "noise_multiplier": NOISE,
        "max_grad_norm": CLIP,
        "expected_batch_size": workload.batch_size,
    }
    if name == "opacus-ghost":
        model = grad_sample.GradSampleModuleFastGradientClipping(
            model, max_grad_norm=CLIP, use_ghost_clipping=True
        )
        optimizer = optimizers.DPOptimizerFastGradientClipping(plain, **arguments)
        loss = DPLossFastGradientClipping(model, optimizer, loss)
    elif name == "torch-plain":
        optimizer = plain
    else:
        wrap = {
            "opacus-hooks": grad_sample.GradSampleModule,
            "opacus-expanded": grad_sample.GradSampleModuleExpandedWeights,
        }[name]
        model = wrap(model)
        optimizer = optimizers.DPOptimizer(plain, **arguments)

    def step():
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()

    return step


if __name__ == "__main__":
    answer_on_demand(make_step(*sys.argv[1:3]))
