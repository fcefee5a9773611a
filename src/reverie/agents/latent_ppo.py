"""PPO on a world model: actor and critic see its features and learn by clipped updates.

`LatentPPO` learns from the features of real trajectories, with the log-probabilities stored when acting. `DreamPPO`
learns from dreamt ones. The world model learns from replayed rows in both, and from nothing else.
"""

from __future__ import annotations

from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor

from ..config.dreamer import OptimConfig
from ..config.schema import Config
from ..data.rows import Batch
from ..losses.actor import survival
from ..losses.returns import lambda_return
from ..nn.actions import ActionDist
from ..nn.optim import Stepper
from ..world.model import Window
from ..world.rssm import State
from .base import Learned, Mode
from .clipped import OUTPUT_LIMIT, ClippedUpdates
from .dreamer import Dreamer
from .filterer import Memory
from .lesson import Later, Told

DREAMS, FORESIGHT = 16, 5
"""Dreams that are looked at after a rollout, and their steps: few beside the rollout's own."""


class WorldLearner(Dreamer):
    """A Dreamer whose replayed updates teach the world model alone; its actor and critic learn by clipped updates."""

    limit = OUTPUT_LIMIT

    def __init__(self, observation: spaces.Dict, action: spaces.Space, config: Config, device: torch.device) -> None:
        super().__init__(observation, action, config, device)
        self.ppo = config.ppo
        self.clipped = ClippedUpdates(self.behavior, config.ppo, self.generator)

    def _steppers(self, optim: OptimConfig) -> dict[str, Stepper]:
        return {"model": Stepper(self.world.parameters(), optim.model)}

    def _behave(self, state: State, window: Window) -> tuple[Told, Later]:
        return ({}, {}), lambda: ({}, {})

    def schedule(self, progress: float) -> None:
        """Set what changes over a run."""
        super().schedule(progress)
        self.clipped.schedule(progress)

    def save(self) -> dict[str, Any]:
        """All that Dreamer saves, and the optimisers of actor and critic."""
        return super().save() | {"clipped": self.clipped.state_dict()}

    def restore(self, saved: dict[str, Any]) -> None:
        """Take back what `save` gave."""
        super().restore(saved)
        self.clipped.load_state_dict(saved["clipped"])


class LatentPPO(WorldLearner):
    """Actor and critic learn from the newest rows, whose features are those they were acted upon with."""

    family = "on_policy_ppo"
    on_policy = True
    transient = ("feature", "logp", "value")

    def __init__(self, observation: spaces.Dict, action: spaces.Space, config: Config, device: torch.device) -> None:
        super().__init__(observation, action, config, device)
        self.rollout = config.ppo.rollout

    def act(self, rows: Batch, carry: Memory, mode: Mode) -> tuple[Batch, Memory]:
        """Actions at rows (N, ...), with features, values and log-probabilities while training."""
        found, after = super().act(rows, carry, mode)
        if mode == "train" and self.acted <= self.replay.prefill:
            found["logp"] = torch.full_like(found["logp"], torch.nan)  # no policy of ours chose these
        return found, after

    def _explored(self, vector: Tensor) -> Tensor:
        return self.code.decode(vector)  # other actions than the policy's would have no log-probability

    def _kept(self, state: State, policy: ActionDist, vector: Tensor) -> Batch:
        taken = self.code.encode(self.code.decode(vector))  # as rows give it back: rounding counts near a tanh's ends
        value = self.behavior.critic.pred(state.feature)
        seen = {"feature": state.feature, "logp": policy.logp(taken), "value": value}
        return super()._kept(state, policy, vector) | seen

    def learn_rollout(self, rows: Batch) -> Learned:
        """Epochs of clipped updates over the newest rows (T + 1, N, ...)."""
        if self.native is not None:
            self.native.ready()  # a resumed run rounds as one that has long made its programs
        with self._precision():
            batch, rebuilt = self._trajectory(rows)
            values = {"real": batch["value"].mean(), "imagined": self._imagined_value(batch["feature"])}
            metrics, updates = self.clipped.learn(batch, patient=False)
        metrics |= {f"train/{name}_value": value for name, value in values.items()}
        return Learned(metrics | {"train/logp_reconstructed": rebuilt}, updates=updates)

    @torch.no_grad()
    def _imagined_value(self, feature: Tensor) -> Tensor:
        """The mean value of states dreamt from some of the features (B, F); the agent's generator stays as it is."""
        state = self._state_of(feature[:: max(1, len(feature) // DREAMS)][:DREAMS])
        rssm, behavior, shape = self.world.rssm, self.behavior, (FORESIGHT, len(state.deter))
        generator = torch.Generator(self.device).manual_seed(0)
        draws, noise = behavior.policy.noise(shape, generator), rssm.latent.noise(shape, generator)
        dreamt = []
        for draw, shake in zip(draws, noise):
            state = rssm.step(state, behavior(state.feature).sample(draw), shake)
            dreamt.append(state.feature)
        return behavior.critic.pred(torch.stack(dreamt)).mean()

    @torch.no_grad()
    def _trajectory(self, rows: Batch) -> tuple[Batch, Tensor]:
        """The first T rows as one flat batch with advantages, and the share of log-probabilities that were missing."""
        feature, action = rows["feature"][:-1], self.code.encode(rows["action"][:-1])
        value = torch.cat([rows["value"][:-1], self._last_value(rows, feature[-1], action[-1]).unsqueeze(0)])
        discount = self.ppo.gamma * (~rows["is_terminal"]).float()
        trace = self.ppo.lam * (~rows["is_last"]).float()
        target = lambda_return(rows["reward"], value, discount, trace)  # (T, N)
        current = self.behavior(feature).logp(action)
        old = rows["logp"][:-1] if "logp" in rows else torch.full_like(current, torch.nan)
        missing = old.isnan()
        batch = {
            "feature": feature, "action": action, "logp": torch.where(missing, current, old), "value": value[:-1],
            "target": target, "advantage": target - value[:-1],
            "weight": (~rows["is_last"][:-1]).float(),  # the action of a last row is never played
        }  # fmt: skip
        return {key: x.flatten(0, 1) for key, x in batch.items()}, missing.float().mean()

    def _last_value(self, rows: Batch, feature: Tensor, action: Tensor) -> Tensor:
        """The value at the last row, which has not been acted upon."""
        before = self._state_of(feature)
        noise = self.world.rssm.latent.noise((len(feature),), self.generator)
        last = {key: rows[key][-1] for key in self.keys}
        return self.behavior.critic.pred(self.world.filter_step(before, action, last, noise).feature)

    def _state_of(self, feature: Tensor) -> State:
        return State(*feature.split([self.world.config.deter, self.world.rssm.latent.size], -1))


class DreamPPO(WorldLearner):
    """Actor and critic learn from dreams, by several epochs of clipped updates over each."""

    family = "imagined_ppo"

    def _afterwards(self, state: State, window: Window) -> dict[str, Tensor]:
        """Learn from dreams that begin at the states (B, T) of a window; metrics."""
        starts = self.behavior.config.starts
        late = State(*(part[:, -starts if starts else None :].detach() for part in state))
        start = late.flat()
        with self._precision():
            batch = self._dreamt(start)
            metrics, _ = self.clipped.learn(batch)
        value = batch["value"]  # dreams begin where rows were replayed, step by step from there
        real = value[: len(start.deter)].mean()
        return metrics | {"train/real_value": real, "train/imagined_value": value.mean()}

    @torch.no_grad()
    def _dreamt(self, start: State) -> Batch:
        """Dreams from a start (B,) as one flat batch with advantages."""
        dream = self.behavior.imagine(self.world, start, self.generator)
        trace = torch.full_like(dream.cont, self.behavior.config.lam)
        target = lambda_return(dream.reward, dream.value, dream.cont, trace)  # (H, B)
        feature = dream.feature[:-1]
        batch = {
            "feature": feature, "action": dream.action, "logp": self.behavior(feature).logp(dream.action),
            "value": dream.value[:-1], "target": target, "advantage": target - dream.value[:-1],
            "weight": survival(dream.cont)[:-1],
        }  # fmt: skip
        return {key: x.flatten(0, 1) for key, x in batch.items()}
