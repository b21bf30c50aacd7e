#!/usr/bin/env python3
"""The judgement of scripts/bench, on made-up measurements: bars, limits that excuse a missed one, values, missing peers."""

import contextlib
import io
import itertools
import json
import random
import sys
import tempfile
import types
import unittest
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))
sys.dont_write_bytecode = True

import bench
import gpu_bench
from harness import judge, measure, plots, programs, report, suites, summary, values

measure.SETTLE = 0  # nothing here spins


def result(reel, limits=None, **peers):
    """Seconds of each round of Reel and of peers."""
    return {"times": {"reel": {"plain": reel}, **{name: {"plain": times} for name, times in peers.items()}},
            "limits": limits or {}, "work": {"bytes": 0, "flops": 0}, "wrong": [], "notes": []}


def judged(entry, outcome, work=None):
    """The bars' tables of one row, and what failed."""
    entry = {"group": "G", "rows": ["row"], "bars": {}, **entry}
    lines, failures = report.bars_tables([entry], judge.Judge({"row": outcome}, work or {}), ["torch"])
    return "\n".join(lines), failures


class Bars(unittest.TestCase):
    def test_a_ratio_is_the_median_over_rounds(self):
        lines, failures = judged({"bars": {"torch": 2}}, result([1, 1, 1], torch=[2.1, 1, 9]))
        self.assertEqual(failures, [])
        self.assertIn("**2.10x** (1.00 to 9.00)", lines)
        self.assertIn("2.10x met", lines)

    def test_a_missed_bar_fails(self):
        lines, failures = judged({"bars": {"torch": 2}}, result([1, 1, 1], torch=[1.9, 1.9, 1.9]))
        self.assertEqual(failures, ["row: >= 2x torch, measured 1.90x"])
        self.assertIn("**missed**", lines)

    def test_a_bar_met_exactly_is_met(self):
        self.assertEqual(judged({"bars": {"torch": 2}}, result([1], torch=[2]))[1], [])

    def test_a_bar_is_held_to_the_peers_faster_layout(self):
        for other, measured in ((1.5, "1.50x **missed**"), (2.5, "2.20x met")):
            outcome = result([1, 1, 1], torch=[2.2, 2.2, 2.2], **{"torch channels last": [other] * 3})
            lines, failures = judged({"bars": {"torch": 2}}, outcome)
            self.assertIn(measured, lines)
            self.assertEqual(failures, [] if other > 2 else ["row: >= 2x torch channels last, measured 1.50x"])

    def test_verdicts_are_counted_and_misses_named(self):
        lines, _ = judged({"bars": {"torch": 2, "absent": 1}, "at_most_ns": 2e9}, result([1], torch=[1.9]))
        self.assertIn("Of 2 bars 1 are met, 0 are not but Reel is at the limit recorded for the row, and 1 are missed: `row`.", lines)
        self.assertNotIn("bars", judged({}, result([1]))[0].split("###")[0])

    def test_a_missing_peer_is_named_and_fails_nothing(self):
        lines, failures = judged({"bars": {"torch": 2}}, result([1]))
        self.assertEqual(failures, [])
        self.assertIn("absent", lines)

    def test_a_time_may_be_bounded(self):
        self.assertEqual(judged({"at_most_ns": 30}, result([29e-9]))[1], [])
        self.assertEqual(len(judged({"at_most_ns": 30}, result([31e-9]))[1]), 1)

    def test_a_share_of_the_peak_may_be_required(self):
        entry = {"group": "G", "rows": ["gemm_100"], "bars": {}, "share_of": "limit_fma", "at_least_share": 0.9}
        for seconds, failures in ((1.1, 0), (1.2, 1)):  # 2e6 FLOP, which the machine does in 1 s
            outcome = judge.Judge({"gemm_100": result([seconds], {"limit_fma": [0.5]})},
                                  {"limit_fma": {"bytes": 0, "flops": 1e6}})
            self.assertEqual(len(report.bars_tables([entry], outcome, [])[1]), failures)

    def test_rounds_may_disagree_about_a_bar(self):
        def undecided(entry, row="row", limits=None, work=None, **outcome):
            return judge.Judge({row: result(limits=limits, **outcome)}, work or {}).undecided({"bars": {}, **entry}, row)

        self.assertTrue(undecided({"bars": {"torch": 2}}, reel=[1, 1, 1], torch=[1.9, 3, 3]))
        self.assertFalse(undecided({"bars": {"torch": 2}}, reel=[1, 1, 1], torch=[2, 3, 9]))
        self.assertFalse(undecided({"bars": {"torch": 2}}, reel=[1, 1, 1], torch=[1.1, 1.5, 1.9]))
        self.assertFalse(undecided({"bars": {"torch": 2}}, reel=[1, 2, 3]))
        for times, expected in (([2.0], False), ([1.9], True), ([1.9, 1.9], True), ([1.9] * 3, False)):
            self.assertEqual(expected, undecided({"bars": {"torch": 2}}, reel=[1] * len(times), torch=times))
        self.assertTrue(undecided({"at_most_ns": 30}, reel=[29e-9, 31e-9]))
        self.assertFalse(undecided({"at_most_ns": 30}, reel=[29e-9, 30e-9]))
        for times, expected in (([1.1, 1.2], True), ([1.0, 1.1], False)):  # 2e6 FLOP, which the machine does in 1 s
            self.assertEqual(expected, undecided({"share_of": "limit_fma", "at_least_share": 0.9}, "gemm_100",
                                                 {"limit_fma": [0.5, 0.5]}, {"limit_fma": {"bytes": 0, "flops": 1e6}}, reel=times))

    def test_columns_are_held_to_rows_of_the_same_rounds(self):
        entry = {"group": "G", "rows": ["column_sums_a"], "bars": {}, "at_most_times": {"row_sums": 1.1}}
        self.assertEqual(judge.rows_beside(entry, "column_sums_a"), ["row_sums_a"])
        for columns, failures, undecided in (([1.05, 2.1, 1], 0, False), ([1.2, 2.4, 1.2], 1, False), ([1, 2.4, 1], 0, True)):
            outcome = result(columns)
            outcome["times"]["reel"]["row_sums_a"] = [1, 2, 1]
            outcome = judge.Judge({"column_sums_a": outcome, "row_sums_a": result([9])}, {})
            self.assertEqual(len(report.bars_tables([entry], outcome, [])[1]), failures)
            self.assertEqual(outcome.undecided(entry, "column_sums_a"), undecided)


class Limits(unittest.TestCase):
    WORK = {"limit_write": {"bytes": 100e6, "flops": 0}, "limit_parallel_region": {"bytes": 0, "flops": 0}}

    def entry(self, limit, share=0.85):
        return {"bars": {"torch": 2}, "limits": {"row": {"limit": limit, "share": share}}}

    def test_a_missed_bar_at_the_limit_passes_and_is_explained(self):
        # 50 MB at 10 GB/s: 5 ms of Reel's 5.5 ms
        outcome = result([5.5e-3] * 3, {"limit_write": [10e-3] * 3}, torch=[6e-3] * 3)
        lines, failures = judged(self.entry({"bytes": "50 * 1e6", "of": "limit_write"}), outcome, self.WORK)
        self.assertEqual(failures, [])
        self.assertIn("stopped by: 50 MB at 10 GB/s of write = 5 ms; Reel 5.5 ms, 91% of the limit", lines)
        self.assertIn("at the limit", lines)

    def test_a_missed_bar_far_from_its_limit_fails(self):
        # The limit is 5 ms, the bar leaves 6.
        outcome = result([8e-3] * 3, {"limit_write": [10e-3] * 3}, torch=[12e-3] * 3)
        lines, failures = judged(self.entry({"bytes": 50e6, "of": "limit_write"}), outcome, self.WORK)
        self.assertEqual(len(failures), 1)
        self.assertIn("62% of the limit", failures[0])
        self.assertIn("**missed**", lines)

    def test_a_bar_beyond_the_limit_passes_and_is_explained(self):
        # The limit is 5 ms, the bar leaves 4.
        outcome = result([8e-3] * 3, {"limit_write": [10e-3] * 3}, torch=[8e-3] * 3)
        lines, failures = judged(self.entry({"bytes": 50e6, "of": "limit_write"}), outcome, self.WORK)
        self.assertEqual(failures, [])
        self.assertIn("62% of the limit (62% to 62%; 85% required); the bar leaves 4 ms", lines)
        self.assertIn("at the limit", lines)

    def test_a_bar_beyond_the_limit_excuses_nobody_who_is_slower_than_a_peer(self):
        outcome = result([8e-3] * 3, {"limit_write": [10e-3] * 3}, torch=[7e-3] * 3)
        self.assertEqual(len(judged(self.entry({"bytes": 50e6, "of": "limit_write"}), outcome, self.WORK)[1]), 1)

    def test_a_limit_that_is_beaten_excuses_nobody(self):
        # The limit is 5 ms; Reel, or a peer, takes 4.
        for reel, torch in ((4e-3, 6e-3), (5.5e-3, 4e-3)):
            outcome = result([reel] * 3, {"limit_write": [10e-3] * 3}, torch=[torch] * 3)
            lines, failures = judged(self.entry({"bytes": 50e6, "of": "limit_write"}), outcome, self.WORK)
            self.assertEqual(len(failures), 1)
            self.assertIn("which is none: 4 ms was measured", lines)

    def test_every_missed_bar_must_be_beyond_the_limit(self):
        # One bar leaves 4 ms, the other 6.
        outcome = result([8e-3] * 3, {"limit_write": [10e-3] * 3}, torch=[8e-3] * 3, other=[12e-3] * 3)
        entry = self.entry({"bytes": 50e6, "of": "limit_write"})
        entry["bars"] = {"torch": 2, "other": 2}
        self.assertEqual(len(judged(entry, outcome, self.WORK)[1]), 2)

    def test_the_limit_is_that_of_the_same_round(self):
        outcome = result([5e-3, 10e-3, 8e-3], {"limit_write": [10e-3, 16e-3, 8e-3]})
        terms = [{"bytes": 50e6, "of": "limit_write"}]
        self.assertEqual(judge.Judge({"row": outcome}, self.WORK).share("row", terms), (0.8, 0.5, 1))
        # Where none was measured beside the row, that of the whole run, at its best but for slips of the clock.
        outcome["limits"] = {}
        outcome = judge.Judge({"row": outcome}, self.WORK, {"limit_write": [90e-3, 10e-3, 1e-3, 10e-3, 20e-3]})
        self.assertEqual(outcome.share("row", terms), (0.625, 0.5, 1))

    def test_of_several_limits_the_longest_counts(self):
        work = {**self.WORK, "limit_fma": {"bytes": 0, "flops": 1e9}}
        entry = self.entry({"bytes": 50e6, "of": "limit_write"})
        entry["limits"]["row"] = [entry["limits"]["row"], {"limit": {"flops": 2e9, "of": "limit_fma"}, "share": 0.9}]
        self.assertEqual(judge.limit_rows(entry, "row"), ["limit_fma", "limit_write"])
        for fma, required, failed in ((2e-3, "85%", 0), (2.6e-3, "90%", 1)):
            outcome = result([5.8e-3] * 3, {"limit_write": [10e-3] * 3, "limit_fma": [fma] * 3}, torch=[11e-3] * 3)
            lines, failures = judged(entry, outcome, work)
            self.assertEqual(len(failures), failed)
            self.assertIn(f"{required} required", lines)
        # A limit that was disturbed stands in nobody's way.
        outcome = result([5.5e-3] * 3, {"limit_write": [10e-3] * 3, "limit_fma": [3.5e-3] * 3}, torch=[6e-3] * 3)
        lines, failures = judged(entry, outcome, work)
        self.assertEqual(failures, [])
        self.assertIn("91% of the limit", lines)

    def test_terms_add_up(self):
        terms = [{"bytes": 50e6, "of": "limit_write"}, {"count": 2, "of": "limit_parallel_region", "what": "two regions"}]
        outcome = result([9e-3], {"limit_write": [10e-3], "limit_parallel_region": [1e-3]}, torch=[10e-3])
        lines, failures = judged(self.entry(terms, 0.7), outcome, self.WORK)
        self.assertEqual(failures, [])
        self.assertIn("2 x parallel region of 1 ms (two regions) = 2 ms", lines)

    def test_what_is_told_beside_a_limit_excuses_nothing(self):
        outcome = result([8e-3] * 3, {"limit_write": [10e-3] * 3, "limit_handed_over": [35e-6, 36e-6, 130e-6]}, torch=[12e-3] * 3)
        entry = self.entry({"bytes": 50e6, "of": "limit_write"})
        entry["limits"]["row"]["beside"] = "limit_handed_over"
        self.assertEqual(judge.limit_rows(entry, "row"), ["limit_handed_over", "limit_write"])
        lines, failures = judged(entry, outcome, self.WORK)
        self.assertEqual(len(failures), 1)
        self.assertIn("85% required); handed over took 36 us (35 us to 130 us)", lines)

    def test_a_bar_that_is_met_needs_no_excuse(self):
        outcome = result([1e-3], {"limit_write": [10e-3]}, torch=[6e-3])
        self.assertNotIn("of the limit", judged(self.entry({"bytes": 50e6, "of": "limit_write"}), outcome, self.WORK)[0])

    def test_an_excuse_names_what_is_measured(self):
        bars = json.loads((ROOT / "benchmarks/bars.json").read_text())
        source = (ROOT / "benchmarks/limits.cpp").read_text()
        for entry in bars["rows"]:
            for row in entry.get("limits", {}):
                self.assertIn(row, entry["rows"])
                for limit in judge.limits_of(entry, row):
                    self.assertTrue(0 < limit["share"] <= 1)
            for row in entry["rows"]:
                for limit in judge.limit_rows(entry, row):
                    self.assertIn(f'"{limit}"', source)


def digest(weighted, size=1.0, count=3, **more):
    return {"weighted": weighted, "size": size, "count": count, **more}


class Values(unittest.TestCase):
    def test_what_agrees_passes(self):
        self.assertEqual(values.compare("row", {("reel", "plain"): digest(1), ("torch", "plain"): digest(1.00005)}), ([], []))

    def test_other_values_fail(self):
        for other in (digest(1.001), digest(1, size=1.001), digest(1, count=4), digest(float("nan")), digest(1, size=float("nan"))):
            self.assertEqual(len(values.compare("row", {("reel", "plain"): digest(1), ("torch", "plain"): other})[0]), 1)

    def test_many_values_hide_no_error(self):
        numbers = random.Random(1)
        exact = [numbers.uniform(-1, 1) for _ in range(100_000)]
        weights = [numbers.uniform(-1, 1) for _ in exact]

        def digest_of(numbers):
            return digest(sum(x * w for x, w in zip(numbers, weights)), sum(map(abs, numbers)), len(numbers))

        for wrong, told in (([x * (1 + numbers.gauss(0, 1e-6)) for x in exact], False), ([x * 1.001 for x in exact], True),
                            ([x * (1 + numbers.gauss(0, 0.01)) for x in exact], True), ([0.0] * len(exact), True)):
            answers = {("reel", "plain"): digest_of(exact), ("torch", "plain"): digest_of(wrong)}
            self.assertEqual(bool(values.compare("row", answers)[0]), told)

    def test_training_that_does_nothing_is_told_from_training(self):
        moved, still, rounded = digest(1e-3, size=1e-2), digest(0, size=0), digest(1.00003e-3, size=1.00003e-2)
        self.assertEqual(len(values.compare("mlp_1_sgd", {("reel", "plain"): moved, ("torch", "plain"): still})[0]), 1)
        self.assertEqual(values.compare("mlp_1_sgd", {("reel", "plain"): moved, ("torch", "plain"): rounded})[0], [])

    def test_each_side_is_judged_by_the_exact_result(self):
        own = digest(1, exact_weighted=1.0, exact_size=1.0, exact_count=3)
        faults, notes = values.compare("row", {("reel", "plain"): own, ("numba", "plain"): digest(1.0005)})
        self.assertEqual((len(faults), len(notes)), (0, 1))
        self.assertIn("numba", notes[0])
        faults, _ = values.compare("row", {("reel", "plain"): {**own, "weighted": 1.0005}, ("numba", "plain"): digest(1)})
        self.assertEqual(len(faults), 1)
        self.assertIn("reel", faults[0])
        faults, _ = values.compare("row", {("reel", "plain"): own, ("numba", "plain"): digest(1.5)})
        self.assertEqual(len(faults), 1)

    def test_reels_other_ways_are_compared_too(self):
        answers = {("reel", "plain"): digest(1), ("reel", "unfused"): digest(2)}
        self.assertIn("unfused", values.compare("row", answers)[0][0])


class FakeProgram:
    """Answers with made-up times: {row: seconds}."""

    setting = ""

    def __init__(self, seconds):
        self.rows, self.seconds, self.asked = {row: 0 for row in seconds}, seconds, []

    def ask(self, row, seconds, threads=0):
        self.asked.append((row, threads))
        time = self.seconds[row]
        if time is None:
            raise RuntimeError(f"{row} failed")
        time = time(threads) if callable(time) else time
        return {"seconds": time, "low": 0.9 * time, "high": 1.1 * time, "bytes": 8, "flops": 0, **digest(1)}

    def forget(self):
        pass


class Measuring(unittest.TestCase):
    def measure(self, reel, peers, rounds=5, limit_rows=()):
        limits = measure.Limits(FakeProgram({"limit_copy": 1.0}))
        return measure.measure_row("row", programs.Side("reel", [reel]), peers, limits, limit_rows, rounds, 0.1)

    def test_a_peer_goes_its_fastest_way(self):
        slow, fast = FakeProgram({"row": 3.0}), FakeProgram({"row@other": lambda threads: 2.0 if threads == 1 else 2.5})
        outcome, _ = self.measure(FakeProgram({"row": 1.0}), [programs.Side("torch", [slow, fast], (2, 1))])
        self.assertEqual(outcome["times"]["torch"], {"other, 1 thread": [2.0] * 5})

    def test_the_way_that_a_peer_went_is_told(self):
        outcome = result([1.0])
        outcome["times"]["torch"] = {"jemalloc, 1 thread": [2.0]}
        self.assertIn("| torch (jemalloc, 1 thread) 2 s, **2.00x**", judged({"bars": {"torch": 2}}, outcome)[0])

    def test_limits_are_measured_in_every_round(self):
        outcome, _ = self.measure(FakeProgram({"row": 1.0}), [], 7, ["limit_copy"])
        self.assertEqual(outcome["limits"], {"limit_copy": [1.0] * 7})

    def test_other_rows_take_turns_beside(self):
        reel = FakeProgram({"row": 1.0, "other": 2.0, "other@way": 3.0})
        outcome, _ = measure.measure_row("row", programs.Side("reel", [reel]), [], measure.Limits(None), [], 5, 0.1, beside=["other"])
        self.assertEqual(outcome["times"]["reel"], {"plain": [1.0] * 5, "other": [2.0] * 5})

    def test_intervals_are_kept(self):
        outcome, _ = self.measure(FakeProgram({"row": 1.0}), [])
        spread = judge.Judge({"row": outcome}, {}).spread("row")
        self.assertAlmostEqual(spread, 0.1)
        self.assertEqual(report.times_cell(judge.Judge({"row": outcome}, {}), "row"), "1 s ± 10%")

    def test_rounds_go_on_while_they_disagree(self):
        def rounds_until(enough):
            side = programs.Side("reel", [FakeProgram({"row": 1.0})])
            outcome, _ = measure.measure_row("row", side, [], measure.Limits(FakeProgram({"limit_copy": 1.0})), ["limit_copy"], 5,
                                             0.1, undecided=lambda times, limits: len(limits["limit_copy"]) < enough)
            self.assertEqual(len(outcome["limits"]["limit_copy"]), len(outcome["times"]["reel"]["plain"]))
            return len(outcome["times"]["reel"]["plain"])

        self.assertEqual([rounds_until(enough) for enough in (0, 5, 8, 100)], [5, 5, 8, 15])

    def test_rounds_of_two_calls_are_joined(self):
        reel = FakeProgram({"row": 1.0})
        first, _ = self.measure(reel, [], 2, ["limit_copy"])
        reel.seconds["row"] = 3.0
        second, _ = self.measure(reel, [], 3, ["limit_copy"])
        outcome = measure.joined(first, second)
        self.assertEqual(outcome["times"]["reel"]["plain"], [1.0] * 2 + [3.0] * 3)
        self.assertEqual(len(outcome["widths"]["reel"]["plain"]), 5)
        self.assertEqual(outcome["limits"], {"limit_copy": [1.0] * 5})
        self.assertEqual(outcome["work"], {"bytes": 8, "flops": 0})

    def test_joined_rounds_tell_a_fault_once_and_keep_a_side_that_one_of_them_lacks(self):
        first, second = result([1.0], torch=[2.0]), result([3.0], numba=[4.0])
        for outcome in (first, second):
            outcome.update(widths={}, wrong=["wrong"], notes=["noted"])
        outcome = measure.joined(first, second)
        self.assertEqual(outcome["times"], {"reel": {"plain": [1.0, 3.0]}, "torch": {"plain": [2.0]}, "numba": {"plain": [4.0]}})
        self.assertEqual((outcome["wrong"], outcome["notes"]), (["wrong"], ["noted"]))

    def test_ops_are_measured_round_after_round(self):
        program = FakeProgram({"add#l2": 1.0, "mul#l2": 2.0, "sum_100": 3.0})
        options, results = types.SimpleNamespace(quick=False, rounds=3, rows=""), {}
        rounds, broken = bench.measure_all(["ops", "sums"], [], programs.Side("reel", [program]),
                                           measure.Limits(FakeProgram({})), [], options, results)
        self.assertEqual((rounds, broken), (3, []))
        self.assertEqual([row for row, *_ in program.asked], ["sum_100"] * 3 + ["add#l2", "mul#l2"] * 3)
        self.assertEqual(results["mul#l2"]["times"]["reel"]["plain"], [2.0] * 3)

    def test_quick_measures_limits_only_where_a_bar_is_missed(self):
        limit = {"limit": {"count": 1, "of": "limit_copy"}, "share": 0.85}
        bars = [{"rows": ["fast", "slow"], "bars": {"torch": 2}, "limits": {"fast": limit, "slow": limit}}]
        reel, torch = FakeProgram({"fast": 1.0, "slow": 1.0}), FakeProgram({"fast": 3.0, "slow": 1.5})
        for quick, taken in ((True, {"fast": 0, "slow": 3}), (False, {"fast": 5, "slow": 5})):
            results, limits = {}, measure.Limits(FakeProgram({"limit_copy": 0.5}))
            options = types.SimpleNamespace(quick=quick, rounds=5, rows="")
            bench.measure_all(["bars"], bars, programs.Side("reel", [reel]), limits, [programs.Side("torch", [torch])], options, results)
            self.assertEqual({row: len(outcome["limits"]["limit_copy"]) for row, outcome in results.items()}, taken)

    def test_quick_leaves_out_rows_of_400_mb(self):
        bars = [{"rows": ["row_sums_1e4x1e4", "row_sums_1e5x100"]}]
        self.assertEqual(suites.rows_of("bars", bars, [], quick=True), ["row_sums_1e5x100"])
        self.assertEqual(suites.rows_of("bars", bars, [], quick=False), bars[0]["rows"])

    def test_an_op_that_fails_in_a_later_round_is_left_out_and_told_once(self):
        class Dies(FakeProgram):
            def ask(self, row, seconds, threads=0):
                if row == "mul#l2" and (row, threads) in self.asked:
                    self.seconds[row] = None
                return super().ask(row, seconds, threads)

        program, results = Dies({"add#l2": 1.0, "mul#l2": 2.0}), {}
        _, broken = bench.measure_all(["ops"], [], programs.Side("reel", [program]), measure.Limits(FakeProgram({})), [],
                                      types.SimpleNamespace(quick=False, rounds=5, rows=""), results)
        self.assertEqual((list(results), broken), (["add#l2"], ["mul#l2 failed"]))

    def test_a_peer_that_fails_is_left_out_and_named(self):
        outcome, problems = self.measure(FakeProgram({"row": 1.0}), [programs.Side("torch", [FakeProgram({"row": None})])])
        self.assertNotIn("torch", outcome["times"])
        self.assertEqual(problems, ["row failed"])

    def test_a_peer_that_fails_later_is_left_out_too(self):
        class Dies(FakeProgram):
            def ask(self, row, seconds, threads=0):
                if len(self.asked) == 3:
                    raise RuntimeError("it died")
                return super().ask(row, seconds, threads)

        outcome, problems = self.measure(FakeProgram({"row": 1.0}), [programs.Side("torch", [Dies({"row": 1.0})])])
        self.assertEqual(list(outcome["times"]), ["reel"])
        self.assertEqual(len(outcome["times"]["reel"]["plain"]), 5)
        self.assertEqual(problems, ["it died"])

    def test_reel_that_fails_gives_no_result(self):
        with self.assertRaises(RuntimeError):
            self.measure(FakeProgram({"row": None}), [])


class Documents(unittest.TestCase):
    def test_a_machine_that_changes_is_told_of(self):
        limits = measure.Limits(None)
        limits.times["limit_copy"] = [3.0, 3.0, 3.0, 3.0]
        for times, part in (([1.0, 1.0, 1.2, 1.2], ""), ([1.0] * 9 + [2.0], ""), ([1.0, 1.0, 1.0, 2.0], "25%"),
                            ([1.0, 1.0, 2.0, 2.0], "50%"), ([1.0, 2.0, 2.0, 2.0], "75%")):
            told = f"at the best quarter: fma 1 {part}." if part else ""
            limits.times["limit_fma_1"] = times
            self.assertIn(told, bench.disturbance(limits))
            self.assertEqual(bool(told), bool(bench.disturbance(limits)))

    def test_a_users_cost_has_bars(self):
        cost = {"reel": {"start-up": 1e-3, "resident memory": 5e6}, "torch": {"start-up": 30e-3, "resident memory": 100e6}}
        lines, failures = report.users_table(cost, {"start-up": 40, "resident memory": 15})
        self.assertEqual(failures, ["start-up: >= 40x torch, measured 30.0x"])
        self.assertIn("20.0x", "\n".join(lines))

    def test_the_measured_part_alone_is_replaced(self):
        page = f"before\n{summary.BEGIN}\nold\n{summary.END}\nafter\n"
        self.assertEqual(summary.with_measured(page, "new"), page.replace("old", "new"))

    def test_the_readme_has_the_figures_of_the_pages(self):
        readme = (ROOT / "README.md").read_text()
        pages = [(ROOT / page).read_text() for page in summary.PAGES]
        try:
            paragraph = summary.paragraph(pages)
        except ValueError as error:
            self.skipTest(f"measured without a peer: {error}")
        self.assertEqual(readme, summary.with_measured(readme, paragraph))

    def test_a_figure_is_found_by_row_and_peer(self):
        page = ("Measured 2026-01-02 by x\n| a_1 | 7 us | torch (x, 1 thread) 8 us, **1.14x** (1 to 2); torch last 9.5 ms, "
                "**2.00x** (1 to 3); eigen 3 us, **0.50x** (0 to 1) | - | - |\n")
        found = {name: summary.figure(page, name) for name in ("date", "a_1", "a_1/torch", "a_1/torch last", "a_1/eigen")}
        self.assertEqual(list(found.values()), ["2026-01-02", "7 us", "1.14", "2.00", "0.50"])
        for name in ("b_1", "a_1/onednn", "a_1/last"):
            with self.assertRaises(ValueError):
                summary.figure(page, name)

    def test_the_documents_have_the_markers(self):
        pages = {}
        for intel in (False, True):
            for flags in ("avx2", "avx2 avx512f"):
                with mock.patch.object(programs, "cpu_flags", return_value=flags.split()), \
                     mock.patch.object(programs, "cpu_is_intel", return_value=intel):
                    pages[intel, flags] = bench.page()
                    self.assertEqual(bench.page(avx2=True), "performance-avx2")
        self.assertEqual(pages, {(False, "avx2"): "performance-avx2", (False, "avx2 avx512f"): "performance",
                                 (True, "avx2"): "performance-avx2", (True, "avx2 avx512f"): "performance-intel"})
        names = set(pages.values())
        for name in names:
            text = (ROOT / f"docs/{name}.md").read_text()
            self.assertLess(text.index(summary.BEGIN), text.index(summary.END))

    def test_plots_are_xml(self):
        from xml.etree import ElementTree

        ElementTree.fromstring(plots.lines("a < b", "x", "y", {"one": [(1, 2.0), (10, 0.5)]}, (1, 10), one=True))
        ElementTree.fromstring(plots.bars("a & b", "x", [("row", {"n = 1": 3.0, "n = 2": 4.0})]))
        self.assertIsNone(plots.lines("nothing", "x", "y", {}, (1, 10)))

    def test_no_row_has_two_bars(self):
        bars = json.loads((ROOT / "benchmarks/bars.json").read_text())["rows"]
        rows = [row for entry in bars for row in entry["rows"]]
        self.assertEqual(len(rows), len(set(rows)))
        self.assertEqual(suites.rows_of("bars", bars, [], quick=False), rows)

    def test_quick_leaves_out_what_takes_long_to_compile_unless_it_is_named(self):
        self.assertEqual(suites.chosen([], quick=False), list(suites.SUITES))
        self.assertEqual(set(suites.SUITES) - set(suites.chosen([], quick=True)), {"ladder", "ops", "users"})
        self.assertEqual(suites.chosen(["ops", "users"], quick=True), ["ops", "users"])


class OnAGpu(unittest.TestCase):
    def test_bars_are_met_or_missed_or_have_no_peer(self):
        outcome = judge.Judge({"conv_1_8": result([1.0], torch=[2.5]), "conv_1_16": result([1.0], torch=[1.5]),
                               "conv_1x1": result([1.0])}, {})
        lines, missed, met, absent = gpu_bench.tables(outcome, True)
        self.assertEqual(([(row, kind) for row, kind, *_ in missed], met, absent), ([("conv_1_16", "torch")], 1, 1))
        self.assertIn("| >= 1.0x | absent |", "\n".join(lines))
        self.assertIn("2.50x met", "\n".join(lines))
        self.assertIn("1.50x **missed**", "\n".join(lines))


class ExitStatus(unittest.TestCase):
    """The whole program on made-up programs: it fails on a missed bar, and on nothing else."""

    def run_bench(self, torch_seconds, reel_seconds=1.0, rows=("row",)):
        bars = json.dumps({"users": {}, "rows": [{"group": "G", "rows": rows, "bars": {"torch": 2}}]})
        sides = (programs.Side("reel", [FakeProgram({"row": reel_seconds})]), FakeProgram({"limit_copy": 1.0}),
                 [programs.Side("torch", [FakeProgram({"row": torch_seconds})])], ["numba"])
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(programs, "find_sides", return_value=sides), \
                mock.patch.object(programs, "exit_without"), mock.patch.object(json, "loads", return_value=json.loads(bars)), \
                contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as errors:
            (Path(folder) / "benchmarks").mkdir()
            arguments = ["bench", "--build", folder, "--peers", folder, "--python", sys.executable, "--suite", "bars"]
            with mock.patch.object(sys, "argv", arguments), self.assertRaises(SystemExit) as end:
                bench.main()
        return end.exception.code, out.getvalue(), errors.getvalue()

    def test_a_bar_met(self):
        code, out, errors = self.run_bench(2.5)
        self.assertEqual(code, 0)
        self.assertIn("2.50x met", out)
        self.assertIn("Not measured, as they are not here: numba", out)
        self.assertIn("0 failures", errors)

    def test_a_bar_missed(self):
        code, _, errors = self.run_bench(1.5)
        self.assertEqual(code, 1)
        self.assertIn("row: >= 2x torch, measured 1.50x", errors)

    def test_a_row_whose_rounds_disagree_about_its_bar_is_measured_longer(self):
        for low, high, rounds in ((1.5, 2.5, 15), (2.1, 2.5, 5), (1.5, 1.9, 5)):
            times = itertools.cycle([low, high])
            with mock.patch.object(judge.Judge, "ratios", autospec=True, side_effect=judge.Judge.ratios) as ratios:
                self.run_bench(lambda threads: next(times))
            self.assertEqual(len(ratios.call_args.args[0].results["row"]["times"]["reel"]["plain"]), rounds)

    def test_a_bar_without_a_row(self):
        code, _, errors = self.run_bench(2.5, rows=("row", "gone"))
        self.assertEqual(code, 1)
        self.assertIn("gone: bars.json holds it to a bar, and no program has it", errors)

    def test_reel_that_fails(self):
        code, _, errors = self.run_bench(2.5, reel_seconds=None)
        self.assertEqual(code, 1)
        self.assertIn("row failed", errors)


if __name__ == "__main__":
    unittest.main()
