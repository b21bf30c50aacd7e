"""The tables of docs/performance.md."""

import re
import statistics

from .judge import best_of, duration, limit_name, rate_text


def table(header, rows):
    return ["", "| " + " | ".join(header) + " |", "|" + "---|" * len(header),
            *("| " + " | ".join(str(cell) for cell in row) + " |" for row in rows)]


def bars_tables(bars, judge, peers):
    """Markdown, and the bars that were missed and that no limit excuses."""
    lines, failures, groups, found = [], [], {}, {"met": [], "at the limit": [], "**missed**": []}
    for entry in bars:
        for row in entry["rows"]:
            if row in judge.results:
                groups.setdefault(entry["group"], []).append((entry, row))
    for group, members in groups.items():
        body = []
        for entry, row in members:
            cells = []
            for side in peers:
                ratios = judge.ratios(row, side)
                if ratios:
                    way = judge.best_way(row, side)
                    name = side if way == "plain" else f"{side} ({way})"
                    cells.append(f"{name} {duration(judge.seconds(row, side))}, **{statistics.median(ratios):.2f}x** "
                                 f"({min(ratios):.2f} to {max(ratios):.2f})")
            verdicts, stopped = list(judge.verdicts(entry, row)), judge.stopped_by(entry, row)
            missed = [f"{required}, measured {measured}" for required, measured, met in verdicts if met is False]
            if not (stopped and stopped[1]):
                failures += [f"{row}: {miss}" + (f"; {stopped[0]}" if stopped else "") for miss in missed]
            at_limit = bool(stopped and stopped[1])
            word = {True: "met", None: "absent", False: "at the limit" if at_limit else "**missed**"}
            for _, _, met in verdicts:
                found.setdefault(word[met], []).append(row)
            body.append((row, duration(judge.seconds(row)), "; ".join(cells) or "-",
                         "; ".join(required for required, _, _ in verdicts) or "-",
                         "; ".join(f"{measured} {word[met]}" for _, measured, met in verdicts) or "-"))
            if stopped and missed:
                body.append(("", "", ("stopped by: " if at_limit else "limit: ") + stopped[0], "", ""))
        lines += ["", f"### {group}"]
        lines += table(("row", "Reel", "peers: time, peer / Reel (least to most)", "bar", "measured"), body)
    return [*verdict_counts(found), *lines], failures


def verdict_counts(found):
    """A sentence, with the rows that missed a bar."""
    met, at_limit, missed = (found[word] for word in ("met", "at the limit", "**missed**"))
    if not met + at_limit + missed:
        return []
    names = f": {', '.join(f'`{row}`' for row in dict.fromkeys(missed))}" if missed else ""
    return ["", f"Of {len(met + at_limit + missed)} bars {len(met)} are met, {len(at_limit)} are not but Reel is at the limit recorded for "
                f"the row, and {len(missed)} are missed{names}."]


def ratio_text(judge, row, side, way=None):
    """How long another takes beside Reel, at the median of the rounds."""
    ratios = judge.ratios(row, side, way)
    return f"{statistics.median(ratios):.2f}x" if ratios else "-"


def times_cell(judge, row, ways=()):
    """Reel's time, then the others over it."""
    own = judge.seconds(row)
    if own is None:
        return ""
    spread = judge.spread(row)
    return ", ".join([duration(own) + (f" ± {spread:.0%}" if spread is not None else ""),
                      *(ratio_text(judge, row, side, way) for side, way in ways)])


def conv_tables(judge):
    lines = []
    ways = (("torch", None), ("reel", "unfused"))
    for suffix, what in (("", "Forward"), ("_backward", "Forward and backward, gradients of image, weight and bias")):
        found = [re.fullmatch(rf"conv_(\d+)_(\d+){suffix}", row) for row in judge.results]
        sizes = {tuple(map(int, m.groups())) for m in found if m}
        if not sizes:
            continue
        widths = sorted({size for _, size in sizes})
        body = [(f"{c} to {c}", *(times_cell(judge, f"conv_{c}_{n}{suffix}", ways) for n in widths))
                for c in sorted({c for c, _ in sizes})]
        lines += ["", f"{what}: Reel's fused op ± half the 90 % interval of a round; PyTorch's time over it; the time of convolution "
                      "and ReLU as two ops over it."]
        lines += table(("channels", *(f"{n} x {n}" for n in widths)), body)
    found = (re.fullmatch(r"conv_(\d+)to1_256", row) for row in judge.results)
    channels = sorted(int(m[1]) for m in found if m)
    body = [(c, times_cell(judge, f"conv_{c}to1_256", ways), times_cell(judge, f"conv_{c}to1_256_backward", ways)) for c in channels]
    return lines + (table(("channels to 1, at 256 x 256", "forward", "with backward"), body) if body else [])


def sums_tables(judge, limits):
    def gigabytes(row, count, side="reel"):
        seconds = judge.seconds(row, side)
        return f"{duration(seconds)}, {4 * count / seconds / 1e9:.3g} GB/s" if seconds else "-"

    counts = sorted(int(m[1]) for m in (re.fullmatch(r"sum_(\d+)", row) for row in judge.results) if m)
    body = [(f"{n:,}", *(gigabytes(f"sum_{n}", n, side) for side in ("reel", "torch", "numba", "numpy"))) for n in counts]
    lines = table(("sum of n floats", "Reel", "torch", "numba", "numpy"), body) if body else []
    body = []
    for match in (re.fullmatch(r"row_sums_(.*)", row) for row in judge.results):
        if match:
            count = int(float(match[1].split("x")[0]) * float(match[1].split("x")[1]))
            rows, columns = match[0], f"column_sums_{match[1]}"
            body.append((match[1], *(gigabytes(row, count, side) for side in ("reel", "torch") for row in (rows, columns))))
    if body:
        lines += table(("matrix", "Reel, rows", "Reel, columns", "torch, rows", "torch, columns"), body)
    rates = [f"{where} {rate_text(limits.work[name], best_of(limits.times[name]))}"
             for where, name in (("memory at", "limit_read"), ("the last cache at", "limit_cached_read")) if name in limits.times]
    return lines + (["", f"All cores read {' and '.join(rates)}."] if lines else [])


def ways_table(judge, pattern, first, names):
    """One line for each row: Reel's plain way, its others and the peer, as times over the plain one."""
    rows = [row for row in judge.results if re.fullmatch(pattern, row)]
    used = [name for name in names if any(judge.seconds(row, "reel", name) for row in rows)]
    body = [(row, duration(judge.seconds(row)),
             *(ratio_text(judge, row, "reel", name) for name in used), ratio_text(judge, row, "torch")) for row in rows]
    titles = [name.replace("_", " ") for name in used]
    return table((first, "Reel", *titles, "torch"), body) if body else []


def ladder_rungs(judge):
    """[(rung, {n: GFLOP/s}, {n: share of one core's peak})], slowest first at the first n."""
    sizes = [int(m[1]) for m in (re.fullmatch(r"ladder_(\d+)", row) for row in judge.results) if m]
    names = [way for way in judge.results[f"ladder_{sizes[0]}"]["times"]["reel"]] if sizes else []
    rungs = []
    for name in names:
        rates, shares = {}, {}
        for n in sizes:
            result = judge.results[f"ladder_{n}"]
            seconds = judge.seconds(f"ladder_{n}", "reel", name)
            if seconds is None:
                continue
            rates[n] = result["work"]["flops"] / seconds / 1e9
            shares[n] = rates[n] / (judge.work["limit_fma_1"]["flops"] / judge.limit_seconds(f"ladder_{n}", "limit_fma_1") / 1e9)
        rungs.append(("Reel" if name == "plain" else name.replace("_", " "), rates, shares))
    return sorted(rungs, key=lambda rung: rung[1].get(sizes[0], 0)), sizes


def ladder_table(judge):
    rungs, sizes = ladder_rungs(judge)
    body = [(name, *(f"{rates[n]:.3g} GFLOP/s, {shares[n]:.1%}" if n in rates else "-" for n in sizes))
            for name, rates, shares in rungs]
    return table(("one core", *(f"n = {n}" for n in sizes)), body) if body else []


def op_share(judge, row):
    """(seconds, share of the limit, which limit) of an op: what it must read and write at a copy's rate, or its FLOP."""
    result = judge.results[row]
    copy = "limit_l2_copy" if "#l2" in row else "limit_cached_copy"
    times = {"memory": (copy, "bytes"), "fma": ("limit_fma", "flops")}
    least = {name: result["work"][unit] / judge.work[limit][unit] * judge.limit_seconds(row, limit)
             for name, (limit, unit) in times.items()}
    binding = max(least, key=least.get)
    return judge.seconds(row), least[binding] / judge.seconds(row), binding


def ops_table(judge):
    rows = [row for row in judge.results if "#" in row]
    body = []
    for op in dict.fromkeys(row.partition("#")[0] for row in rows):
        cells = []
        for kind in ("l2", "l2_backward", "memory", "memory_backward"):
            row = f"{op}#{kind}"
            if row not in judge.results:
                cells.append("-")
                continue
            seconds, share, binding = op_share(judge, row)
            work = judge.results[row]["work"]
            flops = f", {work['flops'] / 1e6:.3g} MFLOP" if work["flops"] else ""
            cells.append(f"{work['bytes'] / 1e6:.3g} MB{flops}, {duration(seconds)}, **{share:.0%}**"
                         + (" of fma" if binding == "fma" else ""))
        body.append((f"`{op}`", *cells))
    return table(("op", "within L2", "with backward", "beyond L2", "with backward"), body) if body else []


def limits_table(limits):
    body = []
    for row, times in limits.times.items():
        work = limits.work[row]
        body.append((limit_name(row), rate_text(work, best_of(times)), rate_text(work, statistics.median(times)), len(times)))
    return table(("limit", "best quarter", "median", "measurements"), body)


def users_table(cost, bars):
    """What a user's program costs, with the bars of PERF.md."""
    body, failures = [], []
    for name, own in cost.get("reel", {}).items():
        other, bar = cost.get("torch", {}).get(name), bars.get(name)
        show = (lambda v: f"{v / 1e6:.3g} MB") if "memory" in name or "size" in name else duration
        ratio = other / own if other else None
        met = ratio >= bar if ratio and bar else None
        if met is False:
            failures.append(f"{name}: >= {bar}x torch, measured {ratio:.1f}x")
        body.append((name, show(own), show(other) if other else "-", f"{ratio:.1f}x" if ratio else "-",
                     f">= {bar}x" if bar else "-", {True: "met", False: "**missed**", None: "-"}[met]))
    return (table(("", "Reel", "libtorch", "libtorch / Reel", "bar", ""), body) if body else []), failures
