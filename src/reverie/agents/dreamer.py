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
from ..config.errors import UserError
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
from ..world.model import Window, WorldModel
from ..world.rssm import State
from .base import Agent, Learned, Media, Mode, restore_random
from .behavior import Behavior, between
from .compiled import hasten, manner, persist
from .windows import refreshed, window_of

Memory = dict[str, Tensor]
"""What the agent remembers from row to row: `deter` and `stoch` of its state, and the `action` it took there."""


class Dreamer(Agent):
    """Acts on filtered states, learns from windows of the past."""

    failed: Tensor
    skipped: Tensor
    numbers: Tensor
    """1 where an entry of a coded action is a number, 0 where it belongs to a class."""

    def __init__(self, observation: spaces.Dict, action: spaces.Space, config: Config, device: torch.device) -> None:
        super().__init__()
        world, behavior = config.world, config.behavior
        self.device, self.replay = device, config.replay
        if behavior.starts == 1 and behavior.replay_scale:
            raise UserError("--behavior.starts 1 leaves the replayed critic loss no pair of rows: give 2 or more, or 0")
        if world.overshoot >= config.replay.length:
            raise UserError("--world.overshoot must be below --replay.length, the rows of a window")
        self.keys = (*observation, "reward", "is_first", "is_last", "is_terminal")
        self.code = ActionCode(action)
        self.world = WorldModel(observation, self.code.size, world, behavior.gamma)
        make = Layers(world.norm, world.activation, world.init)
        policy = Policy(
            action, behavior.continuous, behavior.unimix, behavior.min_std, behavior.max_std, behavior.init_std
        )
        self.behavior = Behavior(self.world.features, policy, behavior, make, world.bins)
        self.to(device)
        self.in_half = in_half(world.precision, device) and (world.precision != "auto" or device.type == "cuda")
        self.generator = torch.Generator(device).manual_seed(config.seed + ranks.number())
        self.steppers = self._steppers(config.optim)
        self.lr_end = config.optim.lr_end
        self.acted = 0
        self.carried: Memory = {}
        """Where the windows of the last update ended, if those of the next go on from there."""
        self.measured: tuple[str, ...] = ()
        """Names of an update's metrics."""
        numbers = [float(not part.groups) for part in policy.parts for _ in range(part.size)]
        self.register_buffer("numbers", torch.tensor(numbers, device=device), persistent=False)
        self.register_buffer("skipped", torch.zeros((), dtype=torch.int64, device=device))
        self.register_buffer("failed", torch.zeros((), dtype=torch.int64, device=device))
        self.updating: Callable[[Batch], Batch] = self._update
        self.acting: dict[Mode, Callable[[Batch], Batch]] = {
            mode: partial(self._act, mode=mode) for mode in ("train", "sample", "eval")
        }
        self.beside = Beside()
        self._quicken(config.run.fast)

    def _quicken(self, fast: str) -> None:
        """Replace functions by compiled ones, and on a GPU updates and acting by captured graphs."""
        fast = manner(fast, self.device)
        if fast in ("compile", "shared"):
            hasten(self.world, self.behavior, *self.steppers.values())
            self.beside = Beside(self.device)
        if fast == "compile" and self.device.type == "cuda":
            persist(self.world.rssm, self.replay.batch // ranks.count(), self.in_half)
        if self.device.type == "cuda" and fast != "off" and ranks.count() == 1:
            self.updating = Graphed(self._update, [self.generator])
            self.acting = {mode: Graphed(act, [self.generator]) for mode, act in self.acting.items()}

    def _steppers(self, optim: OptimConfig) -> dict[str, Stepper]:
        world, actor, critic = self.world, self.behavior.actor, self.behavior.critic
        groups: dict[str, tuple[nn.Module, ...]] = {"model": (world,), "actor": (actor,), "critic": (critic,)}
        if optim.joint:
            groups = {"model": (world, actor, critic)}
        return {
            name: Stepper([p for module in modules for p in module.parameters()], getattr(optim, name))
            for name, modules in groups.items()
        }

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
        found = self.acting[mode]({key: rows[key] for key in self.keys} | before)
        after = {name: found.pop(f"carry/{name}") for name in carry}
        if mode == "train":
            self.acted += len(found["action"]) * ranks.count()
            if self.acted <= self.replay.prefill:
                found["action"] = self.code.random(len(found["action"]), self.generator)
                after["action"] = self.code.encode(found["action"])
        return found, after

    def _act(self, inputs: Batch, mode: Mode) -> Batch:
        """The columns acting adds to rows, and `carry/...` to remember."""
        before = State(inputs["carry/deter"], inputs["carry/stoch"])
        count, generator = len(before.deter), self.generator
        noise, draw = self.world.rssm.latent.noise((count,), generator), self.behavior.policy.noise((count,), generator)
        with self._precision():
            state = self.world.filter_step(before, inputs["carry/action"], inputs, noise)
            policy = self.behavior(state.feature)
            vector = policy.mode() if mode == "eval" else policy.sample(draw)
            if mode == "train":
                kept = self._kept(state, policy, vector)
            else:
                kept = {"value": self.behavior.critic.pred(state.feature)}
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
        config, discrete = self.behavior.config, self.behavior.policy.discrete
        if config.noise and not discrete:
            noise = torch.randn(vector.shape, generator=self.generator, device=vector.device)
            return self.code.decode((vector + config.noise * noise * self.numbers).clamp(-1, 1))
        action = self.code.decode(vector)
        if config.epsilon and discrete:
            chance = torch.rand(len(vector), generator=self.generator, device=vector.device)
            random = self.code.random(len(vector), self.generator)
            chosen = (chance < config.epsilon).reshape(-1, *[1] * (action.dim() - 1))
            action = torch.where(chosen, random, action)
        return action

    def window(self, rows: Batch) -> Window:
        """A sampled batch (B, T + context) as a window to learn from, begun as the configuration says."""
        observed = {key: rows[key] for key in self.keys}
        return window_of(rows, observed, self.code.encode(rows["action"]), self.world.rssm, self.replay.start)

    def learn_replay(self, rows: Batch) -> Learned:
        """One update of world model, actor and critic on a sampled batch."""
        carried = self.replay.start == "carried"
        if carried and not self.carried:
            self.carried = self.initial_carry(len(rows["is_first"]))
            rows = rows | {"continues": torch.zeros_like(rows["continues"])}
        held = {f"carry/{name}": value for name, value in self.carried.items()}
        found = self.updating({key: value for key, value in rows.items() if key != "index"} | held)
        values = dict(zip(self.measured, found.pop("measured").unbind()))
        self.carried = {name: found.pop(f"carry/{name}") for name in self.carried}
        return Learned(values, found, updates=1)

    def _update(self, rows: Batch) -> Batch:
        """What is written back to the rows, `carry/...` for the windows that follow, and metrics as `measured`."""
        window = self.window(rows)
        for stepper in self.steppers.values():
            stepper.zero()
        state, losses, metrics = self._differentiate(window)
        means = {name: loss.detach().mean() for name, loss in losses.items()}
        norms = {name: stepper.norm() for name, stepper in self.steppers.items()}
        finite = torch.isfinite(torch.stack(list(norms.values()))).all()
        for name, stepper in self.steppers.items():
            stepper.step(norms[name], finite)
        self.behavior.follow(finite)
        self.skipped += ~finite
        self.failed.add_(1).mul_(~finite)
        metrics |= {f"train/{name}_loss" if name in TRAINED else f"world/{name}_loss": x for name, x in means.items()}
        metrics |= {f"train/{name}_grad_norm": norm for name, norm in norms.items()}
        metrics["train/skipped"] = self.skipped.float()
        metrics |= self._afterwards(state, window)
        self.measured = tuple(metrics)
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

    def _differentiate(self, window: Window) -> tuple[State, dict[str, Tensor], dict[str, Tensor]]:
        """States of a window, the losses of everything, whose gradients are left with the weights, and metrics.

        What is predicted from the states and what is dreamt from them meet nowhere else, so a GPU may do both at once.
        """
        with self._precision():
            seen = self.world.observe(window, self.generator)
        dreamt, told = seen.leaves(), seen.leaves()
        self.beside.fork()
        with self._precision():
            found, more = self._behave(dreamt.state, window)
        descend(found)
        with self.beside:
            with self._precision():
                losses, metrics = self.world.predictions(told, window, self.generator)
            descend(losses)
        self.beside.join()
        seen.backward(dreamt, told)
        metrics = {f"world/{name}": value for name, value in metrics.items()}
        return seen.state, losses | found, metrics | {f"train/{name}": value for name, value in more.items()}

    def _behave(self, state: State, window: Window) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The losses of actor and critic from the states (B, T) of a window, and metrics."""
        config = self.behavior.config
        late = slice(-config.starts if config.starts else None, None)
        rows = {key: x[:, late] for key, x in window.rows.items()}
        ends = State(state.deter[:, late], state.stoch[:, late])
        boot, losses, metrics = self.behavior.losses(
            self.world, ends.flat(), rows["is_terminal"].flatten(), self.generator
        )
        if config.replay_scale:
            boot = boot.reshape(rows["is_first"].shape)
            loss, value = self.behavior.replay_loss(ends, rows, boot, self.world.gamma)
            losses["replay_critic"] = config.replay_scale * loss
            metrics["real_value"] = value.mean()
        return losses, metrics

    @torch.no_grad()
    def _writeback(self, rows: Batch, state: State, losses: dict[str, Tensor], finite: Tensor) -> Batch:
        """Refreshed latents of the rows (B, T + context), the old ones where nothing was learned."""
        written = refreshed(rows, self._latents(state), finite)
        if self.replay.prioritised:
            surprise = losses["dyn"] + losses["rep"] + losses["reward"]
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
        self.behavior.schedule(progress)
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


def descend(losses: dict[str, Tensor]) -> None:
    """Leave the gradients of the sum of all losses, each averaged, with what they depend on."""
    if losses:
        torch.stack([loss.mean() for loss in losses.values()]).sum().backward()


TRAINED = ("actor", "critic", "replay_critic")
"""Losses of the behaviour; all others are the world model's."""
