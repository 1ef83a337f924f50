"""A grid of cells over an engine's workers: what is missing is computed, by as many as share the store."""

import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from pclc.data.progress import progress_bar
from pclc.execution import Execution
from pclc.experiments.costs import Known, PlannedCell, known_here, plan_grid
from pclc.experiments.engines import Workers, open_engine
from pclc.experiments.experiment import Cell, Training
from pclc.experiments.store import Store
from pclc.experiments.trained import warm_up_of
from pclc.experiments.work import Job

_PAUSE = 0.5  # seconds before a cell is asked for again that another process works on


@dataclass(frozen=True)
class GridSettings:
    """Where and how a grid runs.

    Attributes:
        store: folder of the results.
        execution: how each cell runs.
        root: folder with the data sets.
        engine: "local" or "ray".
        jobs: cells at a time: on this machine, or with Ray on each GPU.
        address: of a Ray cluster.
        threads: of each job on the CPU; results depend on it in the last bits, and not on `jobs`.
        weights: keep weights and what attacks have found; otherwise both go when no cell needs them, but those of
            cells that failed, which may be tried again.
        progress: show a bar on the error stream.
        until: by the clock of `time.monotonic`; a cell that is expected to end later is not begun.
    """

    store: Path
    execution: Execution
    root: Path | None = None
    engine: str = "local"
    jobs: int = 1
    address: str | None = None
    threads: int = 1
    weights: bool = True
    progress: bool = False
    until: float | None = None


def run_grid(cells: Sequence[Cell], settings: GridSettings) -> dict[str, str]:
    """Compute what the store does not have; by hash, why a cell failed.

    A cell that fails does not stop the others. Killed anywhere, the same call goes on; several processes may make it
    at the same time and share the work.
    """
    store = Store(settings.store)
    known = known_here(store, settings.execution, settings.threads)
    planned = plan_grid(store, in_order(list({cell.hash: cell for cell in cells}.values())), known)
    missing = [plan.cell for plan in planned if not plan.finished]
    failures: dict[str, str] = {}
    left: list[Cell] = []
    if missing:
        shown = _progress(store, planned) if settings.progress else nullcontext()
        with open_engine(settings.engine, settings.jobs, settings.address, settings.threads) as workers, shown:
            left = _work_off(missing, settings, workers, failures)
    if not settings.weights:
        _drop_weights(store, cells, [*left, *(cell for cell in cells if cell.hash in failures)])
    return failures


def in_order(cells: Sequence[Cell]) -> list[Cell]:
    """Data set by data set, of a study with settings panel by panel, seed by seed, model by model.

    A model and what was trained for it are then needed for a short time only, whatever experiments they belong to. And
    a grid that is cut off has whole seeds, in which losses can be compared, and not one loss with all of its seeds; a
    study has all seeds of its first panel before a long run begins.
    """
    datasets, panels, trainings = (
        {thing: place for place, thing in enumerate(dict.fromkeys(things))}
        for things in (
            (cell.training.dataset for cell in cells),
            map(_panel, cells),
            (cell.training.hash for cell in cells),
        )
    )
    panel_of = {cell.training.hash: panels[_panel(cell)] for cell in reversed(cells)}  # of a model in two, the first

    def place(cell: Cell) -> tuple[int, int, int, int]:
        training = cell.training
        return datasets[training.dataset], panel_of[training.hash], training.config.seed, trainings[training.hash]

    return sorted(cells, key=place)


def _panel(cell: Cell) -> tuple[str, int] | None:
    """Network and length of training, where a setting was chosen."""
    return None if cell.setting is None else (cell.training.model, cell.training.config.epochs)


def _work_off(cells: Sequence[Cell], settings: GridSettings, workers: Workers, failures: dict[str, str]) -> list[Cell]:
    """Do all that ends in time; what is left."""
    waiting, running, failed = deque(cells), dict[Future[str], Cell](), list[Cell]()
    later: dict[str, float] = {}  # when a cell that was busy may be asked for again
    in_time = _InTime(settings)
    while waiting or running:
        for _ in range(len(waiting)):
            cell = waiting.popleft()
            due = len(running) < workers.slots and time.monotonic() >= later.get(cell.hash, 0.0)
            if due and in_time(cell):
                running[workers.submit(_job(cell, settings))] = cell
            else:
                waiting.append(cell)
        if not running:
            if not any(map(in_time, waiting)):
                break
            time.sleep(_PAUSE / 5)
            continue
        done, _ = wait(running, timeout=_PAUSE, return_when=FIRST_COMPLETED)
        for future in done:
            cell = running.pop(future)
            error = future.exception()
            error = getattr(error, "cause", None) or error  # what Ray wraps in a traceback
            in_time.learn()
            if error is not None:
                failures[cell.hash] = f"{type(error).__name__}: {error}"
                failed.append(cell)
            elif future.result() == "busy":
                later[cell.hash] = time.monotonic() + _PAUSE
                waiting.append(cell)
            elif not settings.weights:
                _drop_weights(Store(settings.store), [cell], [*waiting, *running.values(), *failed])
    return list(waiting)


class _InTime:
    """Whether a cell that is begun now will end in time, by what is known when it is asked."""

    def __init__(self, settings: GridSettings) -> None:
        self.settings = settings
        self.known: Known | None = None
        self.seconds: dict[str, float] = {}  # of cells, by hash

    def __call__(self, cell: Cell) -> bool:
        until, store = self.settings.until, Store(self.settings.store)
        if until is None:
            return True
        if self.known is None:
            self.known = known_here(store, self.settings.execution, self.settings.threads)
        if cell.hash not in self.seconds:
            # By itself: what it shares with a cell that is not begun has to be done for it.
            (plan,) = plan_grid(store, [cell], self.known)
            self.seconds[cell.hash] = plan.cost.seconds
        return time.monotonic() + self.seconds[cell.hash] <= until

    def learn(self) -> None:
        """Another cell is done: more is known, and shared work may be there."""
        self.known, self.seconds = None, {}


def _job(cell: Cell, settings: GridSettings) -> Job:
    root = settings.root and settings.root.absolute()
    return Job(cell, settings.store.absolute(), settings.execution, root, settings.threads)


def _drop_weights(store: Store, cells: Sequence[Cell], left: Sequence[Cell]) -> None:
    """Of the models of some cells, unless cells that are left need them, or another process works with them."""
    needed = {training for cell in left for training in _models(cell)}
    for training in {training: None for cell in cells for training in _models(cell) if training not in needed}:
        with store.lock(training) as held:
            if held:
                store.drop_weights(training)


def _models(cell: Cell) -> list[Training]:
    """All that is trained for a cell."""
    return [*cell.trainings, *(first for each in cell.trainings if (first := warm_up_of(each)) is not None)]


@contextmanager
def _progress(store: Store, planned: Sequence[PlannedCell]) -> Iterator[None]:
    """A bar over the whole grid, which looks at the store: so it knows of all processes that share it."""
    over = threading.Event()
    with progress_bar("{task.percentage:.0f} %") as display:
        task = display.add_task("", total=1.0)
        before = sum(plan.finished for plan in planned)

        def look() -> None:
            nonlocal before
            done, share, busy = grid_progress(store, planned)
            if done > before and not display.console.is_terminal:  # a file has no bar that moves
                display.console.print(f"{done} of {len(planned)} cells after {display.tasks[0].elapsed or 0:.0f} s")
            before = done
            text = f"{done} of {len(planned)} cells" + (f", now {busy}" if busy else "")
            display.update(task, completed=share, description=text)

        def watch() -> None:
            while not over.wait(1.0):
                look()

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            look()


def grid_progress(store: Store, planned: Sequence[PlannedCell]) -> tuple[int, float, str]:
    """Cells that are done, the share of the expected seconds that are, and a cell that is being computed."""
    total = sum(plan.cost.seconds for plan in planned) or 1.0
    done, seconds, busy = 0, 0.0, ""
    for plan in planned:
        share = 1.0 if plan.finished else _share(store, plan.cell)
        done += share == 1.0
        seconds += share * plan.cost.seconds
        if 0 < share < 1:
            training = plan.cell.training
            busy = f"{training.dataset} {plan.cell.column} seed {training.config.seed}"
    return done, min(1.0, seconds / total), busy


def _share(store: Store, cell: Cell) -> float:
    """Of a cell that is not known to be finished, from the files that it leaves on its way; half of it is training."""
    if (store.cell_folder(cell) / "result.json").exists():
        return 1.0
    folder = store.model_folder(cell.training)
    epochs = sum(phase.epochs for phase in cell.training.config.phases)
    trained = 1.0 if (folder / "checksums.json").exists() else _lines(folder / "metrics.jsonl") / epochs
    found = len(list(folder.glob(f"{cell.attacks_folder}/evaluation/*.safetensors")))
    return min(0.99, 0.5 * min(1.0, trained) + 0.5 * found / (1 + len(cell.attacks) + len(cell.analyses)))


def _lines(file: Path) -> int:
    try:
        return file.read_bytes().count(b"\n")
    except OSError:
        return 0
