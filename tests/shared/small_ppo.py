"""Small PPO agents and rollouts for tests."""

import numpy as np
import torch
from gymnasium import spaces

from reverie.agents.ppo import PPO
from reverie.config.schema import Config, EnvsConfig, PPOConfig, RunConfig

CPU = torch.device("cpu")
VECTOR = spaces.Dict({"vector": spaces.Box(-np.inf, np.inf, (4,), np.float32)})
IMAGE = spaces.Dict({"image": spaces.Box(0, 255, (64, 64, 3), np.uint8)})
HYBRID = spaces.Dict(
    {
        "image": spaces.Box(0, 255, (32, 32, 1), np.uint8),
        "vector": spaces.Box(-1, 1, (3,), np.float32),
        "door": spaces.Discrete(3),
        "keys": spaces.MultiDiscrete([2, 4]),
    }
)
SMALL = PPOConfig(rollout=16, epochs=2, minibatch=16, features=32, units=16, lr=1e-2, entropy=0.0)
ACTIONS = [spaces.Discrete(3), spaces.MultiDiscrete([2, 3]), spaces.Box(-1, 1, (2,), np.float32)]


def agent_of(observation=VECTOR, action=ACTIONS[0], config=SMALL, seed=0, device=CPU, fast="auto", kind=PPO):
    torch.manual_seed(seed)
    whole = Config(seed=seed, envs=EnvsConfig(count=4), run=RunConfig(fast=fast), ppo=config)
    return kind(observation, action, whole, device)


def rollout_of(agent, observation=VECTOR, length=16, seed=0):
    """Rows (T + 1, N) of made-up observations that the agent has acted upon, with ends of both kinds inside."""
    rng = np.random.default_rng(seed)
    sampled = {}
    for key, space in observation.items():
        space.seed(seed)
        sampled[key] = np.stack([[space.sample() for _ in range(4)] for _ in range(length + 1)])
    rows = {key: torch.from_numpy(value) for key, value in sampled.items()}
    rows |= {"reward": torch.from_numpy(rng.normal(size=(length + 1, 4)).astype(np.float32))}
    for key in ("is_first", "is_last", "is_terminal"):
        rows[key] = torch.zeros(length + 1, 4, dtype=torch.bool)
    rows["is_last"][5, 1] = rows["is_terminal"][5, 1] = rows["is_first"][6, 1] = True
    rows["is_last"][9, 2] = rows["is_first"][10, 2] = True
    rows = {key: value.to(agent.generator.device) for key, value in rows.items()}
    columns = [agent.act({key: x[t] for key, x in rows.items()}, None, "train")[0] for t in range(length + 1)]
    return rows | {key: torch.stack([column[key] for column in columns]) for key in columns[0]}


def weights(agent):
    return torch.cat([p.detach().flatten() for p in agent.net.parameters()])
