"""What a run sets about the CPU and its memory."""

import gc
import weakref

from reverie.training.threads import BORN, settled


class Knot:
    """Garbage that only a search finds."""

    def __init__(self):
        self.itself = self


def test_what_was_there_before_is_left_alone_and_garbage_since_is_found():
    assert gc.get_freeze_count() < BORN
    before = Knot()
    old = weakref.ref(before)
    with settled():
        assert gc.get_freeze_count() > 10_000
        after = Knot()
        young = weakref.ref(after)
        del before, after
        gc.collect()
        assert young() is None and old() is not None
    assert not gc.get_freeze_count()
    gc.collect()
    assert old() is None


def test_what_others_have_set_apart_stays_so():
    gc.freeze()
    try:
        with settled():
            pass
        assert gc.get_freeze_count()
    finally:
        gc.unfreeze()
