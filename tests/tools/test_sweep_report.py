"""The table of a sweep."""

import pytest

optuna = pytest.importorskip("optuna")

from optuna.distributions import CategoricalDistribution  # noqa: E402
from optuna.trial import TrialState, create_trial  # noqa: E402

from reverie.tools.sweep_report import ranked, save_csv, table  # noqa: E402


def trial(number, value=None, state=TrialState.COMPLETE, **params):
    known = {name: CategoricalDistribution((each,)) for name, each in params.items()}
    made = create_trial(value=value, state=state, params=params, distributions=known)
    made.number = number
    return made


TRIALS = [
    trial(0, 1.0, seed=0, lr=0.1),
    trial(1, 3.0, seed=1, lr=0.1),
    trial(2, 7.0, seed=0, lr=0.2),
    trial(3, None, TrialState.FAIL, seed=1, lr=0.2),
    trial(4, None, TrialState.FAIL, seed=0, lr=0.3),
]


def test_seeds_are_one_row_and_the_best_comes_first():
    assert [row.mean for row in ranked(TRIALS, minimize=False)] == [7.0, 2.0, None]
    assert [row.mean for row in ranked(TRIALS, minimize=True)] == [2.0, 7.0, None]
    assert table(ranked(TRIALS, False), ["seed", "lr"]) == [
        "score             lr   trials",
        "7.0               0.2  2, 3 (failed)",
        "2.0 (1.0 to 3.0)  0.1  0, 1",
        "-                 0.3  4 (failed)",
    ]


def test_without_seeds_each_trial_is_a_row():
    again = [trial(0, 1.0, lr=0.1), trial(1, 3.0, lr=0.1)]
    assert [row.mean for row in ranked(again, minimize=False)] == [3.0, 1.0]


def test_every_trial_is_in_the_file(tmp_path):
    save_csv(tmp_path / "trials.csv", TRIALS, ["seed", "lr"])
    lines = (tmp_path / "trials.csv").read_text().splitlines()
    assert lines[0] == "trial,state,score,seed,lr,folder,error"
    assert lines[2] == "1,complete,3.0,1,0.1,," and len(lines) == 6
