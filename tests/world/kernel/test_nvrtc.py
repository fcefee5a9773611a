"""Machine code is kept for later, as long as nothing has changed that it is made of."""

from reverie.world.kernel import nvrtc


def test_code_is_compiled_once_for_each_source_and_options(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    made = []
    monkeypatch.setattr(nvrtc, "compiled", lambda main, options: made.append(options) or f"{options}".encode())
    source, header = tmp_path / "scan.cu", tmp_path / "gpu.cuh"
    source.write_text("kernel")
    header.write_text("types")
    for options in (["-a"], ["-a"], ["-b"]):
        assert nvrtc.kept(source, options) == f"{options}".encode()
    assert made == [["-a"], ["-b"]]
    header.write_text("other types")
    nvrtc.kept(source, ["-a"])
    assert len(made) == 3


def test_a_cache_that_cannot_be_written_is_no_hindrance(monkeypatch, tmp_path):
    source, place = tmp_path / "scan.cu", tmp_path / "cache"
    source.write_text("kernel")
    place.mkdir()
    (place / "reverie").write_text("a file where a folder should be")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(place))
    monkeypatch.setattr(nvrtc, "compiled", lambda main, options: b"code")
    assert nvrtc.kept(source, []) == nvrtc.kept(source, []) == b"code"
