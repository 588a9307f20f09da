"""A rank of `mpiexec` runs all cases of `collective_cases.py`, and prints what each gave, a line of
JSON for each: its number and an error's text, or nothing."""

import json
import sys
import traceback
from pathlib import Path

import glasshouse as gh

sys.path.insert(0, str(Path(__file__).parent))
import collective_cases

world = gh.distributed.init(timeout_s=60)
for number, case in enumerate(collective_cases.CASES):
    text = ""
    try:
        collective_cases.run(*case)
    except AssertionError:
        text = traceback.format_exc()
    failed = [each for each in gh.distributed.all_gather_object(text) if each]
    if world.rank == 0:
        print(json.dumps([number, failed]), flush=True)
