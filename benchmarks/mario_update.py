"""One PPO update of the Mario guide, 4,096 transitions in 64 gradient steps: its own formulation beside ours.

    python benchmarks/mario_update.py [repeats]

The guide keeps float32 images, runs the network twice per minibatch (once for the policy, once for the value) and
builds torch distributions. Both sides take the same rollout; they alternate, and the ratio is of medians.
"""

from __future__ import annotations

import statistics
import sys
import time

import numpy as np
import torch
from gymnasium import spaces
from torch import nn
from torch.distributions import Categorical

from reverie.agents.ppo import PPO
from reverie.config.presets import stacked

ENVS, STEPS, ACTIONS = 32, 128, 7


class GuideNetwork(nn.Module):
    """Shared CNN, 512 features, two heads, as the guide lays it out."""

    def __init__(self) -> None:
        super().__init__()
        self.cnn = nn.Sequential(
            nn.Conv2d(3, 32, 8, 4, 2), nn.ReLU(), nn.Conv2d(32, 64, 4, 2, 1), nn.ReLU(),
            nn.Conv2d(64, 64, 3, 1, 1), nn.ReLU(), nn.Flatten(), nn.Linear(4096, 512), nn.ReLU(),
        )  # fmt: skip
        self.policy, self.value = nn.Linear(512, ACTIONS), nn.Linear(512, 1)

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        return self.policy(self.cnn(x))

    def values(self, x: torch.Tensor) -> torch.Tensor:
        return self.value(self.cnn(x)).squeeze(-1)


def guide_update(net: GuideNetwork, adam: torch.optim.Optimizer, batch: dict[str, torch.Tensor]) -> None:
    count = len(batch["action"])
    for _ in range(4):
        for index in torch.randperm(count).split(256):
            dist = Categorical(logits=net.logits(batch["image"][index]))
            logp, entropy = dist.log_prob(batch["action"][index]), dist.entropy().mean()
            value = net.values(batch["image"][index])
            ratio = (logp - batch["logp"][index]).exp()
            advantage = batch["advantage"][index]
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
            policy_loss = -torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
            loss = policy_loss + 0.5 * nn.functional.mse_loss(value, batch["target"][index]) - 0.03 * entropy
            adam.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            adam.step()


def rollout() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shape = (STEPS + 1, ENVS)
    rows = {
        "image": torch.randint(0, 256, (*shape, 64, 64, 3), dtype=torch.uint8, generator=generator),
        "action": torch.randint(0, ACTIONS, shape, generator=generator),
        "logp": torch.full(shape, -float(np.log(ACTIONS))),
        "value": torch.randn(shape, generator=generator),
        "reward": torch.randn(shape, generator=generator),
    }
    return rows | {key: torch.zeros(shape, dtype=torch.bool) for key in ("is_first", "is_last", "is_terminal")}


def main() -> None:
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    space = spaces.Dict({"image": spaces.Box(0, 255, (64, 64, 3), np.uint8)})
    ours = PPO(space, spaces.Discrete(ACTIONS), stacked(["mario_ppo"]), torch.device("cpu"))
    rows = rollout()
    net = GuideNetwork()
    adam = torch.optim.Adam(net.parameters(), lr=2.5e-4, eps=1e-5)
    flat = {key: value[:-1].flatten(0, 1) for key, value in rows.items()}
    theirs = {
        "image": flat["image"].permute(0, 3, 1, 2).float().div(255).contiguous(),
        **{k: flat[k] for k in ("action", "logp")},
    }
    theirs |= {"advantage": flat["reward"], "target": flat["value"]}
    seconds: dict[str, list[float]] = {"guide": [], "reverie": []}
    for _ in range(repeats + 1):
        for name, update in (
            ("guide", lambda: guide_update(net, adam, theirs)),
            ("reverie", lambda: ours.learn_rollout(rows)),
        ):
            start = time.perf_counter()
            update()
            seconds[name].append(time.perf_counter() - start)
    medians = {name: statistics.median(values[1:]) for name, values in seconds.items()}
    rows_bytes = sum(value.numel() * value.element_size() for value in rows.values())
    print(f"threads {torch.get_num_threads()}, bfloat16 {ours.net.trunks['image_image'].in_half}")
    for name, value in medians.items():
        print(f"{name:8} {value:.2f} s per update")
    print(f"rollout in memory: ours {rows_bytes / 2**20:.0f} MiB, guide {theirs['image'].numel() * 4 / 2**20:.0f} MiB")
    print(f"ratio (guide / ours): {medians['guide'] / medians['reverie']:.2f}")


if __name__ == "__main__":
    main()
