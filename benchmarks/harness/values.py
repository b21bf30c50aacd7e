"""Whether two programs computed the same: their digests are compared (runner.h)."""

import math

# Of the difference of two digests.
TOLERANCE = 1e-4
# A peer whose own f32 error is larger than that is named and no more; beyond this it computed something else.
OTHER_WORK = 1e-2


def relative_difference(a, b):
    """The larger of two: of the sums of sizes, which a common factor changes; and of the sums with random weights, against ten times
    what errors of the values' own size come to, of which n independent ones add up to sqrt(n). (Ten, since among the values may be
    single sums of all others.)"""
    if a["count"] != b["count"]:
        return float("inf")
    size = max(a["size"], b["size"], 1e-30)
    expected = size / math.sqrt(max(a["count"], 1))
    differences = abs(a["size"] - b["size"]) / size, abs(a["weighted"] - b["weighted"]) / min(10 * expected, size)
    return math.nan if any(math.isnan(d) for d in differences) else max(differences)


def compare(row, answers):
    """(faults, notes) of one row's {(side, way): answer}. Where Reel's row tells the result in double, each side is judged by
    that; else the others by Reel's plain way."""
    plain = answers[("reel", "plain")]
    exact = {key.removeprefix("exact_"): value for key, value in plain.items() if key.startswith("exact_")}
    faults, notes = [], []
    for (side, way), answer in answers.items():
        name = side if way == "plain" else f"{side} ({way})"
        difference = relative_difference(exact or plain, answer)
        if difference <= TOLERANCE:
            continue
        if not exact:
            faults.append(f"{row}: Reel and {name} computed different values (relative difference {difference:.2g})")
        elif side == "reel" or not difference <= OTHER_WORK:
            faults.append(f"{row}: {name} is {difference:.2g} off the result in double precision")
        else:
            notes.append(f"{row}: {name} is {difference:.2g} off the result in double precision, and Reel "
                         f"{relative_difference(exact, plain):.2g}")
    return faults, notes
