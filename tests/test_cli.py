"""The command as a person uses it: what works, and what is told when something is wrong."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import reverie
from reverie.cli import main
from reverie.training import checkpoint


def call(capsys, *words: str) -> tuple[int, str, str]:
    """Exit status, output and errors of a command."""
    with pytest.raises(SystemExit) as caught:
        main(list(words))
    captured = capsys.readouterr()
    return int(caught.value.code or 0), captured.out, captured.err


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """The folder of a short run."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    reverie.train(reverie.configure("cartpole_ppo", "debug", logdir=str(folder)), quiet=True)
    return folder


def test_a_run_folder_holds_what_it_should(trained):
    names = {str(path.relative_to(trained)) for path in trained.rglob("*") if path.is_file()}
    assert {"config.yaml", "metrics.jsonl", "checkpoints/latest.pt", "checkpoints/best.pt"} <= names
    assert any(name.startswith("events.out.tfevents") for name in names)
    assert any(name.startswith("videos/") for name in names)
    last = [json.loads(line) for line in (trained / "metrics.jsonl").read_text().splitlines()]
    merged = {key: value for line in last for key, value in line.items()}
    expected = [
        "step",
        "frames",
        "updates",
        "time",
        "time/sps",
        "time/fps",
        "time/ups",
        "time/progress",
        "eval/mean_return",
    ]
    expected += ["episode/return", "episode/length", "train/policy_loss", "train/value_loss", "train/entropy"]
    expected += ["train/approx_kl", "train/clip_fraction", "train/explained_variance", "train/grad_norm", "train/lr"]
    assert not [name for name in expected if name not in merged]


def test_train_says_what_was_reached_and_how_to_watch_it(capsys, tmp_path):
    status, out, _ = call(capsys, "train", "--configs", "cartpole_ppo", "debug", "--logdir", str(tmp_path / "r"))
    assert status == 0
    assert f"reverie play --logdir {tmp_path / 'r'}" in out
    assert f"tensorboard --logdir {tmp_path / 'r'}" in out
    assert "Return of the last evaluation" in out


def test_eval_json(capsys, trained):
    status, out, _ = call(capsys, "eval", "--logdir", str(trained), "--episodes", "3", "--json")
    figures = json.loads(out)
    assert status == 0
    assert set(figures) == {
        "mean_return", "median_return", "min_return", "max_return", "success_rate", "mean_length", "episodes",
    }  # fmt: skip
    assert figures["episodes"] == 3
    assert figures["min_return"] <= figures["median_return"] <= figures["max_return"]
    assert figures["success_rate"] is None
    again = json.loads(call(capsys, "eval", "--logdir", str(trained), "--episodes", "3", "--json")[1])
    assert again == figures
    other = json.loads(call(capsys, "eval", "--logdir", str(trained), "--episodes", "3", "--json", "--stochastic")[1])
    assert other != figures


def test_play_saves_gifs(capsys, trained, tmp_path):
    words = [
        "play",
        "--logdir",
        str(trained),
        "--episodes",
        "2",
        "--save-gif",
        "--gif-fps",
        "25",
        "--gif-dir",
        str(tmp_path),
    ]
    status, out, _ = call(capsys, *words)
    assert status == 0
    assert "episode 2: return" in out
    gifs = sorted(tmp_path.glob("*.gif"))
    assert len(gifs) == 2
    with Image.open(gifs[0]) as gif:
        assert gif.n_frames > 5
        assert gif.info["duration"] == 40
        first = np.asarray(gif.convert("RGB")).copy()
        gif.seek(gif.n_frames - 1)
        assert (np.asarray(gif.convert("RGB")) != first).any()


def test_play_can_write_its_thoughts_into_the_pictures(capsys, trained, tmp_path, monkeypatch):
    monkeypatch.delenv("DISPLAY", raising=False)
    shown = []
    for name, extra in (("plain", []), ("noted", ["--overlay"])):
        words = ["play", "--logdir", str(trained), "--episodes", "1", "--save-gif", "--gif-dir", str(tmp_path / name)]
        assert call(capsys, *words, *extra)[0] == 0
        (path,) = (tmp_path / name).glob("*.gif")
        with Image.open(path) as gif:
            gif.seek(3)
            shown.append(np.asarray(gif.convert("RGB")).astype(int))
    changed = np.abs(shown[0] - shown[1]).max(-1) > 60  # palettes differ a little too
    assert changed[:20, :200].mean() > 0.05 > 0.001 > changed[30:].mean()


def test_play_without_a_screen_says_how_to_see_it(capsys, trained, monkeypatch):
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    status, out, _ = call(capsys, "play", "--logdir", str(trained), "--episodes", "1", "--checkpoint", "latest.pt")
    assert status == 0
    assert "--save-gif" in out


def test_help_is_readable(capsys):
    status, out, _ = call(capsys, "train", "--help")
    assert status == 0
    for words in ("cartpole_ppo", "PPO on CartPole", "crafter", "--ppo.lr X", "Learning rate of Adam.", "Short names"):
        assert words in out
    assert max(map(len, out.splitlines())) <= 130
    for command in ("eval", "play", "dream", "envs"):
        assert f"reverie {command}" in call(capsys, command, "--help")[1]
    assert "reverie train" in call(capsys)[1]


def test_envs_lists_suites_and_checks_a_task(capsys):
    status, out, _ = call(capsys, "envs")
    assert status == 0
    assert "crafter" in out
    status, out, _ = call(capsys, "envs", "--check", "toy_catch")
    assert status == 0
    assert "steps/s" in out
    assert "image" in out
    assert "is_first" in out


def test_envs_checks_a_task_with_options(capsys):
    options = ["--env.size", "16", "--env.stack", "3", "--envs.count", "2"]
    status, out, _ = call(capsys, "envs", "--check", "toy_catch", *options)
    assert status == 0
    assert "(16, 16, 9)" in out
    assert "2 environments" in out


def test_envs_tells_the_same_warning_once(capsys):
    status, out, err = call(capsys, "envs", "--check", "toy_crash", "--envs.max_restarts", "1000")
    assert status == 0
    assert out.count("breaks on purpose") == 1
    assert " x environment 0 (toy_crash) broke" in out
    assert "purpose" not in err


BROKEN = """
import gymnasium
import numpy as np
from gymnasium import spaces


class Broken(gymnasium.Env):
    observation_space = spaces.Dict(a=spaces.Discrete(2), b=spaces.Box(-1, 1, (3,)), c=spaces.Box(-1, 1, (3,)))
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return {"a": 0, "b": np.zeros(3, np.float32), "c": np.zeros(2, np.float32)}, {}

    def step(self, action):
        return {"a": 5, "b": np.full(3, np.nan, np.float32), "c": np.zeros(2, np.float32)}, None, False, False, {}


class Strange(Broken):
    observation_space = spaces.Dict({"a": spaces.Text(3)})
    action_space = spaces.Box(0, 3, (2,), np.int64)
"""


def test_envs_tells_all_faults_in_one_line(capsys, tmp_path, monkeypatch):
    (tmp_path / "faulty.py").write_text(BROKEN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    status, _, err = call(capsys, "envs", "--check", "faulty:Broken")
    assert status == 2
    assert len(err.strip().splitlines()) == 1
    for fault in ("'a' is 5, outside", "'b' has NaN", "'c' has shape (2,)", "the reward is None"):
        assert err.count(fault) == 1
    status, _, err = call(capsys, "envs", "--check", "faulty:Strange")
    assert status == 2
    assert "Text space" in err and "action space is a Box of int64" in err


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("trian", "unknown command 'trian': did you mean train?"),
        ("train --configs cartpol_ppo", "did you mean cartpole_ppo"),
        ("train --task atari_pongg", "did you mean atari_pong"),
        ("train --task gym_CartPole-v9", "CartPole-v1"),
        ("train --task nothing", "tasks are SUITE_NAME"),
        ("train --task no_module:Env", "no_module"),
        ("train --imports no_such_package --task gym_X-v0", "cannot import 'no_such_package'"),
        ("train --ppo.lerning 1", "unknown option --ppo.lerning"),
        ("train --ppo.lr high", "--ppo.lr takes a number"),
        ("train --envs.count 0", "--envs.count is 0: it must be at least 1"),
        ("train --ppo.gamma 1.5", "--ppo.gamma is 1.5: it must be between 0 and 1"),
        ("train --seed -1", "--seed is -1: it must be at least 0"),
        ("eval --logdir {run} --episodes 0", "--episodes is 0: it must be at least 1"),
        ("train --task gym_Pendulum-v1 --envs.backend native", "no vector environment of its own"),
        ("train --resume --logdir {tmp}/none", "no run folder"),
        ("train --resume --logdir {tmp}", "holds no run"),
        ("train --logdir {tmp}/file", "holds other files"),
        ("train --device cuda", "torch sees no GPU"),
        ("eval", "--logdir is missing"),
        ("eval --logdir {tmp}/none", "no run folder"),
        ("eval --logdir {run} --checkpoint other.pt", "there is best.pt, latest.pt"),
        ("play --logdir {run} --checkpoint {tmp}/file", "damaged or no checkpoint"),
        ("play --logdir {run} --checkpoint /etc/passwd", "damaged or no checkpoint"),
        ("play --logdir {run} --episods 2", "did you mean --episodes"),
        ("dream --logdir {run}", "this run's agent has no world model"),
        ("dream --logdir {run} --length 1", "--length is 1: it must be at least 2"),
        ("dream --logdir {run} --context 0", "--context is 0: it must be at least 1"),
        ("dream --logdir {run} --checkpoint other.pt", "there is best.pt, latest.pt"),
        ("envs --check toy_katch", "did you mean toy_catch"),
        ("envs --check toy_catch --env.sise 8", "did you mean --env.size"),
        ("envs --check toy_catch --envs.count 0", "--envs.count is 0: it must be at least 1"),
    ],
)
def test_bad_input_is_one_line_and_status_2(capsys, tmp_path, trained, line, words):
    (tmp_path / "file").write_text("not a run")
    status, out, err = call(capsys, *line.format(tmp=tmp_path, run=trained).split())
    assert status == 2
    assert words in err
    assert len(err.strip().splitlines()) == 1
    assert "Traceback" not in out + err
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_full_disk_is_told_and_the_last_checkpoint_kept(tmp_path):
    folder = tmp_path / "run"
    config = reverie.configure("cartpole_ppo", "debug", logdir=str(folder), run__steps=256)
    reverie.train(config, quiet=True)
    step = checkpoint.load(folder / "checkpoints/latest.pt")["counters"]["step"]
    (folder / "checkpoints/latest.partial").symlink_to("/dev/full")
    words = ["train", "--resume", "--logdir", str(folder), "--run.steps", "2000"]
    done = subprocess.run([sys.executable, "-m", "reverie", *words], capture_output=True, text=True)
    assert done.returncode == 2
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
    assert checkpoint.load(folder / "checkpoints/latest.pt")["counters"]["step"] == step


def test_an_agent_in_three_lines_of_another_program(trained):
    import gymnasium

    agent = reverie.load(trained)
    env = gymnasium.make("CartPole-v1")
    observation, _ = env.reset(seed=0)
    for _ in range(10):
        action = agent.act(observation)
        assert action in (0, 1)
        observation, _, ended, _, _ = env.step(action)
        if ended:
            break
    with pytest.raises(reverie.UserError, match="shape"):
        agent.act(observation[:2])


def test_help_and_errors_do_not_wait_for_torch():
    code = "import sys; from reverie.cli import run; run(['train', '--help']); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


def test_a_checkpoint_of_another_run_is_told_in_one_line(capsys, trained, tmp_path):
    other = tmp_path / "other"
    reverie.train(reverie.configure("debug", task="gym_Pendulum-v1", logdir=str(other)), quiet=True)
    words = ["eval", "--logdir", str(trained), "--checkpoint", str(other / "checkpoints" / "latest.pt")]
    status, _, err = call(capsys, *words)
    assert status == 2
    assert "does not fit this run" in err
    assert len(err.strip().splitlines()) == 1


def test_resume_goes_by_the_folder_it_is_given(trained, tmp_path):
    moved = tmp_path / "moved"
    shutil.copytree(trained, moved)
    before = checkpoint.load(trained / "checkpoints/latest.pt")["counters"]["step"]
    outcome = reverie.resume(moved)
    assert outcome.logdir == moved
    assert outcome.step == before


def test_a_run_without_a_checkpoint_starts_from_the_beginning(trained, tmp_path):
    new = tmp_path / "new"
    new.mkdir()
    shutil.copy(trained / "config.yaml", new)
    assert reverie.resume(new).step >= 512
