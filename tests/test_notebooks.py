"""The notebooks run from the first cell to the last, and are kept without results."""

from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "docs" / "notebooks").glob("*.ipynb"))
nbclient = pytest.importorskip("nbclient", reason="needs nbclient and ipykernel")
nbformat = pytest.importorskip("nbformat", reason="needs nbclient and ipykernel")


def test_both_are_here() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["audit-your-model", "replace-your-loss"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path: Path, tmp_path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.outputs or cell.execution_count for cell in cells)
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute(cwd=str(tmp_path))
    text = "".join(output.get("text", "") for cell in cells for output in cell.outputs)
    if path.stem == "audit-your-model":
        assert "REFUTED. The claim is overstated" in text
        assert "witnesses are verified" in text
        assert "not refuted - " in text
    else:
        assert "clean accuracy: cross-entropy 0.9" in text
    assert any("image/png" in output.get("data", {}) for cell in cells for output in cell.outputs)
