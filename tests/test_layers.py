"""Dependencies point one way: each layer imports only those before it."""

import ast
from pathlib import Path

import pytest

import reverie

ROOT = Path(reverie.__file__).parent
LAYERS = [
    "config",
    "data",
    "envs",
    "nn",
    "losses",
    "world",
    "agents",
    "collect",
    "log",
    "training",
    "tools",
    "actors",
    "build",
    "reopened",
    "follow",
    "api",
    "bench",
    "commands",
    "cli",
]
FILES = sorted(path for path in ROOT.rglob("*.py") if path.parent != ROOT or path.stem in LAYERS)


def imported_layers(path: Path) -> set[str]:
    """The layers a file imports, wherever in it."""
    package = ["reverie", *path.relative_to(ROOT).parts[:-1]]
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            whole = [*base, *(node.module or "").split(".")] if node.module else base
            if whole and whole[0] == "reverie":
                found |= {whole[1]} if len(whole) > 1 else {name.name for name in node.names}
        elif isinstance(node, ast.Import):
            found |= {name.name.split(".")[1] for name in node.names if name.name.startswith("reverie.")}
    return found & set(LAYERS)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_down(path):
    parts = path.relative_to(ROOT).parts
    mine = LAYERS.index(parts[0].removesuffix(".py"))
    assert not {name for name in imported_layers(path) if LAYERS.index(name) > mine}


WORKER_FILES = [path for layer in ("config", "envs") for path in (ROOT / layer).rglob("*.py")] + [
    ROOT / "data" / "rows.py",
    ROOT / "data" / "counters.py",
]


def test_what_environment_workers_load_does_not_import_torch():
    for path in WORKER_FILES:
        assert imported_layers(path) <= {"config", "data", "envs"}
        for node in ast.parse(path.read_text()).body:
            names = [name.name for name in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not [name for name in names if name.split(".")[0] == "torch"], path


def test_devices_are_not_synchronised_where_learning_happens():
    for layer in ("agents", "losses", "nn", "world"):
        for path in (ROOT / layer).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                    assert node.func.attr != "item", f"{path}:{node.lineno}"
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                    assert node.func.id != "print", f"{path}:{node.lineno}"
