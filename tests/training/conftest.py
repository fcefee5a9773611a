import pytest

import reverie


@pytest.fixture
def trained(tmp_path):
    """Trains in a folder of the test's own and gives the outcome of the run."""

    def train(*presets, folder="run", **options):
        options = {"run__eval_videos": 0, "log__tensorboard": False, "run__eval_episodes": 20, **options}
        config = reverie.configure(*presets, logdir=str(tmp_path / folder), **options)
        return reverie.train(config, quiet=True)

    return train
