"""Runs whose numbers are not finite: what is learned is kept, and they stop with one line."""

import gymnasium
import numpy as np
import pytest
import torch

import reverie
from reverie.build import make_parts, make_run
from reverie.config import store
from reverie.config.errors import UserError
from reverie.envs import toy
from reverie.training.skips import PATIENCE

SMALL = {"run__eval_every": 100, "run__save_every": 50, "run__eval_videos": 0, "ppo__rollout": 16}
SMALL |= {"envs__count": 2, "envs__backend": "serial"}


class Pays(toy.Count):
    """Pays what float32 holds at most from some step on: returns of it are infinite."""

    since = 250
    taken = 0

    def step(self, action):
        observation, reward, *rest = super().step(action)
        self.taken += 1
        return observation, 3e38 if self.taken > self.since else reward, *rest


class Flickers(toy.Count):
    """Shows NaN once, after the checks of its first steps."""

    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    taken = 0

    def step(self, action):
        assert np.isfinite(action).all()
        observation, reward, *rest = super().step(0)
        self.taken += 1
        return (observation * np.float32(np.nan) if self.taken == 150 else observation), reward, *rest


def checkpoints(folder):
    return {path.name: torch.load(path, weights_only=True) for path in sorted((folder / "checkpoints").glob("*.pt"))}


def test_ppo_outlives_numbers_of_an_environment_that_are_not_finite(tmp_path, caplog):
    task = f"{__name__}:Flickers"
    config = reverie.configure("cartpole_ppo", task=task, logdir=str(tmp_path), run__steps=500, **SMALL)
    reverie.train(config, quiet=True)
    for env in range(2):
        assert (
            f"environment {env} ({task}) broke and is restarted: observation 'vector' has NaN at index 0" in caplog.text
        )
    saved = checkpoints(tmp_path)
    assert set(saved) == {"best.pt", "latest.pt"}
    for state in saved.values():
        assert all(value.isfinite().all() for value in state["agent"]["module"].values())
    assert saved["latest.pt"]["agent"]["counts"]["skipped"] == 0


def test_a_run_of_ppo_that_only_skips_stops_and_keeps_what_it_has(tmp_path, caplog):
    task = f"{__name__}:Pays"
    config = reverie.configure("cartpole_ppo", task=task, logdir=str(tmp_path), run__steps=5000, **SMALL)
    with pytest.raises(UserError, match=rf"^{PATIENCE} rounds in a row had a loss .*lower --ppo.lr") as caught:
        reverie.train(config, quiet=True)
    assert "\n" not in str(caught.value)
    (file,) = tmp_path.glob("nonfinite-*.npz")
    assert np.load(file)["reward"].max() > 1e36
    assert str(file) in caplog.text
    saved = checkpoints(tmp_path)
    assert 500 <= saved["latest.pt"]["counters"]["step"] < 500 + PATIENCE * 32
    for state in saved.values():
        assert all(value.isfinite().all() for value in state["agent"]["module"].values())


def test_no_checkpoint_is_written_over_by_weights_that_are_not_finite(tmp_path):
    config = reverie.configure("debug", task="toy_count", logdir=str(tmp_path), run__steps=256)
    store.save(config, tmp_path)
    parts = make_parts(config)
    try:
        run = make_run(config, tmp_path, parts, resume=False, quiet=True)
        run.save("latest")
        before = (tmp_path / "checkpoints" / "latest.pt").read_bytes()
        next(run.agent.parameters()).data.view(-1)[0] = torch.nan
        with pytest.raises(UserError, match=r"weights are not finite, so .*latest\.pt is not written"):
            run.save("latest")
        assert (tmp_path / "checkpoints" / "latest.pt").read_bytes() == before
        run.logger.close()
    finally:
        parts.close()
