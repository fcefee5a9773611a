"""The table of a sweep."""

import pytest

from required import package

optuna = package("optuna")

from optuna.distributions import CategoricalDistribution  # noqa: E402
from optuna.trial import TrialState, create_trial  # noqa: E402

from reverie.tools.groups import shown_score  # noqa: E402
from reverie.tools.sweep_report import ranked, save_csv, table, unused  # noqa: E402


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
        "score       lr   trials",
        "7           0.2  2, 3 (failed)",
        "2 (1 to 3)  0.1  0, 1",
        "-           0.3  4 (failed)",
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (12345.678, "12,345.7"), (-99.96, "-99.96"), (0.01234, "0.01234"), (100.0, "100.0")],
)
def test_small_scores_have_digits_too(value, text):
    assert shown_score(value) == text


def test_the_best_is_trained_again_in_a_folder_of_its_own(tmp_path):
    assert unused(tmp_path / "best-s") == tmp_path / "best-s"
    for name in ("best-s", "best-s-2"):
        (tmp_path / name).mkdir()
    assert unused(tmp_path / "best-s") == tmp_path / "best-s-3"


def test_without_seeds_each_trial_is_a_row():
    again = [trial(0, 1.0, lr=0.1), trial(1, 3.0, lr=0.1)]
    assert [row.mean for row in ranked(again, minimize=False)] == [3.0, 1.0]


def test_every_trial_is_in_the_file(tmp_path):
    save_csv(tmp_path / "trials.csv", TRIALS, ["seed", "lr"])
    lines = (tmp_path / "trials.csv").read_text().splitlines()
    assert lines[0] == "trial,state,score,seed,lr,folder,error"
    assert lines[2] == "1,complete,3.0,1,0.1,," and len(lines) == 6
