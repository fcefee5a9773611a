import io
import math

import pytest
import torch

from reverie.data.rows import Episode
from reverie.log.episodes import EpisodeMeter, crafter_score, episode_scalars


def test_means_over_whole_episodes_and_a_count_of_broken_ones():
    episodes = [
        Episode(0, 10.0, 5, summary={"success": 1.0, "coins": 3.0}),
        Episode(1, 20.0, 15, summary={"success": 0.0}),
        Episode(2, 999.0, 999, broken=True, summary={"success": 1.0}),
    ]
    assert episode_scalars(episodes) == {
        "episode/return": 15.0,
        "episode/length": 10.0,
        "episode/success_rate": 0.5,
        "episode/coins": 3.0,
        "episode/broken": 1.0,
    }


def test_no_episodes_give_no_figures():
    assert episode_scalars([]) == {}
    assert episode_scalars([Episode(0, 1.0, 1, broken=True)]) == {"episode/broken": 1.0}


def test_a_summary_cannot_replace_the_return():
    assert episode_scalars([Episode(0, 7.0, 1, summary={"return": -1.0})])["episode/return"] == 7.0


def test_meter_looks_back_on_its_window_only():
    meter = EpisodeMeter(window=3)
    assert math.isnan(meter.mean) and meter.scalars() == {}
    meter.add([Episode(0, score, 2 * i) for i, score in enumerate([100.0, 1.0, 2.0, 6.0])])
    assert (meter.mean, meter.best, meter.mean_length, meter.count) == (3.0, 6.0, 4.0, 4)


def test_meter_counts_broken_episodes_apart():
    meter = EpisodeMeter(window=2)
    meter.add([Episode(0, 5.0, 1), Episode(0, -1000.0, 1, broken=True)])
    assert (meter.mean, meter.count, meter.broken, meter.full) == (5.0, 1, 1, False)


def test_solved_needs_a_full_window():
    meter = EpisodeMeter(window=2)
    meter.add([Episode(0, 10.0, 1)])
    assert not meter.solved(10.0)
    meter.add([Episode(0, 10.0, 1)])
    assert meter.solved(10.0) and not meter.solved(10.1)


def test_meter_survives_a_safe_load():
    meter = EpisodeMeter(window=2)
    meter.add([Episode(0, score, 3) for score in (1.0, 2.0, 3.0)] + [Episode(0, 0.0, 1, broken=True)])
    file = io.BytesIO()
    torch.save(meter.state_dict(), file)
    file.seek(0)
    other = EpisodeMeter(window=2)
    other.load_state_dict(torch.load(file, weights_only=True))
    other.add([Episode(0, 5.0, 3)])
    assert (other.mean, other.count, other.broken) == (4.0, 4, 1)


def test_score_is_the_geometric_mean_in_percent():
    assert crafter_score([1.0, 0.0]) == pytest.approx(math.sqrt(101) - 1)
    assert crafter_score([0.5, 0.5]) == pytest.approx(50.0)
    # 1 + 3, 1 + 15 and 1 + 63 are powers of 2: 2, 4 and 6, whose mean is 4, and 2 ** 4 - 1 is 15.
    assert crafter_score([0.03, 0.15, 0.63]) == pytest.approx(15.0)
    assert crafter_score([0.0] * 22) == 0.0


def explored(*unlocked):
    names = ("collect_wood", "place_table")
    return Episode(0, 1.0, 10, summary={f"achievement/{name}": float(name in unlocked) for name in names})


def test_the_score_counts_all_episodes_ever_and_survives_a_safe_load():
    meter = EpisodeMeter(window=1)
    assert "episode/crafter_score" not in meter.scalars()
    meter.add([explored("collect_wood", "place_table"), explored("collect_wood"), Episode(0, 0.0, 1, broken=True)])
    assert meter.scalars()["episode/crafter_score"] == pytest.approx(math.sqrt(101 * 51) - 1)
    file = io.BytesIO()
    torch.save(meter.state_dict(), file)
    file.seek(0)
    other = EpisodeMeter(window=1)
    other.load_state_dict(torch.load(file, weights_only=True))
    other.add([explored(), explored()])
    assert other.scalars()["episode/crafter_score"] == pytest.approx(math.sqrt(51 * 26) - 1)


def test_no_score_where_nothing_can_be_achieved():
    meter = EpisodeMeter()
    meter.add([Episode(0, 1.0, 1, summary={"success": 1.0})])
    assert "episode/crafter_score" not in meter.scalars()
