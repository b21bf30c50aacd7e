"""Measures Reel and its peers, which take turns, and writes docs/performance.md, docs/performance-intel.md on a CPU of Intel's,
or docs/performance-avx2.md without AVX-512. See scripts/bench."""

import argparse
import datetime
import json
import os
import platform
import re
import statistics
import subprocess
import sys
from pathlib import Path

from harness import judge, measure, plots, programs, report, suites, summary

ROOT = Path(__file__).resolve().parent.parent
DISTURBED = 1.3  # times the time at the lower quartile: a measurement of a limit that takes longer was disturbed
SELDOM = 0.15    # the part of a limit's measurements that may be
OP_WEIGHT = 0.1  # what a row of the suite ops takes beside the others', for the time that is left


def machine(avx2):
    wide = [flag for flag in ("avx2", "avx512f") if flag in programs.cpu_flags()]
    if avx2 and "avx512f" in wide:
        wide[-1] = "avx512f that nothing here uses"
    return f"{programs.told_of_cpu('model name') or platform.machine()} ({', '.join(wide)}), {os.cpu_count()} cores, {platform.system()} {platform.release()}"


def page(avx2=False):
    """The name of the document: what goes without AVX-512 has one of its own, as other kernels run there; and with it Intel's
    CPUs, whose units and caches are not those that the bars were set on."""
    if avx2 or "avx512f" not in programs.cpu_flags():
        return "performance-avx2"
    return "performance-intel" if programs.cpu_is_intel() else "performance"


def told_by(*command):
    """What a command prints; nothing if it fails or is not here."""
    try:
        return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def versions(python):
    found = {"Reel": told_by("git", "-C", ROOT, "describe", "--always", "--dirty")}
    for name in ("torch", "numba", "numpy"):
        found[name] = told_by(python, "-c", f"import {name}; print({name}.__version__)")
    for package in ("libopenblas0-openmp", "libdnnl2", "libdnnl3", "libeigen3-dev", "libjemalloc2", "g++"):
        found[package] = told_by("dpkg-query", "-W", "-f", "${Version}", package)
    return ", ".join(f"{name} {version}" for name, version in found.items() if version)


def measure_all(chosen, bars, reel, limits, peers, options, results):
    """Fills `results`, row -> result, in the order measured; returns the number of rounds, and what Reel could not do."""
    rounds, seconds, op_seconds = (1, 0.02, 0.005) if options.quick else (options.rounds, 0.1, 0.01)
    available = [row for program in reel.programs for row in program.rows]
    rows = dict.fromkeys(row for name in chosen for row in suites.rows_of(name, bars, available, options.quick)
                         if re.search(options.rows, row))
    # The ops go round after round through all of them: one takes so little time that what disturbs the machine for a second would
    # have all its rounds.
    turns = [(row, rounds, seconds, 1) for row in rows if "#" not in row]
    turns += [(row, 1, op_seconds, OP_WEIGHT / rounds) for row in rows if "#" in row] * rounds
    progress, problems, broken = measure.Progress(sum(weight for *_, weight in turns)), [], []
    failed = set()
    for row, rounds_of_row, seconds_of_row, weight in turns:
        if row in failed:
            continue
        entry = next((entry for entry in bars if row in entry["rows"]), {"bars": {}})
        if not reel.ways(row):
            broken.append(f"{row}: bars.json holds it to a bar, and no program has it")
            continue

        def undecided(times, limit_times):
            return judge.Judge({row: {"times": times, "limits": limit_times}}, limits.work).undecided(entry, row)

        def limited(times):  # with --quick only where they may excuse a bar that is missed
            if not options.quick or "at_least_share" in entry or row not in entry.get("limits", {}):
                return True
            return any(met is False for _, _, met in judge.Judge({row: {"times": times}}, limits.work).verdicts(entry, row))

        progress.show(row, len(turns), weight)
        limits.sample(seconds / 2, every=60 if options.quick else 20)
        try:
            result, found = measure.measure_row(
                row, reel, peers, limits, suites.limits_beside(row, bars), rounds_of_row, seconds_of_row,
                variants=suites.shows_variants(row, chosen), beside=judge.rows_beside(entry, row), undecided=undecided,
                limited=limited)
            results[row] = measure.joined(results[row], result) if row in results else result
            problems += found
        except RuntimeError as error:
            broken.append(str(error))
            failed.add(row)
            results.pop(row, None)
    progress.end()
    for problem in problems:
        print(f"bench: left out: {problem}", file=sys.stderr)
    return rounds, broken


def measure_users_cost(options):
    """What was measured, nothing if that failed. A clean build of the library is part of it, except with --quick."""
    path = options.build / "benchmarks/users-cost.json"
    path.unlink(missing_ok=True)
    if options.quick:
        command = [sys.executable, ROOT / "benchmarks/users_cost.py", "--reel", options.build, "--rounds", "1"]
    else:
        command = [ROOT / "scripts/measure-build"]
    if options.torch:
        command += ["--torch", options.torch]
    print("bench: start-up, memory and compile time", file=sys.stderr)
    if subprocess.run([str(part) for part in [*command, "--json", path]], stdout=subprocess.DEVNULL).returncode:
        return {}
    return json.loads(path.read_text())


def draw(folder, outcome):
    """The plots that the measured rows are enough for; their names."""
    folder.mkdir(parents=True, exist_ok=True)
    results, sizes = outcome.results, (8, 16, 32, 64, 128, 256, 512)

    def speed_ups(channels, suffix):
        pairs = [(n, f"conv_{channels}_{n}{suffix}") for n in sizes]
        return [(n, other / outcome.seconds(row)) for n, row in pairs if (other := outcome.seconds(row, "torch"))]

    pictures = {}
    for suffix, what in (("", "forward"), ("_backward", "forward and backward")):
        series = {f"{c} channel" + "s" * (c > 1): speed_ups(c, suffix) for c in (1, 2, 4, 8, 16, 32, 64)}
        pictures[f"conv{suffix}"] = plots.lines(f"3x3 convolution + bias + ReLU, {what}: PyTorch's time / Reel's",
                                                "pixels along a side", "times", {k: v for k, v in series.items() if v}, sizes,
                                                one=True)
    counts = (100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000)
    rates = {side: [(n, 4 * n / seconds / 1e9) for n in counts if (seconds := outcome.seconds(f"sum_{n}", name))]
             for side, name in (("Reel", "reel"), ("torch", "torch"), ("numba", "numba"), ("numpy", "numpy"))}
    pictures["sums"] = plots.lines("Sum of n floats", "n", "GB/s", {k: v for k, v in rates.items() if v}, counts)
    models = [(row, {"speed-up": other / outcome.seconds(row)}) for row in results
              if re.match(r"a(dd|dam)_|mlp_|cnn_|lstm_|transformer_", row) and (other := outcome.seconds(row, "torch"))]
    pictures["models"] = plots.bars("Small ops and training steps: PyTorch C++'s time / Reel's", "x", models)
    rungs, _ = report.ladder_rungs(outcome)
    pictures["ladder"] = plots.bars("Matrix product n x n on one core, GFLOP/s", "",
                                    [(name, {f"n = {n}": rate for n, rate in values.items()}) for name, values, _ in rungs])
    drawn = [name for name, picture in pictures.items() if picture]
    for name in drawn:
        (folder / f"{name}.svg").write_text(pictures[name])
    return drawn


def disturbance(limits):
    """A sentence, if a limit was not the same throughout: something else ran, here or on a machine shared with others, or the cores
    were moved: the nearer to one another, the sooner one has what the other has written (handed over)."""
    slower = {name: sum(time > DISTURBED * judge.best_of(times) for time in times) / len(times)
              for name, times in limits.times.items()}
    often = [f"{judge.limit_name(name)} {part:.0%}" for name, part in slower.items() if part > SELDOM]
    return (f"**The machine was not the same throughout**: the part of measurements that took over {DISTURBED} times as long as at "
            f"the best quarter: {', '.join(often)}.") if often else ""


def section(title, *parts):
    """A heading, if anything is under it."""
    body = [line for part in parts for line in part]
    return ["", f"## {title}", *body] if any(line.startswith("|") for line in body) else []


def document(outcome, limits, bars, cost, peers, drawn, head, folder):
    """(Markdown, bars that were missed)."""
    def picture(name, alt):
        return ["", f"![{alt}]({folder}/{name}.svg)"] if name in drawn else []

    tables, failures = report.bars_tables(bars["rows"], outcome, [side.name for side in peers])
    users, missed = report.users_table(cost, bars["users"])
    lines = [*head,
             *section("Reel beside its peers", picture("models", "Speed-ups of small models"), tables),
             *section("Start-up, memory, compile time", users),
             *section("Convolution by size", picture("conv", "Speed-ups, forward"),
                      picture("conv_backward", "Speed-ups, forward and backward"), report.conv_tables(outcome)),
             *section("Sums", picture("sums", "Rates of sums"), report.sums_tables(outcome, limits)),
             *section("GELU, fused and as five ops", report.ways_table(outcome, r"gelu_\w+", "row", ["unfused"])),
             *section("Ways to compute a softmax", report.ways_table(outcome, r"(log_)?softmax_\w+", "row",
                                                                     ["three_pass", "online", "composed", "naive"])),
             *section("The matrix product, step by step", picture("ladder", "The ladder"), report.ladder_table(outcome)),
             *section("Every op as a share of the machine's limits", report.ops_table(outcome)),
             *section("Limits of the machine, in the same run", report.limits_table(limits))]
    return "\n".join(lines), failures + missed


def main():
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__, allow_abbrev=False)
    # The first four come from scripts/bench: build folders of the preset cpu and of benchmarks/peers, the Python that has torch, numba
    # and numpy if they are to be had, and the folder torch of that Python.
    parser.add_argument("--build", type=Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--peers", type=Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--python", type=Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--torch", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--quick", action="store_true",
                        help="one short round, more of a bar that is missed, and few rows of each suite; "
                             f"{' and '.join(suites.NOT_IN_QUICK)} only where named")
    parser.add_argument("--avx2", action="store_true", help="as if the CPU had no AVX-512: Reel and all peers are told so")
    parser.add_argument("--suite", action="append", choices=suites.SUITES, default=[],
                        help="only this one: " + "; ".join(f"{name}: {what}" for name, (what, _, _) in suites.SUITES.items()))
    parser.add_argument("--rows", default="", help="only rows that match this regular expression")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--parse-only", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    try:
        re.compile(options.rows)
    except re.error as error:
        parser.error(f"--rows: {error}")
    if options.rounds < 1:
        parser.error("--rounds must be at least 1")
    if options.parse_only:
        return

    programs.exit_without(options.build)
    bars = json.loads((ROOT / "benchmarks/bars.json").read_text())
    chosen = suites.chosen(options.suite, options.quick)
    whole = not (options.suite or options.rows or options.quick)
    reel, limits_program, peers, missing = programs.find_sides(options.build, options.peers, options.python, chosen,
                                                               options.quick, options.avx2)
    for name in missing:
        print(f"bench: {name} is not here: its columns are left out", file=sys.stderr)

    limits, results, cost = measure.Limits(limits_program), {}, {}
    try:
        rounds, broken = measure_all(chosen, bars["rows"], reel, limits, peers, options, results)
        if "users" in chosen and not options.rows:
            cost = measure_users_cost(options)
            broken += [] if cost else ["start-up, memory and compile time could not be measured"]
    finally:  # what there is, if it is cut off
        (options.build / "benchmarks/results.json").write_text(
            json.dumps({"limits": limits.times, "work": limits.work, "results": results, "cost": cost}, indent=1))
    outcome = judge.Judge(results, limits.work, limits.times)

    command = " ".join(["scripts/bench", *(f"'{word}'" if re.search(r"\W", word.lstrip("-")) else word
                                           for word in options_given())])
    head = ["", f"Measured {datetime.date.today()} by `{command}` on {machine(options.avx2)}; {versions(options.python)}. "
            f"Medians of {rounds} round{'s' * (rounds > 1)}"
            + f", of up to {rounds * measure.MOST} where they {'disagree about' if rounds >= judge.ENOUGH else 'miss'} a bar."]
    if disturbance(limits):
        head += ["", disturbance(limits)]
        print(f"bench: {disturbance(limits)}", file=sys.stderr)
    if missing:
        head += ["", f"Not measured, as they are not here: {', '.join(missing)}."]
    notes = [note for result in results.values() for note in result["notes"]]
    if notes:
        head += ["", "Values that differ by more than rounding: " + "; ".join(notes) + "."]
    folder = ROOT / "docs" if whole else options.build / "benchmarks"
    name = page(options.avx2)
    drawn = draw(folder / name, outcome)
    body, failures = document(outcome, limits, bars, cost, peers, drawn, head, name)
    failures += broken + [fault for result in results.values() for fault in result["wrong"]]
    document_path = folder / f"{name}.md"
    if whole:
        document_path.write_text(summary.with_measured(document_path.read_text(), body))
        try:
            summary.update_readme(ROOT)
        except ValueError as error:  # a peer that is not here
            print(f"bench: README.md keeps its figures: {error}", file=sys.stderr)
    else:
        document_path.write_text(body + "\n")
        print(body)
    for failure in failures:
        print(f"bench: {failure}", file=sys.stderr)
    print(f"bench: {len(results)} rows, {len(failures)} failures; see {document_path}", file=sys.stderr)
    sys.exit(1 if failures else 0)


def options_given():
    """What the user gave to scripts/bench, which puts its own options first."""
    words = sys.argv[1:]
    own = ("--build", "--peers", "--python", "--torch")
    while words and words[0] in own:
        words = words[2:]
    return words


if __name__ == "__main__":
    main()
