"""Dreamer (Hafner et al., 2019, 2020, 2023): learn a world model from replayed rows, and a behaviour by dreaming in it.

One agent for all generations: what differs between them is in the configuration.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn

from ..config.dreamer import OptimConfig
from ..config.schema import Config
from ..data.rows import Batch
from ..nn import ranks
from ..nn.actions import ActionCode, ActionDist, Policy
from ..nn.beside import Beside
from ..nn.graph import Graphed
from ..nn.layers import Layers
from ..nn.optim import Stepper
from ..nn.precision import in_half
from ..world.dream import CONTEXT, Dream, dream, errors
from ..world.model import Seen, Window, WorldModel
from ..world.rssm import State
from .base import MODES, Agent, Learned, Media, Mode, restore_random
from .behavior import Behavior, between, policy_of
from .compiled import hasten, manner, persist
from .lesson import Lesson, Told, descend, named, stepper_of
from .noise import ActionNoise
from .windows import check_lengths, refreshed, window_of

Memory = dict[str, Tensor]
"""What the agent remembers from row to row: `deter` and `stoch` of its state, and the `action` it took there."""
Calculation = Callable[[Batch], Batch]
"""What a GPU can replay as one graph."""


class Dreamer(Agent):
    """Acts on filtered states, learns from windows of the past."""

    failed: Tensor
    skipped: Tensor

    def __init__(self, observation: spaces.Dict, action: spaces.Space, config: Config, device: torch.device) -> None:
        super().__init__()
        world, behavior = config.world, config.behavior
        self.device, self.replay = device, config.replay
        check_lengths(config)
        self.keys = (*observation, "reward", "is_first", "is_last", "is_terminal")
        self.code = ActionCode(action)
        self.world = WorldModel(observation, self.code.size, world, behavior.gamma)
        make = Layers(world.norm, world.activation, world.init)
        policy = policy_of(action, behavior)
        self.behavior = Behavior(self.world.features, policy, behavior, make, world.bins)
        self.policies = {"task": self.behavior} | self._further_policies(policy, config, make)
        """Who may act, by name."""
        self.noise = ActionNoise(self.code, policy, behavior)
        self.to(device)
        self.in_half = in_half(world.precision, device) and (world.precision != "auto" or device.type == "cuda")
        self.generator = torch.Generator(device).manual_seed(config.seed + ranks.number())
        self.steppers = self._steppers(config.optim)
        self.lr_end = config.optim.lr_end
        self.acted = 0
        self.carried: Memory = {}
        """Where the windows of the last update ended, if those of the next go on from there."""
        self.measured: dict[str, tuple[str, ...]] = {}
        """Names of the metrics of each kind of update."""
        self.register_buffer("skipped", torch.zeros((), dtype=torch.int64, device=device))
        self.register_buffer("failed", torch.zeros((), dtype=torch.int64, device=device))
        self.lessons = self._lessons()
        self.updating: dict[str, Calculation] = {name: partial(self._update, name=name) for name in self.lessons}
        self.acting: dict[tuple[str, Mode], Calculation] = {
            (name, mode): partial(self._act, behavior=each, mode=mode)
            for name, each in self.policies.items()
            for mode in MODES
        }
        self.beside = Beside()
        self._quicken(config.run.fast)

    def _quicken(self, fast: str) -> None:
        """Replace functions by compiled ones, and on a GPU updates and acting by captured graphs."""
        fast = manner(fast, self.device)
        if fast in ("compile", "shared"):
            hasten(self.world, self.policies.values(), self.steppers.values())
            self.beside = Beside(self.device)
        if fast == "compile" and self.device.type == "cuda":
            persist(self.world.rssm, self.replay.batch // ranks.count(), self.in_half)
        if self.device.type == "cuda" and fast != "off" and ranks.count() == 1:
            self.updating = {name: Graphed(update, [self.generator]) for name, update in self.updating.items()}
            self.acting = {name: Graphed(act, [self.generator]) for name, act in self.acting.items()}

    def _further_policies(self, policy: Policy, config: Config, make: Layers) -> dict[str, Behavior]:
        """Behaviours besides the one that the task is learned by."""
        return {}

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

    def actor(self, mode: Mode) -> str:
        """Which of the policies acts."""
        return "task"

    def initial_carry(self, batch: int) -> Memory:
        """The state before the first row."""
        with torch.no_grad():
            state = self.world.rssm.initial(batch)
        return {**state._asdict(), "action": torch.zeros(batch, self.code.size, device=self.device)}

    def published(self) -> list[Tensor]:
        """Weights of encoder, recurrent state and actor, and those of the critic where rows keep values."""
        parts: list[nn.Module] = [self.world.encoder, self.world.rssm, self.behavior.actor]
        parts += [self.behavior.critic] if "value" in self.transient else []
        return [value for part in parts for value in part.state_dict(keep_vars=True).values()]

    @torch.no_grad()
    def act(self, rows: Batch, carry: Memory, mode: Mode) -> tuple[Batch, Memory]:
        """Actions at rows (N, ...), with the latents they were chosen on."""
        before = {f"carry/{name}": value for name, value in carry.items()}
        found = self.acting[self.actor(mode), mode]({key: rows[key] for key in self.keys} | before)
        after = {name: found.pop(f"carry/{name}") for name in carry}
        if mode == "train":
            self.acted += len(found["action"]) * ranks.count()
            if self.acted <= self.replay.prefill:
                found["action"] = self.code.random(len(found["action"]), self.generator)
                after["action"] = self.code.encode(found["action"])
        return found, after

    def _act(self, inputs: Batch, behavior: Behavior, mode: Mode) -> Batch:
        """The columns acting adds to rows, and `carry/...` to remember."""
        before = State(inputs["carry/deter"], inputs["carry/stoch"])
        count, generator = len(before.deter), self.generator
        noise, draw = self.world.rssm.latent.noise((count,), generator), behavior.policy.noise((count,), generator)
        with self._precision():
            state = self.world.filter_step(before, inputs["carry/action"], inputs, noise)
            policy = behavior(state.feature)
            vector = policy.mode() if mode == "eval" else policy.sample(draw)
            if mode == "train":
                kept = self._kept(state, policy, vector)
            else:
                kept = {"value": behavior.critic.pred(state.feature)}
        action = self._explored(vector) if mode == "train" else self.code.decode(vector)
        found = {"action": action} | kept
        after = {"deter": state.deter, "stoch": state.stoch, "action": self.code.encode(action)}
        return found | {f"carry/{name}": part for name, part in after.items()}

    def _kept(self, state: State, policy: ActionDist, vector: Tensor) -> Batch:
        """What rows keep of acting upon them, besides the action."""
        return self._latents(state)

    def _latents(self, state: State) -> Batch:
        """The columns of a state that rows keep: none where windows do not begin at stored latents."""
        if self.replay.start != "stored":
            return {}
        return {"deter": state.deter.bfloat16(), "stoch": self.world.rssm.latent.pack(state.stoch)}

    def _explored(self, vector: Tensor) -> Tensor:
        """Actions while collecting, with what noise the configuration asks for."""
        return self.noise(vector, self.generator)

    def window(self, rows: Batch) -> Window:
        """A sampled batch (B, T + context) as a window to learn from, begun as the configuration says."""
        observed = {key: rows[key] for key in self.keys}
        return window_of(rows, observed, self.code.encode(rows["action"]), self.world.rssm, self.replay.start)

    def learn_replay(self, rows: Batch) -> Learned:
        """One update on a sampled batch, of the kind that is due."""
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
        finite, seen = lesson.step(losses)
        self.skipped += ~finite
        self.failed.add_(1).mul_(~finite)
        metrics |= seen | {"train/skipped": self.skipped.float()} | self._afterwards(state, window)
        self.measured[name] = tuple(metrics)
        found = {"measured": ranks.average_(torch.stack(list(metrics.values())).detach())}
        return found | self._writeback(rows, state, losses, finite) | self._carried(rows, state, finite)

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

        What is predicted from the states and what is dreamt from them meet nowhere else, so a GPU may do both at once.
        """
        with self._precision(), torch.set_grad_enabled(not lesson.still):
            seen = self.world.observe(window, self.generator)
        if lesson.still:
            torch.clear_autocast_cache()  # older torch would reuse weights cast here, which know of no gradient
        dreamt, told = seen.leaves(), seen.leaves()
        self.beside.fork()
        with self._precision():
            found, more = lesson.behave(dreamt, window)
        descend(found)
        with self.beside:
            with self._precision():
                losses, metrics = lesson.predict(told, window)
            descend(losses)
        self.beside.join()
        if not lesson.still:
            seen.backward(dreamt, told)
        return seen.state, losses | found, metrics | more

    def _world(self, seen: Seen, window: Window) -> Told:
        """The losses of the world model's predictions, and metrics."""
        losses, metrics = self.world.predictions(seen, window, self.generator)
        return losses, named("world", metrics)

    def _task(self, seen: Seen, window: Window) -> Told:
        """The losses of actor and critic, and metrics."""
        losses, metrics = self._behave(seen.state, window)
        return losses, named("train", metrics)

    def _behave(self, state: State, window: Window) -> Told:
        """The losses of actor and critic from the states (B, T) of a window, and metrics."""
        ends, rows = self._ends(state, window)
        boot, losses, metrics = self.behavior.losses(
            self.world, ends.flat(), rows["is_terminal"].flatten(), self.generator
        )
        if self.behavior.config.replay_scale:
            boot = boot.reshape(rows["is_first"].shape)
            loss, value = self.behavior.replay_loss(ends, rows, boot, self.world.gamma)
            losses["replay_critic"] = self.behavior.config.replay_scale * loss
            metrics["real_value"] = value.mean()
        return losses, metrics

    def _ends(self, state: State, window: Window) -> tuple[State, Batch]:
        """The states and rows (B, starts) at the end of a window, from which dreams begin."""
        starts = self.behavior.config.starts
        late = slice(-starts if starts else None, None)
        return State(state.deter[:, late], state.stoch[:, late]), {key: x[:, late] for key, x in window.rows.items()}

    @torch.no_grad()
    def _writeback(self, rows: Batch, state: State, losses: dict[str, Tensor], finite: Tensor) -> Batch:
        """Refreshed latents of the rows (B, T + context), the old ones where nothing was learned."""
        written = refreshed(rows, self._latents(state), finite)
        if self.replay.prioritised:
            surprise = torch.stack([losses[name] for name in ("dyn", "rep", "reward") if name in losses]).sum(0)
            context = rows["is_first"].shape[1] - surprise.shape[1]
            surprise = torch.cat([surprise[:, :1]] * context + [surprise], 1)
            written["priority"] = torch.where(finite, surprise, torch.zeros_like(surprise))
        return written

    def report(self, rows: Batch) -> Media:
        """The dream of sampled windows, and how wrong it is."""
        window = self.window(rows)
        found = self._dream(window, min(CONTEXT, window.is_first.shape[1] // 2))
        return Media({f"world/{name}": value for name, value in errors(found).items()}, {"world/dream": found})

    @torch.no_grad()
    def dream(self, rows: Batch, carry: Memory, context: int = CONTEXT) -> Dream:
        """What the world model predicts of rows (B, T) from their first ones; `carry` is from before them."""
        action = self.code.encode(rows["action"])
        led = torch.cat([carry["action"].unsqueeze(1), action[:, :-1]], 1)
        return self._dream(Window(rows, State(carry["deter"], carry["stoch"]), led, rows["is_first"]), context)

    def _dream(self, window: Window, context: int) -> Dream:
        """A dream that draws the same each time and takes nothing from the agent's generator."""
        generator = torch.Generator(self.device).manual_seed(0)
        with self._precision():
            return dream(self.world, window, context, generator, self.behavior.critic)

    def _precision(self) -> torch.autocast:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.in_half)

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
            "generator": self.generator.get_state(),
            "acted": self.acted,
            "carried": self.carried,
        }

    def restore(self, saved: dict[str, Any]) -> None:
        """Take back what `save` gave."""
        super().restore(saved)
        for name, stepper in self.steppers.items():
            stepper.load_state_dict(saved["optimizers"][name])
        restore_random(self.generator, saved["generator"])
        self.acted = int(saved["acted"])
        self.carried = {name: value.to(self.device) for name, value in saved["carried"].items()}
