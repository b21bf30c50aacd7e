"""Compares what was measured with the bars of bars.json."""

import math
import re
import statistics


def duration(seconds):
    for unit, size in (("s", 1), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size * 0.9995:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def amount(text):
    """A number, or a product of numbers: "4 * 2 * 1e7"."""
    return math.prod(float(factor) for factor in str(text).split("*"))


def best_of(times):
    """The time at the lower quartile: what is reached at best, but not by a slip of the clock."""
    return sorted(times)[(len(times) - 1) // 4]


def limit_name(limit):
    return limit.removeprefix("limit_").replace("_", " ")


def rate_text(work, seconds):
    if work["flops"]:
        return f"{work['flops'] / seconds / 1e9:.4g} GFLOP/s"
    return f"{work['bytes'] / seconds / 1e9:.4g} GB/s" if work["bytes"] else duration(seconds)


# A measured limit that something beats by more than this factor was disturbed, or is none.
BEATEN = 1.1


# Fewer rounds that all miss a bar may all have been disturbed.
ENOUGH = 3


# The same peer with another layout of its user's tensors: a bar is held to the faster of the two.
OTHER_LAYOUT = {"torch": "torch channels last"}


class Judge:
    """`results`: row -> what measure_row gave; `work`: limit -> its bytes and flops of one call; `limits`: limit -> all its times
    in the run, for rows beside which it was not measured."""

    def __init__(self, results, work, limits=None):
        self.results, self.work, self.limits = results, work, limits or {}

    def seconds(self, row, side="reel", way=None):
        """The median of a way; of Reel's plain one, or of a peer's best."""
        ways = self.results.get(row, {}).get("times", {}).get(side)
        times = ways and (ways.get(way or "plain") if side == "reel" else next(iter(ways.values())))
        return statistics.median(times) if times else None

    def ratios(self, row, side, way=None):
        """Another way's time, or a peer's, over Reel's plain one, round by round."""
        times = self.results[row]["times"]
        ways = times.get(side, {})
        others = ways.get(way, []) if way else next(iter(ways.values()), [])
        return [other / own for other, own in zip(others, times["reel"]["plain"])]

    def at_its_best(self, row, side):
        """The side itself, or itself with the other layout where that was faster."""
        layouts = [name for name in (side, OTHER_LAYOUT.get(side)) if self.seconds(row, name)]
        return min(layouts, key=lambda name: self.seconds(row, name), default=side)

    def best_way(self, row, side):
        """The peer's fastest way, which went through the rounds."""
        return next(iter(self.results[row]["times"][side]))

    def spread(self, row):
        """Half the 90 % interval of a round's time over that time, at the median; None if it is not told."""
        widths = self.results[row].get("widths", {}).get("reel", {}).get("plain")
        return statistics.median(widths) if widths else None

    def share(self, row, terms):
        """What share of Reel's time the limit takes: (median, least, most)."""
        shares = self.shares(row, terms)
        return statistics.median(shares), min(shares), max(shares)

    def shares(self, row, terms):
        """Round by round: a machine that others use too may be twice as fast in the next one."""
        own = self.results[row]["times"]["reel"]["plain"]
        return [sum(self.term_seconds(term, self.limit_rounds(row, term["of"])[i]) for term in terms) / seconds
                for i, seconds in enumerate(own)]

    def limit_seconds(self, row, name):
        """What a call of the limit took at best, while the row was measured."""
        return best_of(self.results[row]["limits"].get(name) or self.limits[name])

    def limit_rounds(self, row, name):
        """What a call of the limit took in each of the row's rounds; at best, where it was not measured in them."""
        rounds = len(self.results[row]["times"]["reel"]["plain"])
        return self.results[row]["limits"].get(name) or [best_of(self.limits[name])] * rounds

    def term_seconds(self, term, seconds):
        """What the term takes where a call of its limit takes so long."""
        if "count" in term:
            return amount(term["count"]) * seconds
        unit = "bytes" if "bytes" in term else "flops"
        return amount(term[unit]) / self.work[term["of"]][unit] * seconds

    def term_text(self, row, term):
        seconds = statistics.median(self.limit_rounds(row, term["of"]))
        took = duration(self.term_seconds(term, seconds))
        name = limit_name(term["of"])
        what = f" ({term['what']})" if "what" in term else ""
        if "count" in term:
            return f"{amount(term['count']):g} x {name} of {duration(seconds)}{what} = {took}"
        unit, short = ("bytes", "MB") if "bytes" in term else ("flops", "MFLOP")
        rate = rate_text(self.work[term["of"]], seconds)
        return f"{amount(term[unit]) / 1e6:.4g} {short} at {rate} of {name}{what} = {took}"

    def stopped_by(self, entry, row):
        """(text, whether the limit excuses a miss) of the row's limit; of several that which takes longest of those that nobody
        beats. None without one."""
        excuses = [self.excuse(entry, row, limit) for limit in limits_of(entry, row)]
        return max(excuses, key=lambda excuse: excuse[0], default=(None, None))[1]

    def excuse(self, entry, row, limit):
        """((whether nobody beats the limit, its share of Reel's time), (text, whether it excuses a miss)). It does if Reel reaches the
        required share of it; or if it alone takes longer than the missed bars leave, unless Reel is slower than a peer. What anyone
        does faster is no limit."""
        terms = as_list(limit["limit"])
        share, least, most = self.share(row, terms)
        text = " + ".join(self.term_text(row, term) for term in terms)
        text = (f"{text}; Reel {duration(self.seconds(row))}, {share:.0%} of the limit "
                f"({least:.0%} to {most:.0%}; {limit['share']:.0%} required)")
        if beside := self.results[row]["limits"].get(limit.get("beside")):
            text += (f"; {limit_name(limit['beside'])} took {duration(statistics.median(beside))} "
                     f"({duration(min(beside))} to {duration(max(beside))})")
        took = share * self.seconds(row)
        fastest = min((self.seconds(row, side) for side in self.results[row]["times"]), default=math.inf)
        if fastest * BEATEN < took:
            return (False, share), (f"{text}, which is none: {duration(fastest)} was measured", False)
        left = max((left for left, _, _, met in self.judged(entry, row) if met is False), default=math.inf)
        beyond = took >= left and self.seconds(row) <= fastest
        return (True, share), (text + (f"; the bar leaves {duration(left)}" if beyond else ""), beyond or share >= limit["share"])

    def undecided(self, entry, row):
        """Whether some rounds meet a bar of the row and some miss it, or too few miss it to tell from a disturbance."""
        met = [[ratio >= bar for ratio in self.ratios(row, self.at_its_best(row, side))] for side, bar in entry["bars"].items()]
        if "at_most_ns" in entry:
            met.append([own <= entry["at_most_ns"] / 1e9 for own in self.results[row]["times"]["reel"]["plain"]])
        if "at_least_share" in entry:
            met.append([share >= entry["at_least_share"] for share in self.shares(row, [peak(entry, row)])])
        times = self.results[row]["times"]["reel"]
        for other, most in entry.get("at_most_times", {}).items():
            beside = times.get(beside_row(row, other), [])
            met.append([mine <= most * its for mine, its in zip(times["plain"], beside)])
        return any((any(rounds) or 0 < len(rounds) < ENOUGH) and not all(rounds) for rounds in met)

    def verdicts(self, entry, row):
        """(what is required, what was measured, met) for each bar of the row; met is None where the peer is missing."""
        return [judged[1:] for judged in self.judged(entry, row)]

    def judged(self, entry, row):
        """Verdicts, with the seconds that each bar leaves in front."""
        own = self.seconds(row)
        for side, bar in entry["bars"].items():
            side = self.at_its_best(row, side)
            ratios = self.ratios(row, side)
            if ratios:
                median = statistics.median(ratios)
                yield own * median / bar, f">= {bar}x {side}", f"{median:.2f}x", median >= bar
            else:
                yield math.inf, f">= {bar}x {side}", "absent", None
        if "at_most_ns" in entry:
            most = entry["at_most_ns"] / 1e9
            yield most, f"<= {entry['at_most_ns']} ns", duration(own), own <= most
        if "at_least_share" in entry:
            share, _, _ = self.share(row, [peak(entry, row)])
            least = entry["at_least_share"]
            yield own * share / least, f">= {least:.0%} of peak", f"{share:.1%}", share >= least
        for other, most in entry.get("at_most_times", {}).items():
            times = self.results[row]["times"]["reel"]
            if beside := times.get(beside_row(row, other)):
                ratio = statistics.median(mine / its for mine, its in zip(times["plain"], beside))
                yield own / ratio * most, f"<= {most}x {other}", f"{ratio:.2f}x", ratio <= most


def beside_row(row, other):
    """The row of the other kind with the same sizes: that of row_sums for column_sums_1e3x1e3."""
    return re.sub(r"^.*_sums", other, row)


def rows_beside(entry, row):
    """Rows of Reel's that must be measured in the same rounds."""
    return [beside_row(row, other) for other in entry.get("at_most_times", {})]


def as_list(one_or_more):
    return one_or_more if isinstance(one_or_more, list) else [one_or_more]


def limits_of(entry, row):
    return as_list(entry.get("limits", {}).get(row, []))


def limit_rows(entry, row):
    """The limits that must be measured beside a row, with those that are told beside its own."""
    names = {entry["share_of"]} if "share_of" in entry else set()
    for limit in limits_of(entry, row):
        names |= {term["of"] for term in as_list(limit["limit"])} | ({limit["beside"]} if "beside" in limit else set())
    return sorted(names)


def peak(entry, row):
    """What the multiplications of a product would take at the rate that the entry names."""
    sizes = [int(n) for n in re.findall(r"\d+", row)]
    m, n, k = sizes if len(sizes) == 3 else sizes * 3
    return {"flops": 2 * m * n * k, "of": entry["share_of"]}
