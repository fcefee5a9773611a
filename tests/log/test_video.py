import io
import stat
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image, ImageSequence

from reverie.config.errors import UserError
from reverie.log.video import (
    Clip,
    caption,
    downscale,
    encode_gif,
    gif_delays,
    overlay,
    reel,
    rgb,
    side_by_side,
    upscale,
    write_gif,
)


def moving_dot(length, side=16, colour=(255, 40, 0)):
    frames = np.zeros((length, side, side, 3), np.uint8)
    for t in range(length):
        frames[t, 3, t % side] = colour
    return frames


def decoded(data):
    with Image.open(io.BytesIO(data)) as image:
        pairs = [(np.array(frame.convert("RGB")), frame.info["duration"]) for frame in ImageSequence.Iterator(image)]
        return np.stack([frame for frame, _ in pairs]), [delay for _, delay in pairs], image.info.get("loop")


@pytest.mark.parametrize("fps", [20, 24, 25, 30, 33, 40, 50])
def test_a_gif_lasts_as_long_as_the_video(fps):
    _, delays, loop = decoded(encode_gif(moving_dot(60), fps))
    assert sum(delays) == round(6000 / fps) * 10
    assert max(delays) - min(delays) <= 10
    assert loop == 0


def test_a_gif_shows_the_frames_it_was_given():
    frames = moving_dot(10)
    shown, _, _ = decoded(encode_gif(frames, 20))
    np.testing.assert_array_equal(shown, frames)


def test_many_colours_are_met_closely():
    ramp = np.linspace(0, 255, 64).astype(np.uint8)
    picture = np.stack(np.broadcast_arrays(ramp[:, None], ramp[None, :], np.uint8(128)), axis=-1)
    shown, _, _ = decoded(encode_gif(np.stack([picture, picture[::-1]]), 20))
    assert np.abs(shown[0].astype(int) - picture).mean() < 8


def test_frames_that_stand_still_keep_their_time():
    frames = np.repeat(moving_dot(3), 5, axis=0)
    _, delays, _ = decoded(encode_gif(frames, 20))
    assert sum(delays) == 15 * 50


def test_faster_than_viewers_can_play_drops_frames_not_speed():
    _, delays, _ = decoded(encode_gif(moving_dot(120), 120))
    assert min(delays) >= 20
    assert sum(delays) == 1000


def test_delays_share_out_the_remainder():
    assert gif_delays(6, 30) == [3, 4, 3, 3, 4, 3]
    assert sum(gif_delays(300, 30)) == 1000


def test_a_gif_is_written_whole_into_a_new_folder(tmp_path):
    path = tmp_path / "videos" / "a.gif"
    write_gif(path, moving_dot(5), 20)
    write_gif(path, moving_dot(7), 20)
    frames, _, _ = decoded(path.read_bytes())
    assert len(frames) == 7
    assert [each.name for each in path.parent.iterdir()] == ["a.gif"]


WRITER = "from pathlib import Path; from reverie.log.video import write_bytes\n" + (
    "for _ in range(200): write_bytes(Path('a.gif'), b'0' * 100_000)"
)


def test_two_processes_may_write_one_file(tmp_path):
    pair = [subprocess.Popen([sys.executable, "-c", WRITER], cwd=tmp_path) for _ in range(2)]
    try:
        assert [process.wait(timeout=100) for process in pair] == [0, 0]
    finally:
        for process in pair:
            process.kill()
    assert [each.name for each in tmp_path.iterdir()] == ["a.gif"]


def test_a_folder_that_cannot_be_made_is_told_in_one_line(tmp_path):
    (tmp_path / "videos").write_text("a file")
    with pytest.raises(UserError, match=r"cannot write .*a\.gif") as error:
        write_gif(tmp_path / "videos" / "a.gif", moving_dot(2), 20)
    assert "\n" not in str(error.value)


def test_a_written_gif_has_usual_permissions(tmp_path):
    (tmp_path / "usual").write_text("")
    write_gif(tmp_path / "a.gif", moving_dot(2), 20)
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("usual", "a.gif")]
    assert modes[0] == modes[1]


def test_side_by_side_holds_the_last_frame_of_shorter_clips():
    short, long = np.full((2, 8, 4, 3), 10, np.uint8), np.full((5, 8, 6, 3), 200, np.uint8)
    short[1] = 99
    shown = side_by_side([short, long])
    gap = shown.shape[2] - 4 - 6
    assert shown.shape[:2] == (5, 8) and 1 <= gap <= 3
    assert (shown[0, :, :4] == 10).all()
    assert (shown[1:, :, :4] == 99).all()
    assert (shown[:, :, 4 + gap :] == 200).all()


def test_side_by_side_shows_three_at_most_and_fills_below_lower_clips():
    clips = [np.full((1, 8, 8, 3), 50, np.uint8)] * 5
    assert side_by_side(clips).shape[2] == 8 * 3 + 2 * 2
    shown = side_by_side([clips[0], np.full((1, 4, 8, 1), 70, np.uint8)])
    assert (shown[0, :4, -8:] == 70).all() and (shown[0, 4:, -8:] == shown[0, 0, 8]).all()


def test_no_clips_are_an_error():
    with pytest.raises(ValueError, match="no clips"):
        side_by_side([])


def test_upscale_repeats_pixels():
    frames = np.arange(8, dtype=np.uint8).reshape(1, 2, 4, 1)
    large = upscale(frames, 5)
    assert large.shape == (1, 6, 12, 1)
    np.testing.assert_array_equal(large[:, ::3, ::3], frames)
    np.testing.assert_array_equal(large[:, 2::3, 2::3], frames)
    assert upscale(frames, 2) is frames


def test_downscale_averages_pixels():
    frames = np.zeros((2, 4, 6, 3), np.uint8)
    frames[:, :2, :2] = 100
    frames[:, 0, 4] = 200
    small = downscale(frames, 3)
    assert small.shape == (2, 2, 3, 3)
    assert small[1, :, :, 0].tolist() == [[100, 0, 50], [0, 0, 0]]
    assert downscale(frames, 6) is frames


@pytest.mark.parametrize(("channels", "kept"), [(1, [0, 0, 0]), (3, [0, 1, 2]), (4, [3, 3, 3]), (12, [9, 10, 11])])
def test_of_stacked_images_the_newest_is_shown(channels, kept):
    frames = np.broadcast_to(np.arange(channels, dtype=np.uint8), (2, 4, 4, channels))
    assert rgb(frames)[0, 0, 0].tolist() == kept


def test_wrong_frames_are_refused():
    with pytest.raises(ValueError, match="uint8"):
        rgb(np.zeros((2, 4, 4, 3)))


def test_overlay_writes_on_a_copy():
    frames = np.full((3, 32, 64, 3), 100, np.uint8)
    drawn = overlay(frames, "step 1")
    assert (frames == 100).all() and (drawn[:, 20:] == 100).all()
    assert (drawn[1] > 200).any() and (drawn[1] < 20).any()
    assert (drawn != overlay(frames, "step 2")).any()


def test_caption_leaves_the_picture_alone():
    frames = moving_dot(4, side=64)
    shown = caption(frames, "return 12.5")
    np.testing.assert_array_equal(shown[:, -64:], frames)
    assert (shown[:, :-64] > 200).any()


def test_reel_is_large_enough_and_says_the_returns():
    clips = [moving_dot(5, side=32), moving_dot(3, side=32)]
    shown = reel(clips, [1.0, 2.0])
    assert shown.shape[0] == 5 and shown.shape[1] > 80 and shown.shape[2] >= 160
    assert reel([np.zeros((2, 100, 150, 3), np.uint8)], [0.0]).shape[2] == 150
    assert (shown != reel(clips, [1.0, 3.0])).any()


def test_a_clip_is_encoded_once_and_knows_its_speed():
    clip = Clip.of(moving_dot(4), fps=25)
    assert Clip.of(clip) is clip
    assert clip.gif() is clip.gif()
    assert decoded(clip.gif())[1] == [40] * 4
