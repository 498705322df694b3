"""Importing the package stays cheap: nothing heavy is loaded before somebody asks for it."""

import json
import subprocess
import sys

HEAVY_MODULES = ("asyncio", "matplotlib", "numpy", "pandas", "pyarrow", "pyspark", "rich", "typer", "uvloop")


def test_import_trimtab_loads_no_heavy_module() -> None:
    script = "import json, sys, trimtab; print(json.dumps(sorted(sys.modules)))"
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert sorted(set(HEAVY_MODULES) & set(json.loads(answer.stdout))) == []
