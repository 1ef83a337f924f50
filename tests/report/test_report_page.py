"""The page as text: what it says, what it escapes, how large it is, and what it does where something is missing."""

import base64
import io
import json
import re
import shlex
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from result_files import audited, evaluation, inspected, measured, outcome, trained
from typer.testing import CliRunner

from pclc.cli.app import app
from pclc.evaluation import save_evaluation
from pclc.hashes import model_hash
from pclc.models import create_model, load_model, save_model
from pclc.report import load_runs, render_report, write_report
from pclc.report.charts import Dot, Line, line_chart, swatch, ticks
from pclc.report.png import data_uri
from pclc.report.published import beside_published
from pclc.report.sections import conditions, summary
from pclc.report.series import WORST, headline_budget, label_of, plain_pgd, series_of
from pclc.report.table import NONE
from pclc.training import paper_config

HOSTILE = "<script>alert(1)</script>&\"'"
ENDS_A_SCRIPT = "</script><img src=x onerror=alert(1)>"


class Tags(HTMLParser):
    """Which tags a page has, with their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attributes)))


def command(*words: str) -> str:
    """What the command prints."""
    return CliRunner().invoke(app, list(words), catch_exceptions=False).output


def words_of(command: str) -> list[str]:
    """A command in the page as a shell reads it."""
    return shlex.split(unescape(command).replace("\\\n", ""))


def test_names_are_escaped_wherever_they_stand(tmp_path: Path) -> None:
    folder = trained(tmp_path / "<img src=x onerror=alert(2)>")
    name = ENDS_A_SCRIPT + HOSTILE
    attacked = evaluation(20, name=name)
    foreign = outcome("fgsm(eps=0.1)", attacked.clean, attack=name, stop=None)
    save_evaluation(type(attacked)(attacked.clean, attacked.index, (foreign,), attacked.conditions, (name,)), folder)
    inspected(audited(folder, text=name), 40, classes=(name, *"123456789"))
    plain = trained(tmp_path / "plain")
    save_evaluation(type(attacked)(attacked.clean, attacked.index, (foreign,), attacked.conditions), plain)
    inspected(audited(plain, text="a reason"), 40)
    pages = [
        render_report(load_runs([path]), title=title, notes=[title])
        for path, title in ((folder, name), (plain, "plain"))
    ]
    hostile, harmless = (Tags(page).found for page in pages)
    assert [tag for tag, _ in hostile if tag == "script"] == ["script"]
    for tag, attributes in hostile:
        assert not any(key.startswith("on") for key in attributes)
        assert tag != "img" or str(attributes["src"]).startswith("data:image/png;base64,")
    assert {tag for tag, _ in hostile} == {tag for tag, _ in harmless}
    assert HOSTILE not in pages[0]


def test_only_our_script_may_run(tmp_path: Path) -> None:
    page = render_report(load_runs([measured(tmp_path / "x", 20)]))
    policy = next(a["content"] for tag, a in Tags(page).found if tag == "meta" and a.get("http-equiv"))
    assert policy is not None
    assert "default-src 'none'" in policy
    assert "unsafe-inline" not in policy.split("script-src")[1]
    assert not re.search(r'(?:src|href)="(?!data:|#)', page)
    assert "http" not in re.sub(r"http-equiv", "", page)


def test_the_same_files_give_the_same_page(tmp_path: Path) -> None:
    runs = load_runs([measured(trained(tmp_path / "x"), 30)])
    first, second = (write_report(runs, tmp_path / name).read_text() for name in ("a.html", "b.html"))
    assert first.replace("a.html", "b.html") == second


def test_ten_runs_of_ten_thousand_examples_stay_small(tmp_path: Path) -> None:
    inspection = (inspected(tmp_path / "inspection", 600) / "inspection.json").read_text()
    flags = (measured(tmp_path / "evaluation", 10_000) / "evaluation.json").read_text()
    runs = [audited(trained(tmp_path / f"run-{i}")) for i in range(10)]
    for run in runs:
        (run / "inspection.json").write_text(inspection)
        (run / "evaluation.json").write_text(flags)
    page = write_report(load_runs(runs), tmp_path / "report.html")
    assert page.stat().st_size < 15e6
    # Browsers take their time for elements rather than for bytes.
    assert len(Tags(page.read_text()).found) < 60_000


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    only_trained = render_report(load_runs([trained(tmp_path / "trained")]))
    assert "Not evaluated yet." in only_trained
    (trained(tmp_path / "killed") / "training.json").unlink()
    killed = render_report(load_runs([tmp_path / "killed"]))
    assert "Its training is not finished." in killed
    assert "Not evaluated" not in killed
    looked_at = render_report(load_runs([inspected(tmp_path / "looked-at", 40)]))
    assert "not attacked" not in looked_at
    assert "Not audited: trained." in only_trained
    assert 'id="accuracy"' not in only_trained
    assert 'href="#accuracy"' not in only_trained
    assert "Without images, confusion and t-SNE: trained." in only_trained
    only_measured = render_report(load_runs([measured(tmp_path / "measured", 30)]))
    assert 'id="accuracy"' in only_measured
    assert 'id="training"' not in only_measured
    without_attacks = render_report(load_runs([measured(tmp_path / "clean", 30, attacks=())]))
    assert "no attack at the budget of this summary" in without_attacks


def test_charts_are_of_what_can_be_drawn(tmp_path: Path) -> None:
    """The curves of other runs stay where one diverged, and a chart without a point is none."""
    good, diverged = trained(tmp_path / "good"), trained(tmp_path / "diverged")
    (diverged / "metrics.jsonl").write_text('{"epoch": 1, "criterion": "ce", "lr": 1, "loss": NaN, "accuracy": 0.1}\n')
    both, alone = render_report(load_runs([diverged, good])), render_report(load_runs([diverged]))
    charts = "".join(re.findall(r"<svg.*?</svg>", both, flags=re.DOTALL))
    assert "nan" not in charts
    assert charts.count('data-text="good') == 2 * 100
    assert charts.count('data-text="diverged') == alone.count('class="plot"') == 1
    nobody_new = inspected(tmp_path / "nobody", 3)
    content = json.loads((nobody_new / "inspection.json").read_text())
    content["ranks"] |= {"new": [0, 0], "counts": [[0] * 4] * 2}
    (nobody_new / "inspection.json").write_text(json.dumps(content))
    page = render_report(load_runs([nobody_new]))
    assert "Ranks of nobody in %" in page
    assert 'class="plot"' not in page  # the script would stop at one without a chart


def test_three_images_have_no_place_in_the_plane(tmp_path: Path) -> None:
    """They are too few for t-SNE, and everything else is shown."""
    few, enough = (load_runs([inspected(tmp_path / str(n), n)])[0].inspection for n in (3, 4))
    assert few is not None
    assert few["embedding"] is None
    assert enough is not None
    assert len(enough["embedding"]["points"]) >= 4


def test_each_result_has_conditions_of_its_own(tmp_path: Path) -> None:
    """A model is often trained in one place and attacked in another, and some folders hold an audit alone."""
    both = measured(audited(trained(tmp_path / "both"), "digits, test"), 30)
    content = json.loads((both / "audit.json").read_text())
    content["conditions"] |= {"device": "NVIDIA H200", "precision": "tf32", "versions": {"torch": "9.9"}}
    (tmp_path / "alone").mkdir()
    for folder in (both, tmp_path / "alone"):
        (folder / "audit.json").write_text(json.dumps(content))
    runs = load_runs([tmp_path / "alone", both])
    rows = {row[0].text: [cell.text for cell in row[1:]] for row in conditions(runs)["table"].rows}
    assert rows["audit: versions"] == ["torch 9.9"] * 2
    assert rows["audit: device"] == ["NVIDIA H200, tf32"] * 2
    assert rows["audit: hash of the model"] == ["m" * 16] * 2
    assert rows["evaluation: versions"] == [NONE, "pclc 0.1.0, torch 2.13.0, python 3.11"]
    assert f"torch {torch.__version__}" in rows["training: versions"][1]
    assert list(rows)[:3] == ["folder", "network", "training: data"]
    assert "1 run on digits: " in render_report(runs[:1])


def test_a_budget_is_the_same_up_to_rounding(tmp_path: Path) -> None:
    """As grids of eps come out of arithmetic: 0.1 + 0.2 is not 0.3."""
    run = audited(measured(tmp_path / "x", 50, attacks=(f"pgd(eps={0.1 + 0.2}, alpha=0.01, steps=40)",)), eps=0.3)
    of_audit = render_report(load_runs([run]))
    assert "accuracy in % at linf eps 0.3" in of_audit.lower()
    assert "worst case of all attacks" in of_audit
    typed = CliRunner().invoke(app, ["report", str(run), "--eps", "0.3"])
    assert typed.exit_code == 0, typed.output


def test_the_summary_is_about_the_budget_that_is_asked_for(tmp_path: Path) -> None:
    runs = load_runs([measured(tmp_path / "x", 50)])
    assert headline_budget([runs[0].evaluation]) == ("Linf", 0.2)  # type: ignore[list-item]
    assert "Accuracy in % at Linf eps 0.2" in render_report(runs)
    assert "Accuracy in % at Linf eps 0.3" in render_report(runs, budget=("Linf", 0.3))
    audited_at = load_runs([audited(tmp_path / "x", eps=0.1)])
    assert "Accuracy in % at Linf eps 0.1" in render_report(audited_at)


def test_refuted_figures_come_first(tmp_path: Path) -> None:
    good, bad = audited(measured(tmp_path / "a", 20), verdict="not refuted"), audited(measured(tmp_path / "b", 20))
    page = render_report(load_runs([good, bad]))
    assert "The figure of b does not hold up. The figure of a was not refuted, which is no proof." in page
    assert page.index('<span class="chip bad">refuted') < page.index('<span class="chip good">not refuted')


def test_nothing_claimed_is_no_merit(tmp_path: Path) -> None:
    """A model that loses everything under PGD is not refuted, and neither green nor "not refuted" in the headline."""
    folder = audited(measured(tmp_path / "falls", 20), verdict="not refuted")
    content = json.loads((folder / "audit.json").read_text())
    content["claimed"] = {"value": 0.0, "n": 100, "low": 0.0, "high": 0.04}
    (folder / "audit.json").write_text(json.dumps(content))
    good = audited(measured(tmp_path / "stands", 20), verdict="not refuted")
    page = render_report(load_runs([good, folder]))
    assert "The figure of falls claims no robustness to refute. The figure of stands was not refuted, which" in page
    assert page.count('<span class="chip good">not refuted') == page.count('<span class="chip none">not refuted') == 3


def test_runs_are_found_named_and_refused(tmp_path: Path) -> None:
    one, other = measured(tmp_path / "1" / "ce", 9), measured(tmp_path / "2" / "ce", 9)
    assert [run.name for run in load_runs([one, other])] == ["1/ce", "2/ce"]
    measured(tmp_path / "1" / "gce", 9)
    assert [run.name for run in load_runs([tmp_path / "1"])] == ["ce", "gce"]
    with pytest.raises(ValueError, match="every run directory once"):
        load_runs([one, tmp_path / "1" / ".." / "1" / "ce"])
    with pytest.raises(FileNotFoundError, match="or run directories that do"):
        load_runs([tmp_path])
    (one / "audit.json").write_text("[]")
    with pytest.raises(ValueError, match="to hold an audit"):
        load_runs([one])
    (one / "audit.json").write_text("{")
    with pytest.raises(ValueError, match="to be JSON"):
        load_runs([one])


def test_lines_over_eps() -> None:
    found = evaluation(40)
    lines = {line.label: line for line in series_of(found)}
    assert list(lines) == ["FGSM", "PGD-40", "PGD-40, margin", WORST]
    assert [point.eps for point in lines["PGD-40"].points] == [0.0, 0.1, 0.2, 0.3]
    assert lines[WORST].points[2].accuracy == found.worst_case("Linf", 0.2)
    assert lines[WORST].points[0].accuracy == found.clean_accuracy
    plain = plain_pgd(found, "Linf", 0.2)
    assert plain is not None
    assert plain.attack == 'pgd(eps=0.2, alpha=0.01, steps=40, stop="never")'
    assert label_of("a callable of others") == "a callable of others"


def test_attacks_that_would_share_a_name_get_their_texts() -> None:
    texts = ("pgd(eps=0.1, alpha=0.01, steps=40)", "pgd(eps=0.1, alpha=0.02, steps=40)")
    assert [line.label for line in series_of(evaluation(9, texts))] == [*texts, WORST]


def test_a_transfer_is_one_line_over_eps() -> None:
    flags = torch.ones(9, dtype=torch.bool)
    transfers = tuple(
        outcome(f"fgsm(eps={eps})", flags, attack=f"transfer(fgsm(eps={eps}), substitute=ce)", substitute="s" * 16)
        for eps in (0.1, 0.2)
    )
    lines = {line.label: line for line in series_of(replace(evaluation(9), outcomes=transfers))}
    assert [point.eps for point in lines["FGSM from ce"].points] == [0.0, 0.1, 0.2]


def test_published_figures_stand_beside_the_same_attack(tmp_path: Path) -> None:
    run = load_runs([measured(trained(tmp_path / "x", paper_config("mnist", loss="pc-lc")), 100)])[0]
    rows = {beside.figure.row: beside for beside in beside_published(run) if beside.figure.table == "table1"}
    assert set(rows) == {"clean", *(f"{name} {eps}" for name in ("fgsm", "pgd") for eps in (0.1, 0.2, 0.3))}
    assert rows["pgd 0.3"].figure.value == 39.7
    assert run.evaluation is not None
    assert rows["pgd 0.3"].ours == run.evaluation.outcomes[7].accuracy
    assert rows["pgd 0.3"].same_training
    short = load_runs([measured(trained(tmp_path / "y", paper_config("mnist", loss="pc-lc", epochs=3)), 100)])[0]
    assert not any(beside.same_training for beside in beside_published(short))
    content = json.loads((tmp_path / "x" / "config.json").read_text())
    content["run"]["dataset"]["hash"] = "e" * 16  # of a part of the training images, or of others under their name
    (tmp_path / "x" / "config.json").write_text(json.dumps(content))
    own = beside_published(load_runs([tmp_path / "x"])[0])
    assert own
    assert not any(beside.same_training for beside in own)
    assert beside_published(load_runs([measured(trained(tmp_path / "z", dataset="digits"), 100)])[0]) == []


@pytest.mark.parametrize("changes", [{"data": "mnist, train"}, {"data": "kmnist, test"}, {"eight_bit": True}])
def test_figures_of_other_images_do_not_stand_beside_the_papers(changes: dict[str, Any], tmp_path: Path) -> None:
    folder, attacked = trained(tmp_path / "x"), evaluation(100)
    save_evaluation(attacked, folder)
    (usual,) = load_runs([folder])
    assert beside_published(usual)
    assert usual.notes == ()
    save_evaluation(replace(attacked, conditions=replace(attacked.conditions, **changes)), folder)
    (run,) = load_runs([folder])
    assert beside_published(run) == []
    note = "about adversarial images rounded" if "eight_bit" in changes else f"about {changes['data']}, not"
    assert note in render_report([run]).partition("<main>")[0]


def test_the_train_images_of_an_audit_are_told(tmp_path: Path) -> None:
    content = json.loads((audited(trained(tmp_path / "x")) / "audit.json").read_text())
    content["conditions"]["data"] = "mnist, train"
    (tmp_path / "x" / "audit.json").write_text(json.dumps(content))
    (run,) = load_runs([tmp_path / "x"])
    assert run.notes == ("audit.json is about mnist, train, not about the test images of mnist.",)


def test_a_verdict_at_another_budget_says_so(tmp_path: Path) -> None:
    runs = load_runs([audited(measured(tmp_path / "x", 100), verdict="not refuted", eps=0.2)])
    at, elsewhere = (summary(runs, ("Linf", eps)) for eps in (0.2, 0.3))
    other_norm = summary(runs, ("L2", 0.2))
    assert at["table"].rows[0][-1].text == "not refuted"
    assert elsewhere["table"].rows[0][-1].text == "not refuted at 0.2"
    assert other_norm["table"].rows[0][-1].text == "not refuted at Linf 0.2"
    assert at["headline"] == elsewhere["headline"] == "The figure of x was not refuted, which is no proof."


def test_the_command_of_the_page_has_its_title_and_budget(tmp_path: Path) -> None:
    runs = load_runs([measured(tmp_path / "x", 20)])
    plain, titled = tmp_path / "plain.html", tmp_path / "titled.html"
    report = ["pclc", "report", str(tmp_path / "x"), "--out"]
    assert unescape(shlex.join([*report, str(plain)])) + "<" in unescape(write_report(runs, plain).read_text())
    words = [*report, str(titled), "--title", "Two words", "--norm", "Linf", "--eps", "0.1"]
    page = write_report(runs, titled, title="Two words", budget=("Linf", 0.1)).read_text()
    assert shlex.join(words) + "<" in unescape(page)


def test_an_image_survives(tmp_path: Path) -> None:
    for channels, mode in ((1, "L"), (3, "RGB")):
        pixels = torch.randint(0, 256, (channels, 5, 7), dtype=torch.uint8)
        _, _, encoded = data_uri(pixels.numpy().tobytes(), channels, 5, 7).partition(",")
        image = Image.open(io.BytesIO(base64.b64decode(encoded)))
        assert image.mode == mode
        times = image.width // 7
        assert (image.width, image.height) == (7 * times, 5 * times)
        for y in range(5):
            for x in range(7):
                value = image.getpixel((x * times + times // 2, y * times + times // 2))
                assert list(value if isinstance(value, tuple) else (value,)) == pixels[:, y, x].tolist()
    with pytest.raises(ValueError, match="Expected `pixels`"):
        data_uri(b"1234", 2, 1, 2)


def test_many_series_differ() -> None:
    assert len({re.sub(r'data-\w+="\d+"', "", swatch(key)) for key in range(24)}) == 24


def test_a_chart_puts_points_where_they_belong() -> None:
    chart = str(line_chart([Line(0, "a", (Dot(0, 0, "low"), Dot(1, 100, "high")))], "label", "x", "y", (0, 100)))
    places = re.findall(r"translate\(([\d.]+) ([\d.]+)\)\" d=", chart)
    (x0, y0), (x1, y1) = ((float(x), float(y)) for x, y in places)
    assert x0 < x1
    assert y0 > y1
    grid = [float(y) for y in re.findall(r'class="grid" d="M38 ([\d.]+)H', chart)]
    assert (grid[0], grid[-1]) == (y0, y1)
    assert ticks(0, 0.2) == [0.0, 0.05, 0.1, 0.15, 0.2]


@pytest.mark.parametrize(
    "arguments",
    [
        ("--loss", "pc-lc", "--epochs", "1", "--seed", "3", "--margin", "0.9"),
        ("--adversarial", "madry-mnist", "--eps", "0.1", "--steps", "2", "--epochs", "1", "--batch-size", "512"),
        ("--adversarial", "pc", "--eps", "0.1,0.2", "--epochs", "1", "--margin", "0.9", "--optimizer", "adam"),
    ],
)
def test_the_command_for_training_repeats_it(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command("train", "digits", *arguments, "--device", "cpu", "--out", "first")
    page = render_report(load_runs(["first"]))
    shown = re.search(r"<pre tabindex=\"0\">(pclc train .*?)</pre>", page, flags=re.DOTALL)
    assert shown is not None
    words = words_of(shown.group(1))
    words[words.index("--out") + 1] = "second"
    command(*words[1:])
    for name in ("config.json", "model.safetensors"):
        assert (tmp_path / "first" / name).read_bytes() == (tmp_path / "second" / name).read_bytes()


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    command("train", "digits", "--loss", "ce", "--epochs", "1", "--device", "cpu", "--out", "run")
    grid = ("--attack", "fgsm(eps=0.1)", "--eps", "0.05", "--eps", "0.1", "--examples", "30", "--device", "cpu")
    command("evaluate", "run", *grid)
    printed = command("report", "run", "--inspect", "fgsm(eps=0.1)", "--device", "cpu")
    assert "run/report.html: 1 run, 0." in printed
    page = (tmp_path / "run" / "report.html").read_text()
    assert 'id="examples"' in page
    assert 'id="tsne"' in page
    run = load_runs(["run"])[0]
    assert run.inspection is not None
    assert (run.inspection["n"], run.inspection["ranks"]["eps"]) == (30, [0.05, 0.1])
    shown = re.search(r"(pclc evaluate .*?) --dataset", page, flags=re.DOTALL)
    assert shown is not None
    assert words_of(shown.group(1))[3:] == ["--attack", "fgsm(eps=0.05)", "--eps", "0.05", "--eps", "0.1"]
    with pytest.raises(ValueError, match=r"of an attack or audit in the runs, but got Linf 0\.7"):
        command("report", "run", "--eps", "0.7")


def network(folder: Path, seed: int) -> str:
    """Saves a model that knows nothing, and returns its hash."""
    torch.manual_seed(seed)
    save_model(create_model("lenet5"), folder)
    return str(model_hash(load_model(folder)))


def of_model(folder: Path, name: str | None) -> Path:
    """Lets the results in the folder be those of the model with that hash."""
    for file in ("evaluation.json", "audit.json", "inspection.json"):
        content = json.loads((folder / file).read_text())
        content["conditions"]["model_hash"] = name
        (folder / file).write_text(json.dumps(content))
    return folder


def test_results_of_another_model_are_left_out(tmp_path: Path) -> None:
    folder = inspected(audited(measured(trained(tmp_path / "x"), 20)), 40)
    own, other = network(folder, 0), network(tmp_path / "other", 1)
    (run,) = load_runs([of_model(folder, own)])
    assert None not in (run.evaluation, run.audit, run.inspection)
    assert run.notes == ()
    (run,) = load_runs([of_model(folder, other)])
    assert (run.evaluation, run.audit, run.inspection) == (None, None, None)
    page = render_report([run])
    for name in ("evaluation", "audit", "inspection"):
        assert f"x: {name}.json is left out, because it is about another model" in page
    assert f"hash {other}) than the one in the folder (hash {own})" in page
    assert 'class="chip bad">refuted' not in page
    assert "pclc audit " not in page[page.index('id="repeat"') :]


def test_what_cannot_be_compared_is_said(tmp_path: Path) -> None:
    folder = inspected(audited(measured(trained(tmp_path / "x"), 20)), 40)
    network(folder, 0)
    (run,) = load_runs([of_model(folder, None)])
    assert run.audit is not None
    assert "audit.json is about a function without weights" in render_report([run])
    model = json.loads((folder / "model.json").read_text())
    model["model"]["name"] = "pclc.models.architectures.lenet5:lenet5"
    (folder / "model.json").write_text(json.dumps(model))
    (run,) = load_runs([of_model(folder, "f" * 16)])
    assert run.audit is not None
    assert "could not be checked against the model in its folder: The model in" in render_report([run])
    assert load_runs([folder], trust_factory=True)[0].audit is None


def test_the_radius_may_be_that_of_an_audit(tmp_path: Path) -> None:
    folder = audited(trained(tmp_path / "x"), eps=0.15)
    assert "1 run," in command("report", str(folder), "--eps", "0.15")
    assert "Accuracy in % at Linf eps 0.15" in (folder / "report.html").read_text()
    with pytest.raises(ValueError, match="or audit in the runs, but got L2 0"):
        command("report", str(folder), "--eps", "0.15", "--norm", "L2")
