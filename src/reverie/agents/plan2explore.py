"""A Dreamer with a second behaviour that explores, so that there is something to dream of where rewards are rare.

World model and explorer learn what there is; the task's behaviour learns from the same dreams what it is good for.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor

from ..config.dreamer import OptimConfig
from ..config.schema import Config
from ..data.rows import Batch
from ..nn.actions import Policy
from ..nn.layers import Layers
from ..nn.optim import Stepper
from ..world.model import Seen, Window
from .base import Learned, Mode
from .behavior import Behavior, Imagined
from .dreamer import Dreamer
from .explorer import Explorer
from .lesson import Later, Lesson, Told, named, stepper_of

REWARDED = ("reward", "ahead/reward")
"""Losses of the world model that know of rewards."""
OF_TASK = ("task", "reward", "actor", "critic")
OF_EXPLORER = ("explorer", "ensemble", "explorer_actor", "explorer_critic")
"""Optimisers of the reward head and the task's behaviour, and of the ensemble and the explorer's."""


class Plan2Explore(Dreamer):
    """Collects with the explorer, as long as that is asked for, and is judged by what it has learned of the task.

    It knows three lessons: to `explore` (world model, explorer, and the task unless that is left for later), to
    `exploit` (world model and task, as any Dreamer), and to `fit` the task to a world model that stays as it is.
    """

    def __init__(self, observation: spaces.Dict, action: spaces.Space, config: Config, device: torch.device) -> None:
        self.explore, self.budget = config.explore, config.run.steps
        self.exploring = True
        self.fitted = 0
        """Updates that have fitted the task since exploring was over."""
        super().__init__(observation, action, config, device)

    def _further_policies(self, policy: Policy, config: Config, make: Layers) -> dict[str, Behavior]:
        self.explorer = Explorer(self.world, self.code.size, policy, config, make)
        return {"explorer": self.explorer}

    def _steppers(self, optim: OptimConfig) -> dict[str, Stepper]:
        reward, task, explorer = self.world.reward_head, self.behavior, self.explorer
        rest = [part for name, part in self.world.named_children() if name != "reward_head"]
        found = {"model": stepper_of(optim.model, *rest)}
        if optim.joint:
            found["task"] = stepper_of(optim.model, reward, task.actor, task.critic)
            found["explorer"] = stepper_of(optim.model, explorer.ensemble, explorer.actor, explorer.critic)
            return found
        found |= {"reward": stepper_of(optim.model, reward), "ensemble": stepper_of(optim.model, explorer.ensemble)}
        for prefix, behavior in (("", task), ("explorer_", explorer)):
            found[f"{prefix}actor"] = stepper_of(optim.actor, behavior.actor)
            found[f"{prefix}critic"] = stepper_of(optim.critic, behavior.critic)
        return found

    def _lessons(self) -> dict[str, Lesson]:
        task = {name: stepper for name, stepper in self.steppers.items() if name in OF_TASK}
        explorer = {name: stepper for name, stepper in self.steppers.items() if name in OF_EXPLORER}
        model = {"model": self.steppers["model"]}
        with_task = Lesson(self._both, self._world, model | task | explorer, (self.behavior, self.explorer))
        alone = Lesson(self.venture, self._rewardless, model | explorer, (self.explorer,))
        return {
            "explore": with_task if self.explore.task else alone,
            "exploit": Lesson(self._task, self._world, model | task, (self.behavior,)),
            "fit": Lesson(self._task, self._rewards, task, (self.behavior,), still=True),
        }

    @property
    def lesson(self) -> str:
        """The kind of update that is due."""
        return "explore" if self.exploring else "fit" if self.owed else "exploit"

    @property
    def owed(self) -> int:
        """How many updates are still to fit the task, once exploring is over."""
        return 0 if self.exploring else max(0, self.explore.fit - self.fitted)

    def actor(self, mode: Mode) -> str:
        """Which of the policies acts: the explorer collects while that is wanted, and is shown on demand."""
        if mode != "train":
            return "explorer" if self.explore.show else "task"
        # generators know by what was acted upon, since nobody tells them how far the run is
        over = not self.exploring or 0 < self.explore.until <= self.acted
        return "task" if over else "explorer"

    def published(self) -> list[Tensor]:
        """Weights that acting depends on, the explorer's among them."""
        return super().published() + list(self.explorer.actor.state_dict(keep_vars=True).values())

    def learn_replay(self, rows: Batch) -> Learned:
        """One update on a sampled batch, of the kind that is due."""
        fits = self.lesson == "fit"
        learned = super().learn_replay(rows)
        self.fitted += fits
        return learned

    def venture(self, seen: Seen, window: Window) -> tuple[Told, Later]:
        """The losses of ensemble and explorer, and metrics; nothing of them reaches the states."""
        ends, rows = self._ends(seen.state, window)
        dream, returns = self.explorer.foreseen(self.world, ends.flat(), rows["is_terminal"].flatten(), self.generator)
        return ({}, {}), partial(self._ventured, seen, window, dream, returns)

    def _ventured(self, seen: Seen, window: Window, dream: Imagined, returns: Tensor) -> Told:
        ensemble, disagreement = self.explorer.study(seen, window)
        losses, metrics = self.explorer.judged(dream, returns)
        metrics |= {"disagreement": disagreement.mean(), "imagined_disagreement": self.explorer.usual.mean}
        return named("explore", {"ensemble": ensemble} | losses), named("explore", metrics)

    def _both(self, seen: Seen, window: Window) -> tuple[Told, Later]:
        """Those of the task's behaviour and of the explorer."""
        told, task = self._task(seen, window)
        _, venture = self.venture(seen, window)

        def judged() -> Told:
            (losses, metrics), (more, further) = task(), venture()
            return losses | more, metrics | further

        return told, judged

    def _rewardless(self, seen: Seen, window: Window) -> Told:
        """The losses of all predictions but those of rewards, and metrics."""
        losses, metrics = self._world(seen, window)
        return {name: loss for name, loss in losses.items() if name not in REWARDED}, metrics

    def _rewards(self, seen: Seen, window: Window) -> Told:
        """The loss of predicted rewards alone."""
        return {"reward": self.world.reward_loss(seen.state.detach(), window.rows)}, {}

    def schedule(self, progress: float) -> None:
        """Set what changes over a run."""
        super().schedule(progress)
        end = min(self.explore.until or self.budget, self.budget)
        self.exploring = round(progress * self.budget) < end
        if self.exploring:
            self.fitted = 0
        elif self.owed:  # what begins to be learned now has its whole learning rate
            for name in OF_TASK:
                if name in self.steppers:
                    self.steppers[name].share.fill_(1.0)

    def save(self) -> dict[str, Any]:
        """All that Dreamer saves, and how far the task is fitted."""
        return super().save() | {"fitted": self.fitted}

    def restore(self, saved: dict[str, Any]) -> None:
        """Take back what `save` gave."""
        super().restore(saved)
        self.fitted = int(saved["fitted"])
