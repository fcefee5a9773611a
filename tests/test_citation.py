"""CITATION.cff: of this version, and of the papers that the documentation builds on."""

import re
from pathlib import Path

import yaml

import reverie

ROOT = Path(__file__).parent.parent
DOCS = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_the_citation_is_of_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == reverie.__version__
    assert f"## {reverie.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_papers_that_the_documentation_builds_on_are_cited():
    cited = {paper["url"]: paper for paper in yaml.safe_load((ROOT / "CITATION.cff").read_text())["references"]}
    linked = {url for doc in DOCS for url in re.findall(r"https://(?:arxiv|doi)\.org/[\w./-]+", doc.read_text())}
    assert linked == set(cited)
    for url, paper in cited.items():
        assert paper["title"] and all(set(name) == {"family-names", "given-names"} for name in paper["authors"])
        year = int(url.rpartition("/")[2][:2]) + 2000 if "arxiv" in url else paper["year"]
        assert year <= paper["year"] <= year + 1  # an arXiv number begins with the year it is from
