"""PPO's network: from observations to a policy and a value in one pass."""

from __future__ import annotations

import torch
from gymnasium import spaces
from torch import Tensor, nn

from ..config.schema import PPOConfig
from ..data.rows import Batch
from ..envs.form import is_image
from ..nn.blocks import mlp, orthogonal
from ..nn.conv import Trunk, trunk_for
from ..nn.dists import Dist
from ..nn.heads import PolicyHead
from ..nn.scale import RunningNorm
from ..nn.vectors import VectorForm


class ActorCritic(nn.Module):
    """Policy and value; images share one trunk, vectors alone go through two separate networks."""

    def __init__(self, observation: spaces.Dict, action: spaces.Space, config: PPOConfig, half: bool = False) -> None:
        super().__init__()
        self.vectors = VectorInput(observation, config.normalize_observation)
        images = {key: space.shape or () for key, space in observation.items() if is_image(space)}
        self.trunks = nn.ModuleDict(
            {
                f"image_{key}".replace(".", "_"): Trunk(shape, trunk_for(config.cnn, *shape[:2]), config.features, half)
                for key, shape in images.items()
            }
        )
        self.image_keys = tuple(images)
        hidden = config.units
        layers = config.layers if images or config.policy_layers is None else config.policy_layers
        if self.vectors.size:
            self.actor = mlp(self.vectors.size, config.units, layers, config.activation)
        if images:
            hidden = config.features
            inputs = config.features * len(images) + (config.units if self.vectors.size else 0)
            # linear heads on features side by side could only add them up, never let one decide what another means
            self.joint = nn.Identity() if inputs == hidden else mlp(inputs, hidden, 1, "relu")
        else:
            self.critic = mlp(self.vectors.size, config.units, config.layers, config.activation)
        self.policy = PolicyHead(hidden if layers else self.vectors.size, action, config.log_std)
        self.value = orthogonal(nn.Linear(hidden, 1), 1.0)

    def forward(self, rows: Batch) -> tuple[Dist, Tensor]:
        """The policy and the value (...) at rows (...)."""
        if not self.image_keys:
            x = self.vectors(rows)
            return self.policy(self.actor(x)), self.value(self.critic(x)).squeeze(-1)
        features = [trunk(rows[key]) for key, trunk in zip(self.image_keys, self.trunks.values())]
        if self.vectors.size:
            features.append(self.actor(self.vectors(rows)))
        shared = self.joint(torch.cat(features, -1))
        return self.policy(shared), self.value(shared).squeeze(-1)


class VectorInput(nn.Module):
    """All observations but images as one float vector: numbers as they are or normalised, classes as one-hot."""

    def __init__(self, observation: spaces.Dict, normalize: bool) -> None:
        super().__init__()
        self.form = VectorForm(observation)
        self.size = self.form.size
        width = sum(self.form.numbers.values())
        self.norm = RunningNorm(width) if normalize and width else None

    def forward(self, rows: Batch) -> Tensor:
        """The vector (..., V)."""
        parts = []
        if self.form.numbers:
            numbers = self._numbers(rows)
            parts.append(self.norm(numbers) if self.norm is not None else numbers)
        parts += [self.form.one_hots(rows, key) for key in self.form.classes]
        return torch.cat(parts, -1) if len(parts) > 1 else parts[0]

    def update(self, rows: Batch) -> None:
        """Let rows enter the running statistics."""
        if self.norm is not None:
            self.norm.update(self._numbers(rows))

    def _numbers(self, rows: Batch) -> Tensor:
        parts = [self.form.number(rows, key) for key in self.form.numbers]
        return torch.cat(parts, -1) if len(parts) > 1 else parts[0]
