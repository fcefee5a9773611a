"""CUDA source compiled and started from Python, with the libraries that torch brings along and no compiler installed.

`torch.cuda._compile_kernel` is not used: it wants CUDA's headers to be installed, cannot hand over a struct, and its
kernels are not launched cooperatively.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import importlib.util
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch

POINTER, INT, UINT, SIZE, TEXT = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint, ctypes.c_size_t, ctypes.c_char_p
MAX_DYNAMIC_SHARED = 8
"""CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES"""
MOST_SHARED = 97
"""CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"""


def folders() -> Iterator[Path]:
    """Where libraries may lie: in packages of NVIDIA beside torch, or in a CUDA toolkit."""
    spec = importlib.util.find_spec("nvidia")
    for place in list(spec.submodule_search_locations or []) if spec else []:
        yield from sorted(Path(place).glob("*/lib"))
    for home in (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"):
        if home:
            yield from (Path(home) / "lib64", Path(home) / "lib")


def load_nvrtc() -> ctypes.CDLL:
    """The compiler library of torch's CUDA version."""
    major = (torch.version.cuda or "13").split(".")[0]
    name = f"libnvrtc.so.{major}"
    for folder in folders():
        if (folder / name).exists():
            for builtins in sorted(folder.glob(f"libnvrtc-builtins.so.{major}*")):
                # found by its name once it is loaded; from its own folder NVRTC does not find it everywhere
                ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)
            return ctypes.CDLL(str(folder / name))
    return ctypes.CDLL(name)


def texts(words: list[str]) -> ctypes.Array[ctypes.c_char_p]:
    """Words as C takes them."""
    return (TEXT * len(words))(*(word.encode() for word in words))


def kept(main: Path, options: list[str]) -> bytes:
    """What `compiled` gives, from torch's cache on disk if it has been compiled before."""
    from torch._inductor.runtime.cache_dir_utils import cache_dir  # torch's compiler, slow to load

    sources = [path.read_text() for path in (main, *sorted(main.parent.glob("*.cuh")))]
    about = repr((torch.__version__, torch.version.cuda, options, sources))
    place = Path(cache_dir()) / "reverie" / f"{hashlib.sha256(about.encode()).hexdigest()}.cubin"
    if place.exists():
        return place.read_bytes()
    code = compiled(main, options)
    with contextlib.suppress(OSError):  # then it is compiled again the next time
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=place.parent, delete=False) as fresh:
            fresh.write(code)
        os.replace(fresh.name, place)
    return code


def compiled(main: Path, options: list[str]) -> bytes:
    """Machine code of a source file and the headers beside it."""
    lib = load_nvrtc()
    headers = {path.name: path.read_text() for path in sorted(main.parent.glob("*.cuh"))}
    program, size = POINTER(), SIZE()
    source, name = TEXT(main.read_text().encode()), TEXT(main.name.encode())
    beside = (INT(len(headers)), texts(list(headers.values())), texts(list(headers)))
    result = lib.nvrtcCreateProgram(ctypes.byref(program), source, name, *beside)
    if result:
        raise RuntimeError(f"NVRTC does not start: error {result}")
    try:
        result = lib.nvrtcCompileProgram(program, INT(len(options)), texts(options))
        if result:
            lib.nvrtcGetProgramLogSize(program, ctypes.byref(size))
            log = ctypes.create_string_buffer(size.value)
            lib.nvrtcGetProgramLog(program, log)
            raise RuntimeError(f"NVRTC error {result}: {log.value.decode().strip()}")
        lib.nvrtcGetCUBINSize(program, ctypes.byref(size))
        code = ctypes.create_string_buffer(size.value)
        lib.nvrtcGetCUBIN(program, code)
    finally:
        lib.nvrtcDestroyProgram(ctypes.byref(program))
    return code.raw


class Module:
    """Machine code on the current device of torch."""

    def __init__(self, code: bytes) -> None:
        torch.cuda.current_stream().synchronize()  # makes torch's context current
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.code = code  # kept: the driver may read it late
        self.handle = POINTER()
        self._call("cuModuleLoadData", ctypes.byref(self.handle), TEXT(code))

    def room(self) -> int:
        """Bytes of shared memory that a thread block can have."""
        device, count = INT(), INT()
        self._call("cuCtxGetDevice", ctypes.byref(device))
        self._call("cuDeviceGetAttribute", ctypes.byref(count), INT(MOST_SHARED), device)
        return count.value

    def function(self, name: str, shared: int) -> ctypes.c_void_p:
        """A kernel by its name, with that much shared memory allowed."""
        function = POINTER()
        self._call("cuModuleGetFunction", ctypes.byref(function), self.handle, TEXT(name.encode()))
        self._call("cuFuncSetAttribute", function, INT(MAX_DYNAMIC_SHARED), INT(shared))
        return function

    def resident(self, function: ctypes.c_void_p, threads: int, shared: int) -> int:
        """How many thread blocks of a kernel the device holds at once."""
        count = INT()
        self._call(
            "cuOccupancyMaxActiveBlocksPerMultiprocessor", ctypes.byref(count), function, INT(threads), SIZE(shared)
        )
        return count.value * torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count

    def launch(
        self, function: ctypes.c_void_p, blocks: int, threads: int, shared: int, argument: ctypes.Array,
        together: bool = True,
    ) -> None:  # fmt: skip
        """Start a kernel that takes one struct on torch's current stream, cooperatively: all blocks at once or none.

        Where they need not run `together`, there may be more blocks than the GPU holds.
        """
        stream = POINTER(torch.cuda.current_stream().cuda_stream)
        pointers = (POINTER * 1)(ctypes.addressof(argument))
        grid, block = (UINT(blocks), UINT(1), UINT(1)), (UINT(threads), UINT(1), UINT(1))
        given = (function, *grid, *block, UINT(shared), stream, pointers)
        if together:
            self._call("cuLaunchCooperativeKernel", *given)
        else:
            self._call("cuLaunchKernel", *given, POINTER())

    def _call(self, name: str, *arguments: object) -> None:
        result = getattr(self.cuda, name)(*arguments)
        if result:
            text = TEXT()
            self.cuda.cuGetErrorString(INT(result), ctypes.byref(text))
            raise RuntimeError(f"{name}: {(text.value or b'unknown error').decode()} ({result})")
