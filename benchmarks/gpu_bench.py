"""Measures Reel and PyTorch on a GPU row by row, taking turns, and writes the tables of docs/performance-gpu.md. See
scripts/gpu-bench."""

import argparse
import datetime
import json
import re
import statistics
import subprocess
import sys
from pathlib import Path

from harness import judge, measure, programs, report

ROOT = Path(__file__).resolve().parent.parent
COPY, LAUNCH = "limit_copy", "limit_launch"
AT_THE_LIMIT = 0.97  # of a copy's rate: there a row meets its ratio too, as no program moves the bytes any faster
HOST_SECONDS = 2e-6  # that an op may take on the host beyond the launch of its kernel

# (title, rows, least share of a copy's rate, least peer / Reel)
FEW = r"conv_(batch_)?[1-4]_\d+(_dilation\d+)?(_backward)?|conv_4to1_256(_backward)?"
SMALL = (r"(gelu_1e[3-6]|(log_)?softmax_(64x10|1024x1024|32x50257)|cross_entropy_(64x10|1024x1024|32x50257)|layer_norm_1024x1024|"
         r"sum_\d+|(row|column)_sums_1e3x1e3)(_backward)?")
GROUPS = [
    ("Large tensors, 2^26 elements", r"large_\w+", 0.9, 1.0),
    ("Small and middle tensors, by the time of a call", SMALL, None, 1.0),
    ("Convolution + bias + ReLU, up to 4 channels", FEW, None, 2.0),
    ("Convolution + bias + ReLU, more channels", r"conv_(batch_)?\w+", None, 1.0),
    ("Sequences of 1 to 100 rows", r"ragged_(?!.*_equal)\w+", None, 2.0),
    ("Sequences of 50 rows each", r"ragged_\w+_equal", None, 1.0),
    ("Products", r"matmul_\d+", None, 1.0),
    ("Training steps of small models", r"(mlp|cnn|lstm|transformer)_\w+", None, 3.0),
    ("The engine", r"add_\w+", None, 1.0),
]
# Of the convolutions only these: all sizes for one channel, two for more.
LEFT_OUT = r"conv_(2|4|8|16|32|64)_(8|16|32|128|512)(_backward)?"
# Bars that are missed, by row and kind: the least that is accepted, and why. docs/performance-gpu.md tells what was measured and
# tried.
TWICE = "no block holds such a row: it is read twice"
ISSUE = "bound by its multiplications and additions"
ACCEPTED = {
    ("large_softmax_262144", "copy"): (0.60, TWICE),
    ("large_softmax_262144_backward", "copy"): (0.60, TWICE),
    ("large_cross_entropy_backward", "copy"): (0.83, "four small kernels beside the one that moves the bytes"),
    ("large_gelu", "copy"): (0.86, ISSUE),
    ("large_gelu", "torch"): (0.88, ISSUE),
    ("large_gelu_backward", "torch"): (0.93, ISSUE),
    ("ragged_sum", "torch"): (1.2, "little longer than a launch, and than its bytes need"),
}


def group_of(row):
    return next((i for i, group in enumerate(GROUPS) if re.fullmatch(group[1], row)), None)


def verdicts(outcome, row, group, torch):
    """[(required, measured, met, kind, the number measured)]"""
    _, _, share, ratio = group
    result, own = outcome.results[row], 0
    if share and result["work"]["bytes"]:
        least = result["work"]["bytes"] / outcome.work[COPY]["bytes"] * statistics.median(result["limits"][COPY])
        own = least / outcome.seconds(row)
        yield f">= {share:.0%} of copy", f"{own:.0%}", own >= share, "copy", own
    if torch:
        ratios = outcome.ratios(row, "torch")
        median = statistics.median(ratios) if ratios else None
        met = (round(median, 2) >= ratio or (ratio == 1 and own >= AT_THE_LIMIT)) if ratios else None
        yield f">= {ratio}x", f"{median:.2f}x" if ratios else "absent", met, "torch", median
    if row == "add_1":
        host = outcome.seconds(row) - statistics.median(result["limits"][LAUNCH])
        yield f"<= {judge.duration(HOST_SECONDS)} beyond a launch", judge.duration(host), host <= HOST_SECONDS, "host", host


def tables(outcome, torch):
    lines, missed, met_bars, absent = [], [], 0, 0
    for index, group in enumerate(GROUPS):
        body = []
        for row in (row for row in outcome.results if group_of(row) == index):
            found = list(verdicts(outcome, row, group, torch))
            met_bars += sum(met is True for _, _, met, *_ in found)
            absent += sum(met is None for _, _, met, *_ in found)
            missed += [(row, kind, number, f"{required}, measured {measured}")
                       for required, measured, met, kind, number in found if met is False]
            ratios, ways = outcome.ratios(row, "torch"), outcome.results[row]["times"].get("torch", {})
            way = next(iter(ways), "").removeprefix("plain")
            peer = (f"{judge.duration(outcome.seconds(row, 'torch'))}{way and f' ({way})'}, "
                    f"**{statistics.median(ratios):.2f}x** ({min(ratios):.2f} to {max(ratios):.2f})" if ratios else "-")
            word = {True: "met", None: "absent", False: "**missed**"}
            body.append((row, judge.duration(outcome.seconds(row)), peer, "; ".join(required for required, *_ in found),
                         "; ".join(" ".join(dict.fromkeys((measured, word[met]))) for _, measured, met, *_ in found)))
        if body:
            lines += ["", f"### {group[0]}"]
            lines += report.table(("row", "Reel", "PyTorch: time, PyTorch / Reel (least to most)", "bar", "measured"), body)
    return lines, missed, met_bars, absent


def main():
    parser = argparse.ArgumentParser(prog="scripts/gpu-bench", description=__doc__)
    parser.add_argument("--build", type=Path, required=True, help="a build with REEL_CUDA=ON")
    parser.add_argument("--python", default=sys.executable, help="a Python; with torch, PyTorch is measured beside Reel")
    parser.add_argument("--rows", default="", help="only rows that match this regular expression")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.05, help="that a row is timed for, in each round")
    parser.add_argument("--out", type=Path, required=True, help="where the tables are written, and results.json beside them")
    options = parser.parse_args()

    reel = programs.Side("reel", [programs.Program([options.build / "benchmarks/benchmark_rows"], {"REEL_BENCH_DEVICE": "cuda"})])
    limits = measure.Limits(programs.Program([options.build / "benchmarks/benchmark_gpu_limits"]))
    version = "import torch; assert torch.cuda.is_available(); print(torch.__version__, torch.version.cuda, torch.backends.cudnn.version())"
    asked = subprocess.run([options.python, "-c", version], capture_output=True, text=True)
    peers = []
    if asked.returncode == 0:
        peers = [programs.Side("torch", [programs.Program([options.python, ROOT / "benchmarks/peers/python_rows.py", "cuda"])])]
    else:
        print("gpu-bench: this Python has no PyTorch that sees the GPU: its column is left out", file=sys.stderr)

    rows = [row for row in dict.fromkeys(name.partition("@")[0] for program in reel.programs for name in program.rows)
            if group_of(row) is not None and re.search(options.rows, row) and not re.fullmatch(LEFT_OUT, row)]
    results, broken, progress = {}, [], measure.Progress(len(rows))
    for row in rows:
        progress.show(row, len(rows), 1)
        try:
            results[row], problems = measure.measure_row(row, reel, peers, limits, [LAUNCH if row == "add_1" else COPY],
                                                         options.rounds, options.seconds, variants=False)
            for problem in problems:
                print(f"gpu-bench: left out: {problem}", file=sys.stderr)
        except RuntimeError as error:
            broken.append(str(error))
    progress.end()

    outcome = judge.Judge(results, limits.work)
    lines, missed, met, absent = tables(outcome, bool(peers))
    gpu = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader", "-i", "0"],
                         capture_output=True, text=True).stdout.strip()
    head = [f"Measured {datetime.date.today()} by `scripts/gpu-bench` on {gpu}"
            + (f", PyTorch {asked.stdout.split()[0]}, cuDNN {asked.stdout.split()[2]}" if peers else "")
            + f". Medians of {options.rounds} rounds. {met} of {met + len(missed)} bars met"
            + (f", {absent} without a peer." if absent else ".")]
    notes = [note for result in results.values() for note in result["notes"]]
    if notes:
        head += ["", "Values that differ by more than rounding: " + "; ".join(notes) + "."]
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text("\n".join([*head, *lines, *report.limits_table(limits)]) + "\n")
    options.out.with_name("results.json").write_text(json.dumps({"limits": limits.times, "work": limits.work, "results": results}))
    met_again = {bar for bar in ACCEPTED if bar[0] in results} - {(row, kind) for row, kind, *_ in missed}
    for row, kind in sorted(met_again):
        print(f"gpu-bench: {row} meets its bar of {kind}, although ACCEPTED says why it does not", file=sys.stderr)
    unexplained = 0
    for row, kind, number, miss in missed:
        least, why = ACCEPTED.get((row, kind), (None, None))
        accepted = least is not None and number >= least
        unexplained += not accepted
        print(f"gpu-bench: {row}: {miss}" + (f" ({why})" if accepted else ""), file=sys.stderr)
    for failure in broken + [fault for result in results.values() for fault in result["wrong"]]:
        print(f"gpu-bench: {failure}", file=sys.stderr)
    wrong = sum(len(result["wrong"]) for result in results.values())
    print(f"gpu-bench: {len(results)} rows, {len(missed)} bars missed, {unexplained} of them without a reason, "
          f"{len(broken)} rows failed, {wrong} differ; see {options.out}")
    sys.exit(1 if unexplained or broken or wrong else 0)


if __name__ == "__main__":
    main()
