"""Which rows belong to which suite. Every row is measured once, however many suites show it."""

import re

from . import judge

# name: (what it shows, its rows, those of --quick)
SUITES = {
    "bars": ("Reel beside its peers, with the bars it is held to", None, None),
    "conv": ("3x3 convolution + bias + ReLU, fused and unfused", r"conv_(\d+_\d+|\d+to1_256)(_backward)?",
             r"conv_(1|8)_(8|64)(_backward)?"),
    "sums": ("sums, and rows against columns", r"(row_|column_)?sums?_\w+", r"sum_1000|(row|column)_sums_1e3x1e3"),
    "gelu": ("fused and unfused GELU", r"gelu_\w+", r"gelu_1e5(_backward)?"),
    "softmax": ("ways to compute a softmax", r"(log_)?softmax_\w+", r"(log_)?softmax_64x10(_backward)?"),
    "ladder": ("the matrix product, from three loops to packed operands", r"ladder_1\d{3}", r"ladder_100"),
    "ops": ("every op as a share of the machine's limits", r"[\w/]+#\w+", r"(add|exp|softmax|matmul|conv2d)#\w+"),
    "users": ("start-up, memory and compile time of a user's program", r"$^", None),
}
NOT_IN_QUICK = ("ladder", "ops", "users")  # unless they are named, for they take long to compile
HUGE = r".*_sums_1e4x1e4"  # rows that --quick leaves out: of 400 MB, which take longer to fill than to sum


def chosen(named, quick):
    return named or [name for name in SUITES if not (quick and name in NOT_IN_QUICK)]


def rows_of(name, bars, available, quick):
    """The suite's rows, in the programs' order (of the bars: in theirs)."""
    plain = dict.fromkeys(row.partition("@")[0] for row in available)
    if name == "bars":
        return [row for entry in bars for row in entry["rows"] if not (quick and re.fullmatch(HUGE, row))]
    _, pattern, small = SUITES[name]
    if quick:
        pattern = small or pattern
    return [row for row in plain if re.fullmatch(pattern, row)]


def limits_beside(row, bars):
    """The limits measured in each round of a row."""
    found = {name for entry in bars if row in entry["rows"] for name in judge.limit_rows(entry, row)}
    if row.startswith("ladder_"):
        found.add("limit_fma_1")
    return sorted(found)


def shows_variants(row, chosen):
    """Whether a chosen suite shows Reel's other ways of a row."""
    return any(name != "bars" and re.fullmatch(pattern, row)
               for name in chosen for pattern in SUITES[name][1:] if pattern)
