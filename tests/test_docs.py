"""What the documentation says holds: programs run, commands parse, names exist, links lead somewhere."""

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import yaml

import reverie
from reverie.actors import DREAMERS
from reverie.cli import COMMANDS
from reverie.commands.learning import resolve
from reverie.config import names, store
from reverie.config.arguments import (
    BenchArguments,
    DreamArguments,
    EnvsArguments,
    EvalArguments,
    ExportArguments,
    PlayArguments,
    PlotArguments,
    TrainArguments,
    parse,
    parse_bench,
    parse_envs,
    parse_plot,
    parse_sweep,
)
from reverie.config.errors import UserError
from reverie.config.options import options
from reverie.config.presets import PRESETS, stacked
from reverie.config.resolution import resolved
from reverie.config.schema import Config
from reverie.config.sweeps import CHOSEN, SweepArguments
from reverie.envs import registry
from reverie.envs.suites import gym
from reverie.tools import plan
from reverie.training.lock import LOCK

ROOT = Path(__file__).parent.parent
PACKAGE = Path(reverie.__file__).parent
DOCS = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "examples/README.md"]
KINDS = {
    "eval": EvalArguments,
    "play": PlayArguments,
    "dream": DreamArguments,
    "export": ExportArguments,
    "plot": PlotArguments,
    "sweep": SweepArguments,
    "envs": EnvsArguments,
    "bench": BenchArguments,
}
FOREIGN = {"--no-deps", "--fast"}
"""Options of other programs that the text mentions by themselves."""
THEIRS = {"gym_MyWorld-v0", "my_module:MyEnv", "minecraft_MineRLTreechop-v0"}
"""Tasks that stand for what a reader has and the tests have not."""

each_doc = pytest.mark.parametrize("doc", DOCS, ids=lambda path: str(path.relative_to(ROOT)))


class Block(NamedTuple):
    """A fenced block: its language, its text, and the name of the file it stands for, if its first line is one."""

    language: str
    text: str

    @property
    def file(self) -> str:
        """The name in a first line such as `# corridor.py`."""
        found = re.match(r"# (\w+\.(?:py|yaml))\n", self.text)
        return found[1] if found else ""


def blocks(doc: Path) -> list[Block]:
    """All fenced blocks of a page."""
    return [Block(*found) for found in re.findall(r"^```(\w*)\n(.*?)^```$", doc.read_text(), re.MULTILINE | re.DOTALL)]


def prose(doc: Path) -> str:
    """A page without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", doc.read_text(), flags=re.MULTILINE | re.DOTALL)


def spans(doc: Path) -> list[str]:
    """What stands between single backticks."""
    return re.findall(r"`([^`\n]+)`", prose(doc))


def commands(doc: Path, program: str) -> Iterator[list[str]]:
    """The words of each command of that program, in bash blocks and in the text."""
    lines = [line for block in blocks(doc) if block.language == "bash" for line in block.text.splitlines()]
    for line in [*lines, *spans(doc)]:
        if line.startswith(f"{program} "):
            yield shlex.split(line, comments=True)[1:]


def saved_files(doc: Path, folder: Path) -> None:
    """Write the files that a page shows, and the examples beside them, where its commands look for them."""
    (folder / "examples").symlink_to(ROOT / "examples")
    for block in blocks(doc):
        if block.file:
            (folder / block.file).write_text(block.text)


def check_task(task: str) -> None:
    """A task that a page names can be made; one of the reader's own is at least of the right form."""
    if task in THEIRS:
        return
    if ":" in task:
        with registry.make_env(task, Config().env) as env:
            env.reset(seed=0)
            assert len(env.step(np.int64(0))) == 5
        return
    suite, name = registry.find(task)
    if suite.name == "gym":
        gym.registered(name)


def check_sweep(words: list[str]) -> None:
    """A sweep that a page names could start."""
    arguments, given, values = parse_sweep(words)
    if arguments.resume:
        assert set(given) <= set(CHOSEN) and set(values) == {"logdir"}
    else:
        config = resolved(arguments.configs, values)
        check_task(config.task)
        assert plan.new(arguments, config).space


@pytest.fixture
def page_folder(doc, tmp_path, monkeypatch):
    """A folder with the files of a page, as the current one; modules in it are forgotten afterwards."""
    saved_files(doc, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(tmp_path) in (getattr(sys.modules[name], "__file__", None) or ""):
            del sys.modules[name]


@each_doc
def test_programs_run(doc, page_folder, monkeypatch):
    small = reverie.configure

    def configure(*presets: str, **given):
        return small(*presets, "debug", **{"run__threads": 1, **given})

    monkeypatch.setattr(reverie, "configure", configure)
    namespace = {"__name__": "page"}
    for number, block in enumerate(blocks(doc)):
        if block.language == "python":
            exec(compile(block.text, f"{doc.name}, block {number}", "exec"), namespace)


@each_doc
def test_commands_parse(doc, page_folder):
    for words in commands(doc, "reverie"):
        command, rest = words[0], words[1:]
        assert command in COMMANDS, words
        if "--help" in rest or (command == "envs" and rest == ["--check"]) or words in (["bench"], ["plot"], ["sweep"]):
            continue
        if command == "bench":
            _, arguments, values = parse_bench(rest)
            check_task(resolved(arguments.configs, values).task)
            continue
        if command == "plot":
            assert parse_plot(rest).logdir
            continue
        if command == "sweep":
            check_sweep(rest)
            continue
        if command not in ("train", "launch"):
            arguments = parse_envs(rest)[0] if command == "envs" else parse(rest, KINDS[command])
            check_task(getattr(arguments, "check", "") or "toy_catch")
            stacked(getattr(arguments, "configs", ()))
            continue
        if "--resume" in rest:
            folder = Path(rest[rest.index("--logdir") + 1])
            folder.mkdir(parents=True, exist_ok=True)
            store.save(Config(), folder)
            config, resumed = resolve(rest)
            assert resumed and not store.differences(Config(), config), words
        else:
            check_task(resolve(rest)[0].task)


def test_commands_and_programs_are_found():
    readme = ROOT / "README.md"
    assert ["train"] in list(commands(readme, "reverie"))
    assert ["play", "--logdir", "logdir/mario", "--episodes", "5", "--save-gif"] in list(commands(readme, "reverie"))
    assert [words[0] for words in commands(readme, "make")][:2] == ["train", "test"]
    assert [block.file for block in blocks(readme) if block.language == "python"] == ["", "corridor.py"]


@each_doc
def test_targets_of_make_exist(doc):
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for target, *rest in commands(doc, "make"):
        assert target in targets
        for word in rest:
            name, _, arguments = word.partition("=")
            assert name == "ARGS"
            check_task(resolve(arguments.split())[0].task)


@each_doc
def test_names_of_options_exist(doc):
    known = set(options()) | set(names.SHORT) | set(names.meanings()) | {names.ON_POLICY}
    for kind in (TrainArguments, *KINDS.values()):
        known |= set(options(kind))
    known |= {name.rpartition(".")[0] for name in options()} | {LOCK}
    for span in spans(doc):
        if span.startswith("--"):
            for word in re.findall(r"--[a-z][\w.-]*", span):
                assert word in FOREIGN or word.strip("-.").replace("-", "_") in known, span
        elif re.fullmatch(
            r"(agent|run|env|envs|ppo|world|behavior|explore|optim|replay|log|collect|store)\.[a-z_.]+", span
        ):
            assert span in known, span


@each_doc
def test_presets_in_files_work(doc, page_folder):
    for block in blocks(doc):
        if block.language == "yaml" and block.file and doc.name != "sweeps.md":  # those are no presets
            check_task(stacked([block.file]).task)


@each_doc
def test_files_that_are_named_exist(doc):
    for span in spans(doc):
        if re.fullmatch(r"[\w./-]*/[\w.-]+\.(py|md|txt|yaml)", span) or re.fullmatch(r"\w+\.py", span):
            shown = any(block.file == span for block in blocks(doc))
            assert shown or any((place / span).exists() for place in (ROOT, PACKAGE)), span


@each_doc
def test_links_lead_somewhere(doc):
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(doc)):
        if target.startswith(("https://", "http://")):
            continue
        place, _, heading = target.partition("#")
        path = (doc.parent / place).resolve() if place else doc
        assert path.exists(), f"{doc.name} links to {target}"
        if heading:
            titles = re.findall(r"^#+ (.+)$", prose(path), re.MULTILINE)
            assert heading in {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles}, target


def test_every_preset_and_suite_is_in_the_documentation():
    text = "".join(path.read_text() for path in DOCS)
    assert not [name for name in PRESETS if not re.search(rf"\b{name}\b", text)]
    environments = (ROOT / "docs/environments.md").read_text()
    assert not [name for name in registry.SUITES if f"\n## {name}\n" not in environments]


def test_every_folder_is_in_the_map_of_the_tree():
    tree = next(block.text for block in blocks(ROOT / "README.md") if block.text.startswith("src/reverie/"))
    folders = {path.name for path in PACKAGE.iterdir() if path.is_dir() and not path.name.startswith("__")}
    assert folders == set(re.findall(r"^  (\w+)/", tree, re.MULTILINE))


def test_metrics_that_are_named_are_written(tmp_path):
    written = set()
    runs = [(("defaults",), "imagined"), (("dreamer_v3", "plan2explore"), "imagined")]
    for number, (presets, policy) in enumerate([*runs, *((("dreamer_v3",), policy) for policy in DREAMERS)]):
        folder = tmp_path / str(number)
        small = {"task": "toy_catch", "run__steps": 300, "ppo__features": 16, "agent__policy": policy}
        reverie.train(reverie.configure(*presets, "debug", logdir=str(folder), **small), quiet=True)
        for line in (folder / "metrics.jsonl").read_text().splitlines():
            written |= set(yaml.safe_load(line))
    for doc in DOCS:
        named = {span for span in spans(doc) if re.fullmatch(r"(train|world|explore|eval|episode|time)/[a-z_]+", span)}
        assert named - {"world/dream"} <= written, doc.name


@pytest.mark.parametrize("words", [["--configs", "mario_pop"], ["--ppo.lerning", "1"], ["--task", "mario_9-9"]])
def test_these_checks_notice_wrong_names(words):
    with pytest.raises(UserError):
        check_task(resolve(words)[0].task)


def test_troubles_of_ppo_on_a_world_model_are_explained():
    text = (ROOT / "docs/troubleshooting.md").read_text()
    for metric in ("ppo_skipped", "ratio_clamped", "output_clamped", "logp_reconstructed"):
        assert f"| `train/{metric}` |" in text
