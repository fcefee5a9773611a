import numpy as np
from PIL import Image

from reverie.log.sinks.videos import VideosSink


def test_videos_are_files_that_sort_by_step(tmp_path):
    sink = VideosSink(tmp_path / "videos")
    for step in (1000, 20):
        sink.write(step, {}, {"eval/episodes": np.zeros((2, 8, 8, 3), np.uint8)})
    sink.close()
    names = sorted(each.name for each in (tmp_path / "videos").iterdir())
    assert names == ["eval_episodes_000000020.gif", "eval_episodes_000001000.gif"]
    with Image.open(tmp_path / "videos" / names[0]) as image:
        assert image.format == "GIF"
