"""What a configuration becomes: options reach the parts that they are for."""

from dataclasses import asdict

import pytest
import torch

import reverie
from reverie.actors import kind_of
from reverie.build import make_parts, make_rehearsal
from reverie.data.select import Weighting

SHARES = {"uniform": 0.125, "online": 0.25, "recent": 0.125, "prioritised": 0.5}


@pytest.fixture
def built(tmp_path):
    """Agent and rehearsal of a small Dreamer with these options."""

    def make(**options):
        config = reverie.configure("dreamer_v3", "debug", task="toy_count", logdir=str(tmp_path / "run"), **options)
        parts = make_parts(config)
        parts.close()
        return parts.agent, make_rehearsal(config, tmp_path, parts.device, parts.storage)

    return make


def test_windows_are_selected_as_the_options_say(built):
    wanted = {f"replay__{name}": share for name, share in SHARES.items()}
    _, rehearsal = built(**wanted, replay__alpha=0.3, replay__recency=77.0, replay__ends=0.25)
    selection = rehearsal.replay.selection
    assert selection.fractions == SHARES
    weighting = Weighting(ends=0.25, scale=77.0, alpha=0.3)
    assert [asdict(part.weighting) for part in selection.parts.values()] == [asdict(weighting)] * len(SHARES)


@pytest.mark.parametrize(("start", "context"), [("stored", 1), ("zeros", 0), ("carried", 0)])
def test_windows_that_begin_at_stored_latents_have_a_row_of_context(built, start, context):
    _, rehearsal = built(replay__start=start)
    assert rehearsal.replay.ring.context == context
    assert rehearsal.length == rehearsal.config.length + context


def test_updates_follow_steps_and_not_frames(tmp_path):
    """Two frames to a step: 400 steps after the warm-up replay 400 x ratio rows, not twice as many."""
    options = {"env__repeat": 2, "run__steps": 500, "run__eval_every": 0, "run__eval_at_end": False}
    replay = {
        "replay__batch": 4,
        "replay__length": 8,
        "replay__ratio": 8.0,
        "replay__warmup": 100,
        "replay__prefill": 0,
    }
    config = reverie.configure(
        "dreamer_v3", "debug", task="toy_count", logdir=str(tmp_path / "run"), envs__count=1, **options, **replay
    )
    outcome = reverie.train(config, quiet=True)
    counters = torch.load(tmp_path / "run" / "checkpoints" / "latest.pt", weights_only=True)["counters"]
    assert counters["frames"] == 2 * outcome.step == 1000
    assert counters["updates"] == pytest.approx((outcome.step - 100) * 8 / (4 * 8), abs=3)


def test_schedules_move_while_a_run_goes_on(tmp_path):
    options = {"behavior__entropy": 1.0, "behavior__entropy_end": 0.0, "optim__lr_end": 0.5, "run__steps": 200}
    config = reverie.configure("dreamer_v3", "debug", task="toy_count", logdir=str(tmp_path / "run"), **options)
    made = []

    def remembered(*facts):
        made.append(kind_of(config)(*facts))
        return made[-1]

    reverie.train(config, quiet=True, agent=remembered)
    (agent,) = made
    assert 0 <= agent.behavior.entropy < 0.1
    assert 0.5 <= agent.steppers["model"].share < 0.55
