"""Every Python block of the README and of the pages that need only our own dependencies runs, in order."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = ["README.md", "docs/data.md", "docs/evaluation.md", "docs/losses.md"]


def blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), flags=re.DOTALL)


@pytest.mark.parametrize("page", PAGES)
def test_blocks_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = blocks(page)
    assert found, f"{page} has no Python block"
    for block in found:
        exec(compile(block, page, "exec"), {})


def test_the_drop_in_of_the_readme_learns() -> None:
    """The ten lines are PC-LC training: the loss they end with is lower than the one they begin with."""
    names: dict[str, object] = {}
    block = blocks("README.md")[0]
    body = block.replace("    loss.backward()", "    losses.append(float(loss.detach()))\n    loss.backward()")
    assert body != block
    exec("losses = []\n" + body, names)
    losses = names["losses"]
    assert isinstance(losses, list)
    assert len([line for line in block.splitlines() if line]) <= 10
    assert losses[-1] < losses[0]


def test_links_of_the_readme_lead_somewhere() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        assert (ROOT / target).exists(), target


def test_the_two_commands() -> None:
    readme, makefile = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "Makefile"))
    for command in ("demo", "test"):
        assert f"make {command}" in readme
        assert re.search(rf"^{command}:", makefile, flags=re.MULTILINE)
