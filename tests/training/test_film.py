import numpy as np

import reverie
from reverie.build import make_parts
from reverie.training.film import FRAMES, MAX_SIDE, MOST_FRAMES, SECONDS, Film


class Camera:
    """Pictures of environments whose brightness is the number of the step; each picture takes its time."""

    def __init__(self, seconds=0.0, shape=(10, 10, 3)):
        self.now, self.seconds, self.shape, self.step = 0.0, seconds, shape, 0
        self.drawn = 0

    def __call__(self, count):
        self.now += self.seconds * count
        self.drawn += count
        return [np.full(self.shape, self.step % 256, np.uint8) for _ in range(count)]


def filmed(lengths, camera, stride=1):
    film = Film(len(lengths), stride, clock=lambda: camera.now)
    for camera.step in range(max(lengths) + 20):
        film.look(np.array([camera.step == length for length in lengths]), camera)
    return film


def test_short_episodes_are_filmed_whole_with_their_end():
    clips = filmed([3, 6], Camera()).clips
    assert [clip[:, 0, 0, 0].tolist() for clip in clips] == [[0, 1, 2, 3], [0, 1, 2, 3, 4, 5, 6]]


def test_long_episodes_are_thinned_evenly_and_keep_their_end():
    film = filmed([240, 50], Camera())
    long, short = (clip[:, 0, 0, 0].tolist() for clip in film.clips)
    assert len(long) <= MOST_FRAMES and film.stride == 2
    assert long == [*range(0, 241, 2)]
    assert short == [*range(0, 51, 2)]
    assert filmed([241], Camera()).clips[0][-2:, 0, 0, 0].tolist() == [240, 241]


def test_the_next_film_of_such_episodes_needs_no_thinning():
    film = filmed([500], Camera())
    camera = Camera()
    again = filmed([500], camera, film.next_stride)
    assert again.stride == film.next_stride == 6
    assert FRAMES * 0.8 < camera.drawn <= FRAMES + 1


def test_drawing_ends_when_its_time_is_spent_and_the_next_film_fits_into_it():
    slow = Camera(seconds=0.5)
    film = filmed([100], slow)
    assert SECONDS <= slow.now < SECONDS + 1 and len(film.clips[0]) == 10
    slow = Camera(seconds=0.5)
    again = filmed([100], slow, film.next_stride)
    assert slow.now <= SECONDS + 1
    assert again.clips[0][-1, 0, 0, 0] >= 90


def test_environments_whose_episode_ended_are_not_drawn_any_more():
    camera = Camera()
    filmed([50, 3], camera)
    assert camera.drawn == 2 * 4 + 47


def test_large_pictures_are_kept_small():
    film = filmed([2], Camera(shape=(400, 600, 3)))
    assert film.clips[0].shape == (3, 100, 150, 3)
    assert max(film.clips[0].shape[1:3]) <= MAX_SIDE


def test_no_pictures_make_no_clips():
    film = Film(2)
    film.look(np.zeros(2, bool), lambda count: [None] * count)
    assert film.clips == []
    assert Film(0).next_stride == 1


def test_an_evaluation_shows_the_end_of_every_episode():
    parts = make_parts(reverie.configure("debug", task="toy_catch", run__eval_videos=2, run__eval_episodes=2))
    try:
        result = parts.evaluator.evaluate(parts.agent)
        lengths = {episode.env: episode.length for episode in result.episodes}
        assert [len(clip) for clip in result.clips] == [lengths[0] + 1, lengths[1] + 1]
    finally:
        parts.close()
