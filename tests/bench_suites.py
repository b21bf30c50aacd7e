#!/usr/bin/env python3
"""Each suite of scripts/bench runs for a moment, without peers: some rows of each, their values, the document and its plots.

Usage: bench_suites.py <build folder>
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))
sys.dont_write_bytecode = True

from harness import suites

# Of every group of bars and every suite, and seconds in all.
ROWS = (r"add_1$|mlp_16_32|lstm_64$|gemm_(8|32x784x512_tn)$|sum_1000*$|column_sums_1e3|gelu_1e5|softmax_64x10|conv_(1|8)_(8|64)(_b.*)?$"
        r"|ragged_max|ladder_100$|(add|softmax|matmul|conv2d)#|cross_entropy_64x10")
HEADINGS = ("Engine and small models", "Products", "Reductions", "Activations, softmax, normalisation", "Ragged",
            "Convolution by size", "Sums", "GELU, fused and as five ops", "Ways to compute a softmax",
            "The matrix product, step by step", "Every op as a share of the machine's limits",
            "Limits of the machine, in the same run")


def main():
    build = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        # What it writes goes beside the programs: here they are links.
        own = Path(folder) / "benchmarks"
        own.mkdir()
        for program in (build / "benchmarks").glob("benchmark_*"):
            (own / program.name).symlink_to(program)
        command = [sys.executable, ROOT / "benchmarks/bench.py", "--build", folder, "--peers", folder, "--python",
                   Path(folder) / "no-python", "--quick", "--rows", ROWS,
                   *(word for name in suites.SUITES for word in ("--suite", name))]
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
        problems = [] if done.returncode in (0, 1) and "Traceback" not in done.stderr else ["it ended with an error"]
        problems += [line for line in done.stderr.splitlines() if "different values" in line or "off the result" in line]
        problems += [f"no heading: {heading}" for heading in HEADINGS if f"# {heading}\n" not in done.stdout]
        bars = json.loads((ROOT / "benchmarks/bars.json").read_text())["rows"]
        listed = subprocess.run([own / "benchmark_rows", "--rows"], capture_output=True, text=True, check=True).stdout
        rows = {line.split()[0] for line in listed.splitlines()}
        problems += [f"a bar of no row: {row}" for entry in bars for row in entry["rows"] if row not in rows]
        if not problems:
            results = json.loads((own / "results.json").read_text())["results"]
            if any(seconds <= 0 for r in results.values() for ways in r["times"].values() for way in ways.values() for seconds in way):
                problems.append("a time is not positive")
            if "unfused" not in results["conv_1_8"]["times"]["reel"] or len(results["ladder_100"]["times"]["reel"]) < 9:
                problems.append("a suite lacks Reel's other ways")
            if results["matmul#l2"]["work"]["flops"] <= 0 or results["add#memory"]["work"]["bytes"] < 10e6:
                problems.append("an op's bytes or FLOP are not told")
            pictures = list(own.glob("performance*/*.svg"))
            for picture in pictures:
                ElementTree.parse(picture)
            if not {"sums", "ladder"} <= {picture.stem for picture in pictures}:
                problems.append("a plot is missing")
    users = subprocess.run([sys.executable, ROOT / "benchmarks/users_cost.py", "--reel", build, "--rounds", "1"],
                           capture_output=True, text=True)
    told = [line.partition(":")[0] for line in users.stdout.splitlines()]
    if users.returncode or told[:3] != ["reel, start-up", "reel, resident memory", "reel, compile of a trivial program"]:
        problems += ["users_cost.py failed", users.stdout, users.stderr]
    if problems:
        sys.exit("\n".join([done.stdout, done.stderr, *problems]))


if __name__ == "__main__":
    main()
