"""Dreamer (Hafner et al., 2019, 2020, 2023): learn a world model from replayed rows, and a behaviour by dreaming in it.

One agent for all generations: what differs between them is in the configuration. How it acts is in `filterer`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor

from ..config.dreamer import OptimConfig
from ..config.schema import Config, RunConfig
from ..data.rows import Batch
from ..nn import ranks
from ..nn.beside import Beside
from ..nn.graph import Graphed
from ..nn.optim import Stepper
from ..world.model import ROW_KL, Seen, Window
from ..world.rssm import State
from .base import Family, Learned
from .behavior import between
from .changeover import Changeover
from .compiled import Regions, hasten, manner, persist
from .filterer import Calculation, Filterer, Memory
from .lesson import Later, Lesson, Told, descend, named, stepper_of
from .native import Nativized
from .windows import refreshed


class Dreamer(Filterer):
    """Learns from windows of the past."""

    family: Family = "dreamer"
    replays = True
    failed: Tensor
    skipped: Tensor

    def __init__(self, observation: spaces.Dict, action: spaces.Space, config: Config, device: torch.device) -> None:
        super().__init__(observation, action, config, device)
        self.world.tells_rows = config.replay.prioritised > 0
        self.steppers = self._steppers(config.optim)
        self.lr_end = config.optim.lr_end
        self.carried: Memory = {}
        """Where the windows of the last update ended, if those of the next go on from there."""
        self.measured: dict[str, tuple[str, ...]] = {}
        """Names of the metrics of each kind of update."""
        self.register_buffer("skipped", torch.zeros((), dtype=torch.int64, device=device))
        self.register_buffer("failed", torch.zeros((), dtype=torch.int64, device=device))
        self.lessons = self._lessons()
        self.updating: dict[str, Calculation] = {name: partial(self._update, name=name) for name in self.lessons}
        self.beside, self.after = Beside(), Beside()
        self.native: Nativized | None = None
        self.regions: Regions = {}
        """Functions that are, or will be, compiled."""
        self.changeover: Changeover | None = None
        """Where functions are still to be replaced by compiled ones."""
        self._quicken(config.run)

    def _quicken(self, run: RunConfig) -> None:
        """Replace functions by compiled ones or programs, and on a GPU updates and acting by captured graphs."""
        fast = manner(run.fast, self.device, tried=not run.compilers)
        if fast == "native":
            self.native = Nativized(self.world, self.policies.values(), self.steppers.values())
            self.updating = {name: partial(self.native, update) for name, update in self.updating.items()}
        if fast in ("compile", "shared"):
            if fast == "compile" and self.device.type == "cuda":
                persist(self.world.rssm, self.replay.batch // ranks.count(), self.in_half)
            self.regions = hasten(self.world, self.policies, self.steppers, self.in_half)
            if run.compilers:
                self.changeover = Changeover(self.regions, self.device)
            else:
                self.take(self.regions)
            self.beside, self.after = Beside(self.device), Beside(self.device)
            # the critic learns on two streams, one after the other
            torch.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch(False)
        if self.device.type == "cuda" and fast != "off" and ranks.count() == 1:
            # what goes on beside an update fills up what it leaves free; environments wait for actions
            self.updating = {name: Graphed(each, [self.generator], urgency=1) for name, each in self.updating.items()}
            self.acting = {name: Graphed(act, [self.generator], urgency=2) for name, act in self.acting.items()}

    def take(self, names: Iterable[str]) -> None:
        """Let functions be compiled ones from now on; graphs of updates are captured anew."""
        for name in names:
            self.regions[name].compile()
        for update in self.updating.values():
            if isinstance(update, Graphed):
                update.forget()

    def _change_over(self, changeover: Changeover) -> None:
        """Take what others have compiled since the last update."""
        if ready := changeover.ready():
            self.take(ready)
        if changeover.over:
            self.changeover = None

    def close(self) -> None:
        """End the processes that compile for this agent; if it learns on, it compiles the rest itself."""
        if self.changeover is not None:
            self.changeover.close()

    def only_act(self) -> None:
        """Let go of what learning alone needs: this agent is a copy to act with."""
        self.steppers, self.lessons, self.updating = {}, {}, {}
        self.zero_grad(set_to_none=True)

    def _steppers(self, optim: OptimConfig) -> dict[str, Stepper]:
        world, actor, critic = self.world, self.behavior.actor, self.behavior.critic
        if optim.joint:
            return {"model": stepper_of(optim.model, world, actor, critic)}
        alone = {"model": world, "actor": actor, "critic": critic}
        return {name: stepper_of(getattr(optim, name), module) for name, module in alone.items()}

    def _lessons(self) -> dict[str, Lesson]:
        """The kinds of updates there are."""
        return {"all": Lesson(self._task, self._world, self.steppers, (self.behavior,))}

    @property
    def lesson(self) -> str:
        """The kind of update that is due."""
        return "all"

    def learn_replay(self, rows: Batch) -> Learned:
        """One update on a sampled batch, of the kind that is due."""
        if self.changeover is not None:
            self._change_over(self.changeover)
        lesson, carried = self.lesson, self.replay.start == "carried"
        if carried and not self.carried:
            self.carried = self.initial_carry(len(rows["is_first"]))
            rows = rows | {"continues": torch.zeros_like(rows["continues"])}
        held = {f"carry/{name}": value for name, value in self.carried.items()}
        found = self.updating[lesson]({key: value for key, value in rows.items() if key != "index"} | held)
        values = dict(zip(self.measured[lesson], found.pop("measured").unbind()))
        self.carried = {name: found.pop(f"carry/{name}") for name in self.carried}
        return Learned(values, found, updates=1)

    def _update(self, rows: Batch, name: str) -> Batch:
        """What is written back to the rows, `carry/...` for the windows that follow, and metrics as `measured`."""
        window, lesson = self.window(rows), self.lessons[name]
        for stepper in lesson.steppers.values():
            stepper.zero()
        state, losses, metrics = self._differentiate(window, lesson)
        kl = metrics.pop(f"world/{ROW_KL}", None)
        finite, seen = lesson.step(losses)
        self.skipped += ~finite
        self.failed.add_(1).mul_(~finite)
        metrics |= seen | {"train/skipped": self.skipped.float()} | self._afterwards(state, window)
        self.measured[name] = tuple(metrics)
        found = {"measured": ranks.average_(torch.stack(list(metrics.values())).detach())}
        written = refreshed(rows, self._latents(state.detach()), finite)
        if self.replay.prioritised:
            written["priority"] = self._priority(rows, losses, kl).masked_fill(~finite, 0)
        return found | written | self._carried(rows, state, finite)

    def _afterwards(self, state: State, window: Window) -> dict[str, Tensor]:
        """What else is learned after a step of the optimisers, from the states (B, T) of a window; metrics."""
        return {}

    def _carried(self, rows: Batch, state: State, finite: Tensor) -> Batch:
        """Where the windows ended, for those that go on from there."""
        if self.replay.start != "carried":
            return {}
        # what is not finite would spoil every window that goes on from here
        end = {name: part[:, -1].masked_fill(~finite, 0) for name, part in state.detach()._asdict().items()}
        end["action"] = self.code.encode(rows["action"][:, -1])
        return {f"carry/{name}": value for name, value in end.items()}

    def _differentiate(self, window: Window, lesson: Lesson) -> tuple[State, dict[str, Tensor], dict[str, Tensor]]:
        """States of a window, the losses of a lesson, whose gradients are left with the weights, and metrics.

        What is predicted from the states and what is dreamt from them meet nowhere else, so a GPU may do both at once;
        and the losses of dreams while gradients go back through the states.
        """
        with self._precision(), torch.set_grad_enabled(not lesson.still):
            seen = self.world.observe(window, self.generator)
        if lesson.still:
            torch.clear_autocast_cache()  # older torch would reuse weights cast here, which know of no gradient
        dreamt, told = seen.leaves(), seen.leaves()
        self.beside.fork()
        with self._precision():
            (found, more), later = lesson.behave(dreamt, window)
        descend(found)
        self.after.fork()  # now that no other gradient is on its way to the critic
        with self.beside:
            with self._precision():
                losses, metrics = lesson.predict(told, window)
            descend(losses)
        self.beside.join()
        if not lesson.still:
            seen.backward(dreamt, told)
        with self.after:
            with self._precision():
                judged, further = later()
            descend(judged)
        self.after.join()
        return seen.state, losses | found | judged, metrics | more | further

    def _world(self, seen: Seen, window: Window) -> Told:
        """The losses of the world model's predictions, and metrics."""
        losses, metrics = self.world.predictions(seen, window, self.generator)
        return losses, named("world", metrics)

    def _task(self, seen: Seen, window: Window) -> tuple[Told, Later]:
        """The losses of actor and critic, and metrics."""
        (losses, metrics), later = self._behave(seen.state, window)

        def judged() -> Told:
            losses, metrics = later()
            return losses, named("train", metrics)

        return (losses, named("train", metrics)), judged

    def _behave(self, state: State, window: Window) -> tuple[Told, Later]:
        """The losses of actor and critic from the states (B, T) of a window, and metrics."""
        behavior, (ends, rows) = self.behavior, self._ends(state, window)
        dream, returns = behavior.foreseen(self.world, ends.flat(), rows["is_terminal"].flatten(), self.generator)
        losses = {}
        if behavior.config.replay_scale:
            boot = returns[0].detach().reshape(rows["is_first"].shape)
            loss, value = behavior.replay_loss(ends, rows, boot, self.world.gamma)
            losses["replay_critic"] = behavior.config.replay_scale * loss
        else:
            with torch.no_grad():
                value = behavior.critic.pred(ends.feature)
        metrics = {"real_value": value.mean()}
        return (losses, metrics), partial(behavior.judged, dream, returns)

    def _ends(self, state: State, window: Window) -> tuple[State, Batch]:
        """The states and rows (B, starts) at the end of a window, from which dreams begin."""
        starts = self.behavior.config.starts
        late = slice(-starts if starts else None, None)
        return State(state.deter[:, late], state.stoch[:, late]), {key: x[:, late] for key, x in window.rows.items()}

    @torch.no_grad()
    def _priority(self, rows: Batch, losses: dict[str, Tensor], kl: Tensor | None) -> Tensor:
        """How badly rows (B, T + context) are predicted: their losses of latent and reward, were no nats free.

        Free nats hide which of the rows below them is predicted worse, and those of a mean make all rows alike. What a
        lesson does not work out counts nothing.
        """
        config, parts = self.world.config, [losses["reward"].detach()] if "reward" in losses else []
        if kl is not None:
            parts.append((config.dyn_scale + config.rep_scale) * kl)
        surprise = torch.stack(parts).sum(0)
        context = rows["is_first"].shape[1] - surprise.shape[1]
        return torch.cat([surprise[:, :1]] * context + [surprise], 1)

    def failures(self) -> Tensor:
        """How many updates in a row came to nothing for numbers that are not finite."""
        return self.failed

    def schedule(self, progress: float) -> None:
        """Set what changes over a run."""
        for behavior in self.policies.values():
            behavior.schedule(progress)
        for stepper in self.steppers.values():
            stepper.share.fill_(between(1.0, self.lr_end, progress))

    def save(self) -> dict[str, Any]:
        """Weights, statistics, optimisers, random state and the carried state."""
        return super().save() | {
            "optimizers": {name: stepper.state_dict() for name, stepper in self.steppers.items()},
            "acted": self.acted,
            "carried": self.carried,
        }

    def restore(self, saved: dict[str, Any]) -> None:
        """Take back what `save` gave."""
        super().restore(saved)
        for name, stepper in self.steppers.items():
            stepper.load_state_dict(saved["optimizers"][name])
        self.acted = int(saved["acted"])
        self.carried = {name: value.to(self.device) for name, value in saved["carried"].items()}
