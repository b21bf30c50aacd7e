"""Measures Reel and its peers row by row, taking turns, and writes the tables of docs/performance.md. See scripts/bench."""

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

ROOT = Path(__file__).resolve().parent.parent
TOLERANCE = 1e-4  # of the difference of two digests, relative to the sum of the values' sizes

# Peers are measured at their best: without this glibc gives big blocks back to the system after every op.
TUNED = {"GLIBC_TUNABLES": "glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=17179869184"}


class Program:
    """One side: a process that speaks the protocol of runner.h."""

    def __init__(self, name, command, environment=None):
        self.name, self.command = name, command
        self.environment = {**os.environ, **(environment or {})}
        listed = subprocess.run([*command, "--rows"], env=self.environment, capture_output=True, text=True, check=True)
        self.rows = listed.stdout.split()
        self.process = None

    def variants(self, row):
        return [r for r in self.rows if r.split("@")[0] == row]

    def ask(self, row, seconds):
        if self.process is None:
            self.process = subprocess.Popen([*self.command, "--serve"], env=self.environment, stdin=subprocess.PIPE,
                                            stdout=subprocess.PIPE, text=True)
        self.process.stdin.write(f"{row} {seconds}\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        answer = json.loads(line) if line else {"error": "the program ended"}
        if "error" in answer:
            raise RuntimeError(f"{self.name}: {row}: {answer['error']}")
        return answer


def find_programs(build, peers, python):
    """Reel, and the peers that can be had; also what is missing."""
    programs, missing = {}, []
    wanted = [
        ("reel", [build / "benchmarks/benchmark_rows"], {}),
        ("limits", [build / "benchmarks/benchmark_limits"], {}),
        ("torch", [peers / "torch_rows"], TUNED),
        ("openblas", [peers / "openblas_rows"], {}),
        ("onednn", [peers / "onednn_rows"], {}),
        ("eigen", [peers / "eigen_rows"], {}),
        ("python torch", [python, ROOT / "benchmarks/peers/python_rows.py", "torch"], {}),
        ("numba", [python, ROOT / "benchmarks/peers/python_rows.py", "numba"], {}),
    ]
    for name, command, environment in wanted:
        try:
            programs[name] = Program(name, [str(part) for part in command], environment)
        except (OSError, subprocess.CalledProcessError):
            missing.append(name)
    for name in ("reel", "limits"):
        if name in missing:
            sys.exit(f"bench: {name} is not built in {build}")
    return programs, missing


def relative_difference(a, b):
    if a["count"] != b["count"]:
        return float("inf")
    return abs(a["weighted"] - b["weighted"]) / max(a["size"], b["size"], 1e-30)


def measure(programs, rows, rounds, seconds):
    """For each row and program the seconds of each round; for each row the differences of the values."""
    times, differences = {}, {}
    sides = [p for name, p in programs.items() if name != "limits"]
    for done in range(rounds):
        for number, row in enumerate(rows, 1):
            show(f"round {done + 1}/{rounds}, row {number}/{len(rows)}: {row}")
            answers = {}
            for side in sides if done % 2 == 0 else reversed(sides):
                for variant in side.variants(row):
                    answers[(side.name, variant)] = side.ask(variant, seconds)
            for (side, variant), answer in answers.items():
                best = times.setdefault(row, {}).setdefault(side, {}).setdefault(variant, [])
                best.append(answer["seconds"])
                if side != "reel":
                    difference = relative_difference(answers[("reel", row)], answer)
                    differences[(row, side)] = max(difference, differences.get((row, side), 0))
    show("")
    return times, differences


def measure_limits(program, rounds, seconds):
    limits = {}
    for row in program.rows:
        show(f"limits: {row}")
        answers = [program.ask(row, seconds) for _ in range(rounds)]
        limits[row] = {"seconds": statistics.median(a["seconds"] for a in answers), "work": answers[0]["count"]}
    show("")
    return limits


def show(text):
    """Progress: one line that is overwritten, or nothing if nobody watches."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def duration(seconds):
    for unit, size in (("s", 1), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


class Judge:
    """Compares one row's times with the bars of bars.json."""

    def __init__(self, times, limits, programs):
        self.times, self.limits, self.programs = times, limits, programs

    def seconds(self, row, side="reel"):
        """The median of the side's fastest way."""
        ways = self.times.get(row, {}).get(side)
        return min(statistics.median(way) for way in ways.values()) if ways else None

    def ratios(self, row, side):
        """Peer / Reel, round by round, for the peer's fastest way."""
        ways = self.times[row].get(side)
        if not ways:
            return []
        best = min(ways.values(), key=statistics.median)
        return [peer / own for peer, own in zip(best, self.times[row]["reel"][row])]

    def verdicts(self, entry, row):
        """(what is required, what was measured, met) for each bar of the row; met is None where the peer is missing."""
        own = self.seconds(row)
        for side, bar in entry["bars"].items():
            ratios = self.ratios(row, side)
            median = statistics.median(ratios) if ratios else None
            yield f">= {bar}x {side}", f"{median:.2f}x" if ratios else "absent", median >= bar if ratios else None
        if "at_most_ns" in entry:
            yield f"<= {entry['at_most_ns']} ns", duration(own), own * 1e9 <= entry["at_most_ns"]
        if "at_least_share" in entry:
            limit = self.limits[entry["share_of"]]
            m, n, k = product_sizes(row)
            share = 2 * m * n * k / own / (limit["work"] / limit["seconds"])
            yield f">= {entry['at_least_share']:.0%} of peak", f"{share:.0%}", share >= entry["at_least_share"]
        for other, most in entry.get("at_most_times", {}).items():
            times = own / self.seconds(other + row[row.index("_sums") + 5:])
            yield f"<= {most}x {other}", f"{times:.2f}x", times <= most


def product_sizes(row):
    sizes = [int(n) for n in re.findall(r"\d+", row)]
    return sizes if len(sizes) == 3 else sizes * 3


def tables(bars, judge, programs):
    """Markdown, and the bars that were missed without a recorded limit."""
    lines, failures, group = [], [], None
    peers = [name for name in programs if name not in ("reel", "limits")]
    for entry in bars:
        for row in entry["rows"]:
            if row not in judge.times:
                continue
            if entry["group"] != group:
                group = entry["group"]
                lines += ["", f"### {group}", "", "| row | Reel | peers: time, peer / Reel (least to most) | bar | measured |",
                          "|---|---|---|---|---|"]
            cells = []
            for side in peers:
                ratios = judge.ratios(row, side)
                if ratios:
                    cells.append(f"{side} {duration(judge.seconds(row, side))}, **{statistics.median(ratios):.2f}x** "
                                 f"({min(ratios):.2f} to {max(ratios):.2f})")
            verdicts = list(judge.verdicts(entry, row))
            limit = entry.get("limits", {}).get(row)
            for required, measured, met in verdicts:
                if met is False and not limit:
                    failures.append(f"{row}: {required}, measured {measured}")
            marks = ["met" if met else "absent" if met is None else "**missed**" for _, _, met in verdicts]
            lines.append(f"| {row} | {duration(judge.seconds(row))} | {'; '.join(cells) or '-'} | "
                         f"{'; '.join(v[0] for v in verdicts) or '-'} | "
                         f"{'; '.join(f'{v[1]} {mark}' for v, mark in zip(verdicts, marks)) or '-'} |")
            if limit:
                lines.append(f"| | | {limit} | | |")
    return lines, failures


def limit_lines(limits):
    lines = ["", "### Limits of the machine, in the same run", "", "| limit | measured |", "|---|---|"]
    for row, limit in limits.items():
        rate = limit["work"] / limit["seconds"] / 1e9
        unit = "GFLOP/s" if "fma" in row else "GB/s"
        lines.append(f"| {row.removeprefix('limit_')} | {duration(limit['seconds']) if not limit['work'] else f'{rate:.4g} {unit}'} |")
    return lines


def machine():
    cpu = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return f"{cpu[1] if cpu else platform.machine()}, {os.cpu_count()} cores, {platform.system()} {platform.release()}"


def versions(python):
    found = []
    for name in ("torch", "numba", "numpy"):
        answer = subprocess.run([str(python), "-c", f"import {name}; print({name}.__version__)"], capture_output=True, text=True)
        if answer.returncode == 0:
            found.append(f"{name} {answer.stdout.strip()}")
    for package in ("libopenblas0-openmp", "libdnnl2", "libdnnl3", "libeigen3-dev", "g++"):
        answer = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", package], capture_output=True, text=True)
        if answer.returncode == 0:
            found.append(f"{package} {answer.stdout}")
    return ", ".join(found)


def plot(judge, folder):
    """Times of the convolutions against image size and channels, and of sums against length; as SVG."""
    try:
        import matplotlib
    except ImportError:
        return
    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    def draw(name, title, xlabel, xs, rows):
        figure, axes = plt.subplots(figsize=(6, 4))
        for side in ("reel", "torch", "numba"):
            for label, row_of in rows.items():
                points = [(x, judge.seconds(row_of(x), side)) for x in xs]
                points = [(x, y * 1e6) for x, y in points if y]
                if points:
                    axes.loglog(*zip(*points), marker="o", label=f"{side} {label}".strip())
        axes.set(title=title, xlabel=xlabel, ylabel="microseconds")
        axes.legend()
        axes.grid(True, alpha=0.3)
        figure.tight_layout()
        figure.savefig(folder / name)

    folder.mkdir(parents=True, exist_ok=True)
    draw("conv-sizes.svg", "3x3 convolution + bias + ReLU, one channel", "pixels along a side", [8, 16, 32, 64, 128, 256, 512],
         {"forward": lambda n: f"conv_1_{n}", "with backward": lambda n: f"conv_1_{n}_backward"})
    draw("conv-channels.svg", "3x3 convolution + bias + ReLU at 64 x 64", "channels", [2, 4, 8, 16, 32, 64],
         {"forward": lambda c: f"conv_{c}_64", "with backward": lambda c: f"conv_{c}_64_backward"})
    draw("sums.svg", "Sum of n floats", "n", [100, 10_000, 1_000_000, 10_000_000], {"": lambda n: f"sum_{n}"})


def write_document(path, body):
    """Replaces what lies between the markers."""
    begin, end = "<!-- measured: begin -->", "<!-- measured: end -->"
    text = path.read_text() if path.exists() else f"# Performance\n\n{begin}\n{end}\n"
    before, rest = text.split(begin)
    path.write_text(before + begin + "\n" + body + "\n" + end + rest.split(end)[1])


def main():
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument("--build", type=Path, required=True, help="build folder of the preset cpu")
    parser.add_argument("--peers", type=Path, required=True, help="build folder of benchmarks/peers")
    parser.add_argument("--python", type=Path, required=True, help="Python that has torch and numba, if they are to be had")
    parser.add_argument("--quick", action="store_true", help="one short round (less than five minutes); no document is written")
    parser.add_argument("--rows", default="", help="only rows that match this regular expression; no document is written")
    options = parser.parse_args()

    programs, missing = find_programs(options.build, options.peers, options.python)
    for name in missing:
        print(f"bench: {name} is not here: its columns are left out", file=sys.stderr)
    rounds, seconds = (1, 0.05) if options.quick else (5, 0.3)
    bars = json.loads((ROOT / "benchmarks/bars.json").read_text())
    rows = [row for entry in bars for row in entry["rows"] if re.search(options.rows, row)]

    limits = measure_limits(programs["limits"], 1 if options.quick else 3, seconds)
    times, differences = measure(programs, rows, rounds, seconds)
    judge = Judge(times, limits, programs)
    lines, failures = tables(bars, judge, programs)
    command = "scripts/bench" + (" --quick" if options.quick else "") + (f" --rows '{options.rows}'" if options.rows else "")
    head = [f"Measured {datetime.date.today()} by `{command}` on {machine()}; {versions(options.python)}. "
            f"Medians of {rounds} rounds in which the programs took turns; the ratio is the peer's time over Reel's, "
            "so more is better."]
    if missing:
        head.append(f"Not measured, as they are not here: {', '.join(missing)}.")
    body = "\n".join(head + lines + limit_lines(limits))
    print(body)
    (options.build / "benchmarks/results.json").write_text(json.dumps({"limits": limits, "times": times}, indent=1))
    if not options.quick and not options.rows:
        write_document(ROOT / "docs/performance.md", body)
        plot(judge, ROOT / "docs/images")

    for (row, side), difference in differences.items():
        if not difference <= TOLERANCE:
            failures.append(f"{row}: Reel and {side} computed different values (relative difference {difference:.2g})")
    for failure in failures:
        print(f"bench: {failure}", file=sys.stderr)
    sys.exit(1 if failures else 0)


main()
