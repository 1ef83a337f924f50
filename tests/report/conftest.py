"""A demo run that is as small as can be, and a browser."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from report_command import DEMO, pclc


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The folder in which the command was typed, and what it printed."""
    folder = tmp_path_factory.mktemp("demo")
    return folder, json.loads(pclc(*DEMO, cwd=folder).stdout)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    chromium = next(
        (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
    )
    if chromium is None:
        pytest.skip("needs a browser: install chromium (apt-get install chromium)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield started
        started.close()
