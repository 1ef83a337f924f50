"""The command as a user types it."""

import os
import subprocess
import sys
from pathlib import Path

DEMO = ("demo", "--epochs", "2", "--examples", "24", "--no-adversarial", "--device", "cpu", "--json")
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def pclc(*arguments: str | Path, cwd: Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pclc", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=ENVIRONMENT, check=False)
    assert done.returncode == code, done.stderr
    return done
