"""Rows are measured one after the other (ops a round of all of them at a time); in each, Reel, its peers and the machine's limits
take turns, round by round."""

import sys
import time

from . import values


# OpenMP's threads spin for some 12 ms after a region, and would take a core from the program whose turn is next.
SETTLE = 0.02


def ask(way, *arguments):
    """A way's or a program's answer, after the one before has come to rest."""
    time.sleep(SETTLE)
    return way.ask(*arguments)


class Progress:
    """One line that is overwritten, or one in half a minute where nobody watches."""

    def __init__(self, total):
        self.total, self.done, self.count, self.begin = total, 0.0, 0, time.monotonic()
        self.shown = self.begin

    def show(self, row, turns, weight):
        now = time.monotonic()
        left = (now - self.begin) / self.done * (self.total - self.done) if self.done else 0
        self.done += weight
        self.count += 1
        text = f"bench: {self.count} of {turns}: {row}; {left / 60:.0f} min left" if left else f"bench: {row}"
        if sys.stderr.isatty():
            print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
        elif now - self.shown > 30:
            self.shown = now
            print(text, file=sys.stderr, flush=True)

    def end(self):
        if sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr, flush=True)


class Limits:
    """What the machine was measured to do at best: all times of each of the program's rows."""

    def __init__(self, program):
        self.program, self.times, self.work = program, {}, {}
        self.sampled = 0.0

    def ask(self, row, seconds):
        answer = ask(self.program, row, seconds)
        self.times.setdefault(row, []).append(answer["seconds"])
        self.work[row] = {"bytes": answer["bytes"], "flops": answer["flops"]}
        return answer["seconds"]

    def sample(self, seconds, every=20):
        """All limits, now and then: machines change."""
        if time.monotonic() - self.sampled > every:
            for row in self.program.rows:
                self.ask(row, seconds)
            self.sampled = time.monotonic()


def best_way(side, row, seconds, answers, problems):
    """The fastest of a peer's ways, each tried twice if there are several."""
    best, ways = {}, side.ways(row)
    if len(ways) == 1:
        return ways[0]
    for _ in range(2):
        for way in list(ways):
            try:
                answers[(side.name, way.name)] = answer = ask(way, seconds)
                best[way] = min(answer["seconds"], best.get(way, answer["seconds"]))
            except RuntimeError as error:
                problems.append(str(error))
                ways.remove(way)
    return min(best, key=best.get) if best else None


# A row whose rounds disagree about its bar takes up to this many times as many.
MOST = 3


def measure_row(row, reel, peers, limits, limit_rows, rounds, seconds, variants=True, beside=(),
                undecided=lambda times, limits: False, limited=lambda times: True):
    """Returns the seconds of each side's ways round by round, half the 90 % intervals over them, the seconds of the limits, the work of
    one call, and whether the sides computed the same; and what peers could not do. Rows of Reel's in `beside` take turns too.
    `undecided` is asked, after the given number of rounds and each further one, whether there shall be another; `limited` after
    the first one whether the limits are measured, in this and the others."""
    answers, problems = {}, []
    entrants = [("reel", way) for way in reel.ways(row) if variants or way.row == row]
    for side in peers:
        way = best_way(side, row, seconds / 3, answers, problems)
        if way:
            entrants.append((side.name, way))
    entrants += [("reel", way) for other in beside for way in reel.ways(other) if way.row == other]
    times, widths = {side: {} for side, _ in entrants}, {side: {} for side, _ in entrants}
    limit_times = {limit: [] for limit in limit_rows}
    for done in range(rounds * MOST):
        if done >= rounds and not undecided(times, limit_times):
            break
        for side, way in list(entrants) if done % 2 == 0 else reversed(entrants):
            name = way.row if way.row in beside else way.name
            so_far = times[side].setdefault(name, [])
            if so_far and so_far[0] > 1 and side == "reel" and name not in ("plain", *beside):
                continue  # a variant that takes seconds is for illustration
            try:
                answer = ask(way, seconds)
                so_far.append(answer["seconds"])
                widths[side].setdefault(name, []).append((answer["high"] - answer["low"]) / 2 / answer["seconds"])
                if name not in beside:
                    answers[(side, name)] = answer
            except RuntimeError as error:
                if side == "reel":
                    raise
                problems.append(str(error))
                entrants = [(other, its_way) for other, its_way in entrants if other != side]
                del times[side]
        if done == 0 and not limited(times):
            limit_rows = ()
        for limit in limit_rows:
            limit_times[limit].append(limits.ask(limit, seconds / 2))
    plain = answers[("reel", "plain")]
    wrong, notes = values.compare(row, answers)
    for side in (reel, *peers):
        side.forget()
    return {"times": times, "widths": widths, "limits": limit_times, "work": {"bytes": plain["bytes"], "flops": plain["flops"]},
            "wrong": wrong, "notes": notes}, problems


def joined(earlier, later):
    """What two calls of measure_row gave for a row, as if they had been one; what both say is wrong is said once."""
    def both(a, b):
        if isinstance(a, list):
            return a + b
        return {key: both(a[key], b[key]) if key in a and key in b else {**a, **b}[key] for key in {**a, **b}}

    return {**later, **{key: both(earlier[key], later[key]) for key in ("times", "widths", "limits")},
            **{key: list(dict.fromkeys(earlier[key] + later[key])) for key in ("wrong", "notes")}}
