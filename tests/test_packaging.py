"""What is installed is the same everywhere: wheel, container, checkout."""

import re
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import reverie

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
DOCKERFILE = (ROOT / "Dockerfile").read_text()
MAKEFILE = (ROOT / "Makefile").read_text()
CONSTRAINTS = dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "requirements/constraints.txt").read_text(), re.M))


def name_of(requirement: str) -> str:
    return re.match(r"[\w.-]+", requirement)[0].lower().replace("_", "-")


def test_the_container_is_set_up_by_the_command_of_the_checkout():
    (command,) = re.findall(r"^RUN make (\S+)$", DOCKERFILE, re.M)
    assert command == "setup-suites" and re.search(rf"^{command}: \$\(VENV\)/\.suites", MAKEFILE, re.M)
    assert "pip install" not in DOCKERFILE, "what is installed beside the common set-up would differ"
    assert "requirements/constraints.txt" in re.search(r"^PIP := (.*)$", MAKEFILE, re.M)[1]


def test_the_container_is_for_cpu_and_cuda_with_the_python_we_need():
    assert set(re.findall(r"^FROM base AS (\w+)$", DOCKERFILE, re.M)) == {"cpu", "cuda"}
    assert re.search(r"^ARG TORCH=cpu$", DOCKERFILE, re.M) and "FROM ${TORCH}" in DOCKERFILE
    (python,) = re.findall(r"^FROM python:(\d+\.\d+)", DOCKERFILE, re.M)
    wanted = PROJECT["project"]["requires-python"].removeprefix(">=")
    assert tuple(map(int, python.split("."))) >= tuple(map(int, wanted.split(".")))
    assert 'ENTRYPOINT ["reverie"]' in DOCKERFILE and "/reverie/.venv/bin" in DOCKERFILE


def test_the_container_leaves_out_what_the_repository_leaves_out():
    ignored = {line.strip("/") for line in (ROOT / ".dockerignore").read_text().splitlines()}
    assert {".git", ".venv", "logdir", "build", "dist"} <= ignored


def test_every_requirement_has_one_known_version():
    pinned = {name_of(name) for name in CONSTRAINTS}
    project = PROJECT["project"]
    wanted = [
        *project["dependencies"],
        *(each for extra in project["optional-dependencies"].values() for each in extra),
    ]
    assert not {name_of(each) for each in wanted} - pinned - {"reverie"}


def test_the_wheel_holds_every_file_of_the_package():
    package = Path(reverie.__file__).parent
    patterns = PROJECT["tool"]["setuptools"]["package-data"]["reverie"]
    files = [path.relative_to(package).as_posix() for path in package.rglob("*") if path.is_file()]
    others = [name for name in files if not name.endswith(".py") and "__pycache__" not in name]
    assert "tools/page.html" in others
    assert not [name for name in others if not any(fnmatch(name, pattern) for pattern in patterns)]
    folders = {path.parent for path in package.rglob("*.py")}
    assert not [folder for folder in folders if not (folder / "__init__.py").exists()]


def test_one_version_and_what_belongs_to_a_release():
    assert PROJECT["project"]["version"] == reverie.__version__
    assert f"\n## {reverie.__version__}\n" in (ROOT / "CHANGELOG.md").read_text()
    assert f"version: {reverie.__version__}" in (ROOT / "CITATION.cff").read_text()
    assert "MIT License" in (ROOT / "LICENSE").read_text()
