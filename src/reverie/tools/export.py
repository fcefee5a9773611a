"""The acting step of an agent as one file for other programs, with a description of itself inside."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Callable
from dataclasses import asdict
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any

import torch
from gymnasium import spaces

from ..config.errors import UserError, extra
from ..config.whole import write_whole
from ..envs.joint import Joint
from ..log.disk import writing
from .steps import Step

KEY = "reverie"
"""Where the description stands: the key among an ONNX file's metadata, the name of a .pt2's extra file."""
NEEDED = ("onnx", "onnxscript")

LOOP = (
    "Each step takes the newest observation and gives the action. All tensors have a leading batch of any size, a row "
    "for each environment. What comes out as deter, stoch and action goes in as carry_deter, carry_stoch and "
    "carry_action at the next step, where there are such inputs; where is_first is true they are ignored."
)


def check_target(path: Path) -> None:
    """Refuse a file that cannot be written, before anything is loaded."""
    if path.suffix not in WRITERS:
        raise UserError(f"--out {str(path)!r} ends in {path.suffix or 'nothing'}: name a file .onnx or .pt2")
    if path.exists():
        raise UserError(f"{path} exists: give another --out, or remove it first")
    if not path.absolute().parent.is_dir():
        raise UserError(f"--out {path}: there is no folder {path.parent}")
    missing = [name for name in NEEDED if find_spec(name) is None]
    if path.suffix == ".onnx" and missing:
        raise UserError(f"ONNX needs {', '.join(missing)}: {extra('export')}")


def describe(step: Step, action: spaces.Space, facts: dict[str, Any]) -> dict[str, Any]:
    """What someone who has nothing but the file must know, as plain values."""
    return {
        **facts,
        "loop": LOOP,
        "inputs": [asdict(each) for each in step.inputs],
        "outputs": [asdict(each) for each in step.outputs()],
        "action": action_words(action),
    }


def action_words(space: spaces.Space) -> str:
    """What an action means."""
    if isinstance(space, Joint):
        return "side by side: " + "; ".join(f"{key}: {action_words(part)}" for key, part in space.parts.items())
    if isinstance(space, spaces.Discrete):
        return f"one of {int(space.n)} choices, counted from 0"
    if isinstance(space, spaces.MultiDiscrete):
        return f"{len(space.nvec)} choices, counted from 0, below {space.nvec.tolist()}"
    assert isinstance(space, spaces.Box)
    return f"numbers from {space.low.tolist()} to {space.high.tolist()}"


def export(step: Step, description: dict[str, Any], path: Path) -> None:
    """Write a step and its description into a file of the kind its name says."""
    check_target(path)
    examples = step.eval().examples(2)  # a batch of 1 would be taken for the only one there is
    free = {name: {0: torch.export.Dim("batch")} for name in examples}
    with torch.no_grad():
        program = torch.export.export(step, (examples,), dynamic_shapes=(free,))
    content = WRITERS[path.suffix](program, step, description)
    with writing(path, "make room or choose another --out"):
        write_whole(path, lambda file: file.write(content))


def as_pt2(program: torch.export.ExportedProgram, step: Step, description: dict[str, Any]) -> bytes:
    """The bytes of a file for `torch.export.load`."""
    buffer = BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of weights that share memory
        torch.export.save(program, buffer, extra_files={f"{KEY}.json": json.dumps(description, indent=2)})
    return buffer.getvalue()


def as_onnx(program: torch.export.ExportedProgram, step: Step, description: dict[str, Any]) -> bytes:
    """The bytes of an ONNX model."""
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it warns of packages that no step here needs
    inputs, outputs = [each.name for each in step.inputs], [each.name for each in step.outputs()]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's remarks on itself
        found = torch.onnx.export(program, input_names=inputs, output_names=outputs, dynamo=True, verbose=False)
    assert found is not None
    model = found.model_proto
    model.metadata_props.add(key=KEY, value=json.dumps(description, indent=2))
    return model.SerializeToString()


WRITERS: dict[str, Callable[[torch.export.ExportedProgram, Step, dict[str, Any]], bytes]] = {
    ".onnx": as_onnx,
    ".pt2": as_pt2,
}
"""Ending of a file's name -> how its content is made."""


def summary(description: dict[str, Any]) -> str:
    """The description as lines for people."""
    lines = [f"The acting step of {description['agent']} on {description['task']}, step {description['step']:,}", ""]
    for title in ("inputs", "outputs"):
        lines.append(title)
        for each in description[title]:
            shape = "(" + ", ".join(["batch", *map(str, each["shape"])]) + ")"
            lines.append(f"  {each['name']:14} {each['dtype']:8} {shape:20} {each['meaning']}")
    return "\n".join([*lines, "", f"action: {description['action']}"])
