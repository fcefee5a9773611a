import io
import time

import numpy as np
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from reverie.log.sinks.tensorboard import TensorBoardSink


def events(folder):
    found = EventAccumulator(str(folder), size_guidance={"scalars": 0, "images": 0, "tensors": 0})
    return found.Reload()


def test_scalars_come_back(tmp_path):
    sink = TensorBoardSink(tmp_path)
    for step in (1, 5):
        sink.write(step, {"train/loss": step / 2, "eval/mean_return": 3.0}, {})
    sink.close()
    found = events(tmp_path)
    assert [(each.step, each.value) for each in found.Scalars("train/loss")] == [(1, 0.5), (5, 2.5)]


def test_a_video_is_an_animated_image(tmp_path):
    frames = np.zeros((4, 16, 24, 3), np.uint8)
    frames[np.arange(4), :, np.arange(4)] = 255
    sink = TensorBoardSink(tmp_path)
    sink.write(7, {}, {"eval/episodes": frames})
    sink.close()
    (event,) = events(tmp_path).Images("eval/episodes")
    assert (event.step, event.height, event.width) == (7, 16, 24)
    with Image.open(io.BytesIO(event.encoded_image_string)) as image:
        assert image.format == "GIF" and image.n_frames == 4 and image.size == (24, 16)


def test_a_resumed_run_replaces_what_lay_after_its_checkpoint(tmp_path):
    first = TensorBoardSink(tmp_path)
    for step in (10, 20, 30):
        first.write(step, {"loss": 1.0}, {})
    first.close()
    time.sleep(1.1)  # files are read by name, and names count seconds
    second = TensorBoardSink(tmp_path, resume_step=20)
    second.write(25, {"loss": 2.0}, {})
    second.close()
    assert [(each.step, each.value) for each in events(tmp_path).Scalars("loss")] == [(10, 1.0), (20, 1.0), (25, 2.0)]


def test_configuration_and_advice_are_text(tmp_path):
    sink = TensorBoardSink(tmp_path, config="task: toy_catch\nseed: 3")
    sink.advise(5, ["first", "second"])
    sink.close()
    found = events(tmp_path)
    text = {tag: found.Tensors(tag)[0] for tag in found.Tags()["tensors"]}
    assert b"task: toy_catch" in text["config/text_summary"].tensor_proto.string_val[0]
    assert text["advice/text_summary"].tensor_proto.string_val[0] == b"first\n\nsecond"
    assert text["advice/text_summary"].step == 5
