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


def rate_text(work, seconds):
    if work["flops"]:
        return f"{work['flops'] / seconds / 1e9:.4g} GFLOP/s"
    return f"{work['bytes'] / seconds / 1e9:.4g} GB/s" if work["bytes"] else duration(seconds)


class Judge:
    """`results`: row -> what measure_row gave; `work`: limit -> its bytes and flops of one call."""

    def __init__(self, results, work):
        self.results, self.work = results, work

    def seconds(self, row, side="reel", way=None):
        """The median of a way; of Reel's plain one, or of a peer's best."""
        ways = self.results.get(row, {}).get("times", {}).get(side)
        times = ways and (ways.get(way or "plain") if side == "reel" else next(iter(ways.values())))
        return statistics.median(times) if times else None

    def ratios(self, row, side):
        """Peer / Reel, round by round."""
        times = self.results[row]["times"]
        ways = times.get(side)
        return [peer / own for peer, own in zip(next(iter(ways.values())), times["reel"]["plain"])] if ways else []

    def share(self, row, terms):
        """What share of Reel's time the limit takes, by the limits measured in the same rounds: (median, least, most)."""
        shares = self.shares(row, terms)
        return statistics.median(shares), min(shares), max(shares)

    def shares(self, row, terms):
        own = self.results[row]["times"]["reel"]["plain"]
        return [sum(self.term_seconds(row, term, i) for term in terms) / seconds for i, seconds in enumerate(own)]

    def term_seconds(self, row, term, round_number=None):
        times = self.results[row]["limits"][term["of"]]
        seconds = statistics.median(times) if round_number is None else times[round_number]
        if "count" in term:
            return amount(term["count"]) * seconds
        unit = "bytes" if "bytes" in term else "flops"
        return amount(term[unit]) / self.work[term["of"]][unit] * seconds

    def term_text(self, row, term):
        times = self.results[row]["limits"][term["of"]]
        took = duration(self.term_seconds(row, term))
        name = term["of"].removeprefix("limit_").replace("_", " ")
        what = f" ({term['what']})" if "what" in term else ""
        if "count" in term:
            return f"{amount(term['count']):g} x {name} of {duration(statistics.median(times))}{what} = {took}"
        unit, short = ("bytes", "MB") if "bytes" in term else ("flops", "MFLOP")
        rate = rate_text(self.work[term["of"]], statistics.median(times))
        return f"{amount(term[unit]) / 1e6:.4g} {short} at {rate} of {name}{what} = {took}"

    def stopped_by(self, entry, row):
        """(text, whether the limit excuses a miss), or None without one. It does if Reel reaches the required share of it, or if
        it alone takes longer than the missed bars leave."""
        limit = entry.get("limits", {}).get(row)
        if not limit:
            return None
        terms = limit["limit"] if isinstance(limit["limit"], list) else [limit["limit"]]
        share, least, most = self.share(row, terms)
        text = " + ".join(self.term_text(row, term) for term in terms)
        text = (f"stopped by: {text}; Reel {duration(self.seconds(row))}, {share:.0%} of the limit "
                f"({least:.0%} to {most:.0%}; {limit['share']:.0%} required)")
        left = max((left for left, _, _, met in self.judged(entry, row) if met is False), default=math.inf)
        beyond = share * self.seconds(row) >= left
        return text + (f"; the bar leaves {duration(left)}" if beyond else ""), beyond or share >= limit["share"]

    def undecided(self, entry, row):
        """Whether some rounds meet a bar of the row and some miss it."""
        met = [[ratio >= bar for ratio in self.ratios(row, side)] for side, bar in entry["bars"].items()]
        if "at_most_ns" in entry:
            met.append([own <= entry["at_most_ns"] / 1e9 for own in self.results[row]["times"]["reel"]["plain"]])
        if "at_least_share" in entry:
            met.append([share >= entry["at_least_share"] for share in self.shares(row, [peak(entry, row)])])
        return any(any(rounds) and not all(rounds) for rounds in met)

    def verdicts(self, entry, row):
        """(what is required, what was measured, met) for each bar of the row; met is None where the peer is missing."""
        return [judged[1:] for judged in self.judged(entry, row)]

    def judged(self, entry, row):
        """Verdicts, with the seconds that each bar leaves in front."""
        own = self.seconds(row)
        for side, bar in entry["bars"].items():
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
            beside = self.seconds(other + row[row.index("_sums") + 5:])
            if beside:
                yield beside * most, f"<= {most}x {other}", f"{own / beside:.2f}x", own / beside <= most


def limit_rows(entry, row):
    """The limits that must be measured beside a row."""
    limit = entry.get("limits", {}).get(row, {}).get("limit", [])
    names = [term["of"] for term in (limit if isinstance(limit, list) else [limit])]
    return sorted({*names, *([entry["share_of"]] if "share_of" in entry else [])})


def peak(entry, row):
    """What the multiplications of a product would take at the rate that the entry names."""
    sizes = [int(n) for n in re.findall(r"\d+", row)]
    m, n, k = sizes if len(sizes) == 3 else sizes * 3
    return {"flops": 2 * m * n * k, "of": entry["share_of"]}
