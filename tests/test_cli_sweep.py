"""`reverie sweep` as a person uses it: real trials, failures, interruptions, several workers."""

import json
from pathlib import Path

import pytest

from required import package

optuna = package("optuna")

from optuna.trial import TrialState, create_trial  # noqa: E402

from reverie.config import store  # noqa: E402
from reverie.config.presets import stacked  # noqa: E402
from reverie.tools import plan  # noqa: E402
from reverie.tools.records import run_folders  # noqa: E402
from reverie.tools.storage import open_storage  # noqa: E402

SPACE = "ppo.lr: {low: 1e-4, high: 1e-2, log: true}\nppo.epochs: [1, 2]\n"


@pytest.fixture(scope="module")
def searched(tmp_path_factory, short_trials, sweeping) -> tuple[Path, str]:
    """The folder of a search of four trials, two at a time, and what was printed."""
    folder = tmp_path_factory.mktemp("sweeps")
    (folder / "space.yaml").write_text(SPACE)
    words = ["--space", str(folder / "space.yaml"), "--trials", "4", "--jobs", "2", "--logdir", str(folder / "s")]
    done = sweeping(*short_trials, *words)
    printed, _ = done.communicate(timeout=200)
    assert done.returncode == 0, printed
    return folder / "s", printed


def test_a_search_leaves_a_table_and_pictures(searched, trials_of):
    folder, printed = searched
    found = trials_of(folder)
    assert [row["state"] for row in found] == ["complete"] * 4
    assert len({row["ppo.lr"] for row in found}) == 4
    best = max(found, key=lambda row: float(row["score"]))
    assert f"--ppo.lr {best['ppo.lr']}" in printed and f"play --logdir {folder / best['folder']}" in printed
    for name in ("history", "parallel", "importance"):
        assert (folder / f"{name}.png").stat().st_size > 5000 and f"{name}.png" in printed


def test_trials_are_ordinary_runs(searched, call, tmp_path, trials_of):
    folder, _ = searched
    first = trials_of(folder)[0]
    config = store.load(folder / first["folder"])
    assert config.ppo.lr == float(first["ppo.lr"]) and config.ppo.epochs == int(first["ppo.epochs"])
    assert config.run.compilers == 0, "two run at a time"
    assert len(run_folders(folder)) == 4
    status, out, _ = call("eval", "--logdir", str(folder / first["folder"]), "--episodes", "2", "--json")
    assert status == 0 and json.loads(out)["episodes"] == 2
    assert call("plot", str(folder), "--out", str(tmp_path / "a.png"))[0] == 0
    last = (folder / first["folder"] / "metrics.jsonl").read_text().splitlines()[-1]
    assert json.loads(last)["eval/mean_return"] == float(first["score"])


def test_a_finished_search_takes_more_trials(searched, sweeping, trials_of):
    folder, _ = searched
    printed, _ = sweeping("--resume", "--logdir", str(folder), "--trials", "5").communicate(timeout=200)
    assert "trial 4 ends" in printed and "trial 3" not in printed.partition("\n\n")[0]
    assert len(trials_of(folder)) == 5
    plan.keep_trials(plan.resumed({"trials": 3}, {"logdir": str(folder)}))
    assert plan.resumed({}, {"logdir": str(folder)}).arguments.trials == 5, "the larger number is kept"


def test_pictures_of_a_finished_search_are_drawn_again_in_another_format(searched, call):
    folder, _ = searched
    status, out, _ = call("sweep", "--resume", "--logdir", str(folder), "--pictures", "svg")
    assert status == 0 and "trial" not in out.partition("\n\n")[0].partition("\n")[2]
    for name in ("history", "parallel", "importance"):
        assert "<svg" in (folder / f"{name}.svg").read_text() and f"{name}.svg" in out


def test_a_grid_with_a_trial_that_fails(tmp_path, call, short_trials, trials_of):
    folder = tmp_path / "grid"
    words = ["--grid", "task=gym_CartPole-v1,toy_nothing", "--jobs", "2", "--pictures", "svg", "--logdir", str(folder)]
    status, out, _ = call("sweep", *short_trials, *words)
    assert status == 0
    assert [row["state"] for row in trials_of(folder)] == ["complete", "fail"]
    assert "toy_nothing" in trials_of(folder)[1]["error"] and "Trial 1 failed:" in out
    assert "<svg" in (folder / "curves.svg").read_text()


def test_a_sweep_in_which_everything_fails_ends(tmp_path, call, short_trials):
    words = ["--grid", "seed=0,1,2,3,4,5", "--jobs", "3", "--task", "toy_nothing", "--logdir", str(tmp_path / "s")]
    status, out, err = call("sweep", *short_trials, *words)
    assert status == 2 and "trials failed, the last one so" in err and "toy_nothing" in err
    assert "trial 5" not in out


def test_workers_with_other_options_may_not_join(tmp_path, call, short_trials):
    storage = ["--storage", f"journal:{tmp_path}/study.log", "--study", "shared"]
    study = optuna.create_study(storage=open_storage(storage[1]), study_name="shared", direction="maximize")
    study.set_user_attr("identity", "something else")
    status, _, err = call("sweep", *short_trials, "--grid", "seed=0", *storage, "--logdir", str(tmp_path / "s"))
    assert status == 2 and "is of another sweep" in err
    assert not (tmp_path / "s").exists()


def test_a_bad_trial_is_ended_early_and_can_be_resumed(tmp_path, call, short_trials):
    storage = f"journal:{tmp_path}/study.log"
    study = optuna.create_study(storage=open_storage(storage), study_name="s", direction="maximize")
    lr = optuna.distributions.FloatDistribution(1e-4, 1e-2, log=True)
    epochs = optuna.distributions.CategoricalDistribution((1, 2))
    for _ in range(5):  # others, in whose company any real trial is bad
        found = {"params": {"ppo.lr": 1e-3, "ppo.epochs": 1}, "distributions": {"ppo.lr": lr, "ppo.epochs": epochs}}
        there = {"folder": "trial-0000", "worker": "elsewhere:1:1"}
        scores = dict.fromkeys(range(1, 500), 1e4)
        study.add_trial(create_trial(value=1e4, intermediate_values=scores, user_attrs=there, **found))
    (tmp_path / "space.yaml").write_text(SPACE)
    words = ["--space", str(tmp_path / "space.yaml"), "--trials", "6", "--run.steps", "50000", "--storage", storage]
    status, out, _ = call("sweep", *short_trials, *words, "--logdir", str(tmp_path / "s"))
    assert status == 0 and "trial 5 ends early" in out and "Watch the best:  trial-0000 on elsewhere" in out
    assert open_study(storage).trials[5].state == TrialState.PRUNED
    assert (tmp_path / "s/trial-0005/checkpoints/latest.pt").exists()
    assert json.loads((tmp_path / "s/trial-0005/metrics.jsonl").read_text().splitlines()[-1])["step"] < 50000


def open_study(storage: str):
    return optuna.load_study(study_name="s", storage=open_storage(storage))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", "sweep needs what to vary"),
        ("--space {tmp}/none.yaml", "no file"),
        ("--space {tmp}/space.yaml --grid seed=0", "sweep needs what to vary"),
        ("--space {tmp}/wrong.yaml", "did you mean --ppo.lr"),
        ("--space {tmp}/space.yaml --grid", "ppo.lr is a range"),
        ("--grid ppo.lr", "write NAME=VALUE"),
        ("--grid seed=0 --trials 0", "--trials is 0"),
        ("--grid seed=0 --gpu 1", "did you mean --gpus"),
        ("--grid seed=0 --logdir {tmp}", "holds other files"),
        ("--grid seed=0 --storage nothing://here --logdir {tmp}/s", "cannot open --storage"),
        ("--grid seed=0 --run.eval_every 0 --run.eval_at_end False", "would have no eval/mean_return"),
        ("--resume", "--resume needs the --logdir of a sweep"),
        ("--resume --logdir {tmp}", "--resume needs the --logdir of a sweep"),
        ("--resume --logdir {tmp} --seed 1", "leave out --seed"),
    ],
)
def test_wrong_input_is_one_line_and_nothing_is_written(call, tmp_path, line, words):
    (tmp_path / "space.yaml").write_text(SPACE)
    (tmp_path / "wrong.yaml").write_text("ppo.lrr: [1]\n")
    given = line.format(tmp=tmp_path).split()
    presets = [] if "--resume" in given else ["--configs", "cartpole_ppo"]
    status, _, err = call("sweep", *presets, *given)
    assert status == 2 and words in err and len(err.strip().splitlines()) == 1
    assert sorted(each.name for each in tmp_path.iterdir()) == ["space.yaml", "wrong.yaml"]


def test_a_password_is_not_kept(tmp_path):
    from reverie.config.sweeps import SweepArguments

    arguments = SweepArguments(grid=("seed=0,1",), storage="postgresql://me:secret@host/db")
    config = store.replaced(stacked(["cartpole_ppo"]), {"logdir": str(tmp_path / "s")})
    plan.save(plan.new(arguments, config))
    assert "secret" not in "".join(each.read_text() for each in (tmp_path / "s").iterdir())
    with pytest.raises(plan.UserError, match="give --storage again"):
        plan.resumed({}, {"logdir": str(tmp_path / "s")})
    again = plan.resumed({"storage": "sqlite://"}, {"logdir": str(tmp_path / "s")})
    assert again.storage == "sqlite://" and again.arguments.trials == 2
    assert store.replaced(again.base, {"logdir": config.logdir}) == config
