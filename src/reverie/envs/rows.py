"""From a vector environment to an endless stream of rows (data/rows.py has their layout)."""

from __future__ import annotations

import logging
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

from ..config.errors import UserError
from ..config.schema import EnvConfig
from ..data.rows import Episode, Rows
from . import checks
from .checks import STEPS
from .form import ActionForm, ObservationForm, float_keys, is_image
from .slot import summary


class RowStream:
    """Rows of the N environments of any Gymnasium vector environment with next-step autoreset.

    `finished` holds the episodes that ended with the rows received last. Rows may be views of the vector environment's
    own memory: they stay valid until the step after next.
    """

    def __init__(self, vector: VectorEnv, options: EnvConfig | None = None, checks: bool = True) -> None:
        refuse_other_autoreset(vector)
        options = options or EnvConfig()
        self.vector: Any = vector
        self.count = vector.num_envs
        self.clip, self.scale = options.reward_clip, options.reward_scale
        self.form = ObservationForm(vector.single_observation_space)
        self.action_form = ActionForm(vector.single_action_space)
        self.same_form = self.form.space == vector.single_observation_space
        self.same_actions = self.action_form.space == vector.single_action_space
        self.observation_space: spaces.Dict = self.form.space
        self.action_space: gymnasium.Space = self.action_form.space
        self.unchecked = STEPS if checks else 0
        self.restarts = getattr(vector, "restarts", False)
        self.floats = float_keys(self.observation_space)
        self.score = np.zeros(self.count)
        self.length = np.zeros(self.count, np.int64)
        self.ended = np.ones(self.count, np.bool_)
        self.finished: list[Episode] = []
        self.rows: Rows | None = None
        self.sent: Any = None

    @property
    def spaces(self) -> tuple[spaces.Dict, gymnasium.Space]:
        """The observation and the action space of one environment."""
        return self.observation_space, self.action_space

    def begin(self) -> Rows:
        """The first rows of new episodes: each time the same where the environments know the seed they started from."""
        return self.anew(getattr(self.vector, "base_seed", None))

    def anew(self, seed: int | None = None) -> Rows:
        """The first rows of new episodes, which go on from those before unless a seed is given."""
        observation, _ = self.vector.reset(seed=seed)
        self.ended = np.ones(self.count, np.bool_)
        zero = np.zeros(self.count)
        never = np.zeros(self.count, np.bool_)
        return self.take(observation, zero, never, never, {})

    def step(self, actions: np.ndarray) -> Rows:
        """The rows after playing the actions."""
        self.send(actions)
        return self.receive()

    def send(self, actions: np.ndarray) -> None:
        """Give the environments their actions; where they run elsewhere, they play them at once."""
        actions = np.asarray(actions)
        if self.unchecked:
            checks.actions(self.action_space, actions, self.count)
        elif actions.dtype.kind == "f" and not checks.finite(actions):
            raise UserError("the agent chose actions that are not finite: observations may be huge, rescale them")
        self.sent = actions if self.same_actions else self.action_form(actions, (self.count,))
        if hasattr(self.vector, "step_async"):
            self.vector.step_async(self.sent)

    def receive(self) -> Rows:
        """The rows after the actions sent last."""
        if self.sent is None:
            raise RuntimeError("receive without send")
        outcome = self.vector.step_wait() if hasattr(self.vector, "step_wait") else self.vector.step(self.sent)
        self.sent = None
        return self.take(*outcome)

    def take(
        self, observation: Any, reward: np.ndarray, terminated: np.ndarray, truncated: np.ndarray, info: dict[str, Any]
    ) -> Rows:
        """The rows of what the environments returned, their scores and ends noted."""
        first = self.ended.copy()  # the rows before this have the other as is_last
        last = np.logical_or(terminated, truncated)
        raw = np.where(first, 0.0, reward)
        rows = dict(observation) if self.same_form else self.form(observation, (self.count,))
        if self.unchecked:
            self.unchecked -= 1
            checks.observations(self.observation_space, rows, self.count)
            checks.rewards(raw)
        elif not self.restarts:
            checks.unspoiled(rows, self.floats, raw)
        self.score = np.where(first, 0.0, self.score + raw)
        self.length = np.where(first, 0, self.length + 1)
        self.finished = self.episodes(last, info) if last.any() else []
        rows["reward"] = self.shaped(raw)
        rows["is_first"] = first
        rows["is_last"] = self.ended = last
        rows["is_terminal"] = np.logical_or(terminated, mask(info, "life_lost", self.count)) & ~first
        self.rows = rows
        return dict(rows)

    def shaped(self, reward: np.ndarray) -> np.ndarray:
        """Rewards as training sees them."""
        if self.clip:
            reward = np.clip(reward, -self.clip, self.clip)
        return (reward * self.scale).astype(np.float32)

    def episodes(self, last: np.ndarray, info: dict[str, Any]) -> list[Episode]:
        """The episodes that have just ended."""
        broken = mask(info, "broken", self.count)
        return [
            Episode(int(env), float(self.score[env]), int(self.length[env]), bool(broken[env]), figures(info, int(env)))
            for env in np.flatnonzero(last)
        ]

    def state(self) -> dict[str, Any]:
        """Everything `restore` needs, as plain dicts, lists, numbers and arrays."""
        if self.sent is not None:
            raise RuntimeError("state between send and receive")
        vector = self.vector.state() if hasattr(self.vector, "state") else None
        rows = {key: value.copy() for key, value in (self.rows or {}).items()}
        return {"vector": vector, "rows": rows, "score": self.score.copy(), "length": self.length.copy()}

    def restore(self, state: dict[str, Any]) -> Rows:
        """The rows of a saved state if the environments can be brought back to it, else the first of new episodes."""
        if fault := self.fault(state):
            logging.getLogger("reverie").warning(
                f"episodes cannot go on where they were saved, new ones start: {fault}"
            )
            return self.anew()
        self.rows = {key: np.array(value) for key, value in state["rows"].items()}
        self.score, self.length = np.array(state["score"]), np.array(state["length"])
        self.ended = self.rows["is_last"]
        self.finished = []
        return dict(self.rows)

    def fault(self, state: dict[str, Any]) -> str:
        """Why the environments are not back at a saved state after trying; empty if they are."""
        saved, rows = state["vector"], state["rows"]
        if saved is None or not rows or not hasattr(self.vector, "restore"):
            return "these environments cannot be restored"
        if len(rows["is_last"]) != self.count:
            return f"the state is of {len(rows['is_last'])} environments, there are {self.count}"
        observation = self.vector.restore(saved)
        shown = dict(observation) if self.same_form else self.form(observation, (self.count,))
        if set(shown) != set(rows) - {"reward", "is_first", "is_last", "is_terminal"}:
            return "the observations have other names"
        for key, array in shown.items():
            if not np.array_equal(array, rows[key]):
                return f"observation {key!r} is not what it was"
        return "" if equal(self.vector.state(), saved) else "an episode ended earlier than it did"

    def pictures(self, count: int) -> list[np.ndarray | None]:
        """Pictures of the first environments as they stand; where they draw none, the images they show."""
        if hasattr(self.vector, "pictures"):
            drawn = self.vector.pictures(count)
        else:
            drawn = list((self.vector.render() if self.vector.render_mode else None) or ())[:count]
        drawn += [None] * (count - len(drawn))
        return [self.image(env) if picture is None else picture for env, picture in enumerate(drawn)]

    def image(self, env: int) -> np.ndarray | None:
        """The newest image one environment shows, in colour; None if it shows none."""
        for key, space in self.observation_space.spaces.items():
            if is_image(space) and self.rows is not None:
                image = self.rows[key][env]
                channels = 3 if image.shape[-1] % 3 == 0 else 1
                return np.repeat(image[..., -channels:], 3 // channels, -1)
        return None

    def close(self) -> None:
        """Close the environments."""
        self.vector.close()


def refuse_other_autoreset(vector: VectorEnv) -> None:
    """Refuse a vector environment that does not show the last observation before the first of the next episode."""
    mode = vector.metadata.get("autoreset_mode")
    if mode not in (AutoresetMode.NEXT_STEP, AutoresetMode.NEXT_STEP.value):
        raise UserError(f"{vector} resets by {mode}: make it with autoreset_mode=AutoresetMode.NEXT_STEP")


def mask(info: dict[str, Any], key: str, count: int) -> np.ndarray:
    """A flag of N environments from an info dict; False where it is not told."""
    if key not in info:
        return np.zeros(count, np.bool_)
    return np.asarray(info[key]).astype(np.bool_)


def figures(info: dict[str, Any], env: int) -> dict[str, float]:
    """The summary of one environment, from our own list or from the arrays other vector environments fill."""
    if isinstance(info.get("summary"), list):
        return info["summary"][env]
    told: dict[str, Any] = {key: info[key][env] for key in ("success", "is_success") if key in info}
    if isinstance(info.get("summary"), dict):
        told["summary"] = {key: value[env] for key, value in info["summary"].items() if not key.startswith("_")}
    return summary(told)


def equal(left: Any, right: Any) -> bool:
    """Whether two states of plain dicts, lists, numbers and arrays are the same."""
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(equal(value, right[key]) for key, value in left.items())
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(equal(*pair) for pair in zip(left, right))
    return np.array_equal(left, right)
