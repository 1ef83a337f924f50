"""The page of measured figures, made from the result files: no figure on it is typed."""

from pathlib import Path

from pclc.bench.result import BenchResult
from pclc.files import write_atomically

_INTRODUCTION = """# Performance

Made by `pclc bench page` from the files in `results/bench/`; each section names the command that repeats it. Times
can be compared within a section, whose variants ran on one machine, but not across sections.
"""

_TITLES = {
    "loss": "The loss",
    "train": "Training",
    "accuracy": "Clean accuracy",
    "robustness": "Robust accuracy",
    "passes": "Passes through a network",
    "attack": "Attacks",
    "parity": "Parity with pyautoattack,",
}


def write_page(results: Path, page: Path) -> int:
    """Write `page` from every result under `results`; returns how many there were."""
    files = sorted(results.glob("*.json"))
    if not files:
        raise FileNotFoundError(f"No benchmark results (*.json) in {results}: run `pclc bench loss --save` first.")
    loaded = [(path, BenchResult.load(path)) for path in files]
    loaded.sort(key=lambda item: (list(_TITLES).index(item[1].benchmark), item[0].name))
    titles = [_title(result) for _, result in loaded]
    sections = [_INTRODUCTION]
    for title, (path, result) in zip(titles, loaded, strict=True):
        which = f" ({path.stem})" if titles.count(title) > 1 else ""
        sections.append(f"## {title}{which}\n\nFrom `{path.as_posix()}`.\n\n{result.markdown()}")
    page.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(page, "\n".join(sections).encode())
    return len(files)


def _title(result: BenchResult) -> str:
    subject = " ".join(filter(None, [_TITLES[result.benchmark], result.rows[0].get("data")]))
    return f"{subject}: {result.conditions['device']}"
