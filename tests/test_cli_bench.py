"""The command `reverie bench`: every subject measured for a moment, and what is told when it does not fit."""

import json
import tempfile
from pathlib import Path

import pytest

from reverie.config.arguments import SUBJECTS
from reverie.tools.bench_table import FIGURES

SHORT = ("--seconds", "0.05", "--repeats", "2", "--device", "cpu")
DREAMER = ("--configs", "dreamer_v3", "debug", "--task", "toy_catch", "--env.size", "16")
PPO = ("--configs", "cartpole_ppo", "debug")
ALWAYS = {
    "subject", "agent", "task", "device", "device_name", "threads", "torch", "spread", "warmup_seconds", "peak_bytes"
}  # fmt: skip
COMPUTED = {"parameters", "flops", "flops_per_second", "device_flops_per_second", "device_share"}
ROUNDS = {"updates_per_second", "update_ms", "rounds_per_second", "round_ms", "samples_per_second"}
REPLAY = {
    "added_per_second", "batches_per_second", "windows_per_second", "sample_ms", "writebacks_per_second",
    "writeback_ms", "bytes_per_step", "replay_bytes", "storage",
}  # fmt: skip
STREAM = {"steps_per_second", "steps_per_second_each", "frames_per_second", "step_ms", "environments", "backend"}
ACTING = {"calls_per_second", "call_ms", "steps_per_second", "environments", "parameters"}
WHOLE = {"steps_per_second", "frames_per_second", "updates_per_second", "environments", "parameters"}
LATENT = (*DREAMER, "--agent.policy", "on_policy_ppo", "--ppo.rollout", "8")
CASES = [
    ("learner", DREAMER, {"updates_per_second", "update_ms", "storage"} | COMPUTED),
    ("learner", PPO, ROUNDS | COMPUTED),
    ("replay", DREAMER, REPLAY),
    ("envs", DREAMER, STREAM),
    ("act", DREAMER, ACTING),
    ("act", PPO, ACTING),
    ("ppo", PPO, ROUNDS | COMPUTED),
    ("end-to-end", DREAMER, WHOLE),
    ("end-to-end", PPO, WHOLE),
    ("learner", LATENT, {"updates_per_second", "update_ms", "storage"} | COMPUTED),
    ("ppo", LATENT, ROUNDS | COMPUTED),
    ("end-to-end", LATENT, WHOLE),
]


@pytest.fixture(autouse=True)
def nothing_stays(tmp_path, monkeypatch):
    """No temporary folder and no other file is left behind."""
    made = []

    class Noted(tempfile.TemporaryDirectory):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            made.append(Path(self.name))

    monkeypatch.setattr(tempfile, "TemporaryDirectory", Noted)
    monkeypatch.chdir(tmp_path)
    yield
    assert not [path for path in made if path.exists()]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("subject", "options", "names"), CASES, ids=lambda each: each if isinstance(each, str) else "")
def test_every_subject_as_one_json_object(call, subject, options, names):
    status, out, _ = call("bench", subject, *options, *SHORT, "--json")
    assert status == 0
    report = json.loads(out)
    assert set(report) == ALWAYS | names
    assert (report["subject"], report["device"]) == (subject, "cpu")
    assert not [name for name in names - {"storage", "backend"} if not report[name] > 0]
    assert names <= set(FIGURES)


def test_every_subject_is_tried():
    assert {subject for subject, *_ in CASES} == set(SUBJECTS)


def figures(call, *words: str) -> dict:
    """What `bench` tells of a measurement."""
    return json.loads(call("bench", *words, *SHORT, "--json")[1])


def test_figures_agree_with_one_another(call):
    report = figures(call, "ppo", *PPO)
    assert report["update_ms"] * report["updates_per_second"] == pytest.approx(1000)
    assert report["updates_per_second"] / report["rounds_per_second"] == pytest.approx(2 * 2)  # epochs, minibatches
    assert report["samples_per_second"] / report["rounds_per_second"] == pytest.approx(4 * 32)
    assert report["flops"] / report["update_ms"] * 1000 == pytest.approx(report["flops_per_second"])
    assert report["flops_per_second"] / report["device_flops_per_second"] == pytest.approx(report["device_share"])


def test_options_of_train_change_what_is_measured(call):
    small = figures(call, "learner", *DREAMER)
    large = figures(call, "learner", *DREAMER, "--batch_size", "8", "--world.units", "32", "--replay.storage", "disk")
    assert large["flops"] > 1.9 * small["flops"]
    assert large["parameters"] > small["parameters"]
    assert (small["storage"], large["storage"]) == ("ram", "disk")
    assert figures(call, "envs", *DREAMER, "--envs.count", "3")["environments"] == 3


def test_updates_end_to_end_follow_the_ratio(call):
    report = figures(call, "end-to-end", *DREAMER, "--replay.ratio", "16")
    assert report["updates_per_second"] / report["steps_per_second"] == pytest.approx(16 / (4 * 8), rel=0.3)


@pytest.mark.parametrize("preset", ["dreamer_v3", "dreamer_v1", "dreamer_v2"])
def test_parts_of_an_update(call, preset):
    words = ("--configs", preset, "debug", "--task", "gym_Pendulum-v1", "--parts")
    report = figures(call, "learner", *words)
    names = [each["part"] for each in report["parts"]]
    assert names[:4] == ["replay sampling", "encoder", "scan", "predictions"]
    assert ("replay critic" in names) == (preset == "dreamer_v3")
    for each in report["parts"]:
        assert each["share"] == pytest.approx(each["ms"] / report["update_ms"])
    dreamt = next(each for each in report["parts"] if each["part"] == "imagination")
    # gradients go through dreams of continuous actions in the older generations alone
    assert (dreamt["ms"] == dreamt["forward_ms"]) == (preset == "dreamer_v3")


def test_the_table_has_the_parts_below_the_figures(call):
    status, out, _ = call("bench", "learner", *DREAMER, *SHORT, "--parts")
    assert status == 0
    assert "updates/s" in out and "share of it" in out
    assert out.index("weights") < out.index("ms with gradients") < out.index("write-back")
    assert max(map(len, out.splitlines())) <= 100


def test_files_lie_in_the_logdir_while_they_are_needed(call, tmp_path):
    assert call("bench", "replay", *DREAMER, *SHORT, "--replay.storage", "disk", "--logdir", str(tmp_path))[0] == 0


def test_help_names_the_subjects_and_the_options(call):
    status, out, _ = call("bench", "--help")
    assert status == 0
    for word in (*SUBJECTS, "--repeats N", "--seconds X", "--parts", "--json", "reverie train --help"):
        assert word in out


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", "bench needs a subject: one of learner, replay"),
        ("--json", "bench needs a subject"),
        ("lerner", "unknown subject 'lerner' of bench: did you mean learner?"),
        ("endtoend", "did you mean end-to-end?"),
        ("ppo --configs dreamer_v3", "bench ppo needs PPO, but the agent is dreamer: add --configs cartpole_ppo"),
        ("replay --configs cartpole_ppo", "add --configs dreamer_v3"),
        ("learner --agent.name random", "random does not"),
        ("learner --configs cartpole_ppo --parts", "--parts is for bench learner with a Dreamer"),
        ("envs --parts", "--parts is for bench learner"),
        ("learner --agent.policy on_policy_ppo --parts", "that learns in imagination"),
        ("learner --repeats 0", "--repeats is 0: it must be at least 1"),
        ("learner --seconds 0", "--seconds is 0: it must be at least 0.01"),
        ("learner --secnds 1", "did you mean --seconds"),
        ("learner --replay.batsh 3", "did you mean --replay.batch"),
        ("learner --configs cartpol", "did you mean cartpole"),
        ("learner --task toy_katch", "did you mean toy_catch"),
        ("learner --resume", "unknown option --resume"),
        ("learner --device cuda", "torch sees no GPU"),
        ("learner --logdir none", "--logdir none is no folder"),
        ("end-to-end --replay.ratio 0", "makes no updates to measure"),
    ],
)
def test_what_does_not_fit_is_one_line_and_status_2(call, line, words):
    status, out, err = call("bench", *line.split())
    assert status == 2
    assert words in err
    assert len(err.strip().splitlines()) == 1
    assert not out
