"""Rows that are compared with Python programs: `python_rows.py torch`, `numba`, `numpy` or `cuda` (PyTorch on a GPU), and
--rows or --serve.

The protocol is that of runner.h: lines "<row> <seconds> [<threads>]" on stdin, a line of JSON for each on stdout.
"""

import importlib.util
import json
import os
import random
import sys
import time

import numpy as np


SUMS = (100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000)  # as in rows.h
SUMMED = {"1e3x1e3": (1_000, 1_000), "1e4x1e4": (10_000, 10_000), "1e5x100": (100_000, 100), "100x1e5": (100, 100_000)}
PIECE = 2**20  # of what is made at once: 1e8 numbers would take gigabytes of whatever is in between


def inputs(stream, shape, scale=1.0):
    """The same numbers as bench::inputs."""
    count = int(np.prod(shape, dtype=np.int64))
    pieces = [inputs_between(stream, begin, min(begin + PIECE, count), scale) for begin in range(0, count, PIECE)]
    return (np.concatenate(pieces) if pieces else np.empty(0, dtype=np.float32)).reshape(shape)


def inputs_between(stream, begin, end, scale):
    h = np.arange(begin, end).astype(np.uint32) * np.uint32(2654435761)
    h += np.uint32((stream * 2246822519 + 374761393) % 2**32)
    h ^= h >> 15
    h *= np.uint32(2246822519)
    h ^= h >> 13
    h *= np.uint32(3266489917)
    h ^= h >> 16
    values = (h >> 8).astype(np.float32) * np.float32(2.0**-23) - np.float32(1)
    return (values.astype(np.float64) * scale).astype(np.float32)


def digest(arrays):
    values = np.concatenate([np.asarray(a, dtype=np.float32).ravel() for a in arrays]).astype(np.float64)
    weights = inputs(99, values.shape).astype(np.float64)
    return {"weighted": float(values @ weights), "size": float(np.abs(values).sum()), "count": values.size}


def torch_rows():
    # Imported by the rows themselves: it takes seconds, and a list of them needs only to know that it is there.
    if importlib.util.find_spec("torch") is None:
        raise ModuleNotFoundError("No module named 'torch'")

    def tensor(stream, shape, scale=1.0):
        import torch

        return torch.from_numpy(inputs(stream, shape, scale))

    def add_1():
        import torch

        a, b = tensor(1, (1,)), tensor(2, (1,))
        last = []

        def calls(n):
            with torch.inference_mode():
                for _ in range(n):
                    y = a + b
            last[:] = [y.clone().numpy()]

        return calls, lambda: digest(last)

    def mlp(widths, batch):
        import torch

        layers = []
        for i in range(len(widths) - 1):
            if i > 0:
                layers.append(torch.nn.ReLU())
            layers.append(torch.nn.Linear(widths[i], widths[i + 1]))
        net = torch.nn.Sequential(*layers)
        before = []
        with torch.no_grad():
            for i, p in enumerate(net.parameters()):
                scale = 0.1 if p.dim() < 2 else 1 / np.sqrt(float(p[0].numel()))
                before.append(tensor(1000 + i, tuple(p.shape), scale))
                p.copy_(before[-1])
        x = tensor(1, (batch, widths[0]))
        target = torch.from_numpy(((inputs(5, (batch,)).astype(np.float64) + 1) * 0.5 * widths[-1]).astype(np.int64))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)

        def calls(n):
            for _ in range(n):
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(net(x), target).backward()
                optimizer.step()

        return calls, lambda: digest([(p.detach() - start).numpy() for p, start in zip(net.parameters(), before)])

    def adam_step(clips_and_averages):
        import torch

        size = 1000
        w = tensor(1000, (size, size), 1 / np.sqrt(size)).requires_grad_(True)
        x, before = tensor(1, (size, size)), w.detach().clone()
        average = before.clone()
        optimizer = torch.optim.Adam([w], lr=0.01, fused=True)

        def calls(n):
            for _ in range(n):
                optimizer.zero_grad()
                (w * x).sum().backward()
                if clips_and_averages:
                    torch.nn.utils.clip_grad_norm_([w], 100, foreach=True)
                optimizer.step()
                if clips_and_averages:
                    with torch.no_grad():
                        average.lerp_(w, 1 - 0.999)

        def moved():
            yield w.detach() - before
            if clips_and_averages:  # what is clipped shows in the mean of gradients alone
                yield (average - before) / (1 - 0.999)
                yield optimizer.state[w]["exp_avg"]

        return calls, lambda: digest([values.numpy() for values in moved()])

    return {
        "add_1": add_1,
        "adam_1e6": lambda: adam_step(False),
        "adam_1e6_clip_ema": lambda: adam_step(True),
        "mlp_16_32_2_sgd": lambda: mlp([16, 32, 2], 8),
        "mlp_64_64_10_sgd": lambda: mlp([64, 64, 10], 32),
    }


def numba_rows():
    import numba

    # Plain loops over indices: LLVM vectorises them once it may reorder the sum.
    @numba.njit(fastmath=True)
    def total(x):
        s = np.float32(0)
        for i in range(x.size):
            s += x[i]
        return s

    @numba.njit(fastmath=True, parallel=True)
    def parallel_total(x):
        s = np.float32(0)
        for i in numba.prange(x.size):
            s += x[i]
        return s

    ways = {"serial": total, "parallel": parallel_total}

    def sum_of(n, way):
        x = inputs(1, (n,))
        f, last = ways[way], []

        def calls(count):  # from Python, as numba's users call it
            for _ in range(count):
                y = f(x)
            last[:] = [np.array([y])]

        return calls, lambda: digest(last)

    rows = {}
    for n in SUMS:
        rows[f"sum_{n}@serial"] = lambda n=n: sum_of(n, "serial")
        if n >= 100_000:
            rows[f"sum_{n}@parallel"] = lambda n=n: sum_of(n, "parallel")
    return rows


def numpy_rows():
    def sum_of(shape, axis):
        x, last = inputs(1, shape), []

        def calls(count):
            for _ in range(count):
                y = x.sum(axis=axis)
            last[:] = [y]

        return calls, lambda: digest(last)

    rows = {f"sum_{n}": lambda n=n: sum_of((n,), None) for n in SUMS}
    for name, shape in SUMMED.items():
        rows[f"row_sums_{name}"] = lambda shape=shape: sum_of(shape, 1)
        rows[f"column_sums_{name}"] = lambda shape=shape: sum_of(shape, 0)
    return rows


def seconds_of(calls, n):
    begin = time.perf_counter()
    calls(n)
    return time.perf_counter() - begin


def time_slope(calls, budget):
    """As bench::time_slope, without the interval."""
    n = 1
    total = seconds_of(calls, n)
    while total < budget / 50 and total < 0.02:
        n *= 2
        total = seconds_of(calls, n)
    once = total / n
    if once * 12 > budget:
        times = [seconds_of(calls, 1) for _ in range(int(budget / once))]
        return float(np.median(times)) if times else once
    steps, rounds = (8, 3) if once * 108 < budget else (3, 2)
    unit = max(1, round(budget / once / (rounds * steps * (steps + 1) / 2)))
    counts = [unit * step for step in range(1, steps + 1)] * rounds
    random.Random(1).shuffle(counts)
    times = [seconds_of(calls, count) for count in counts]
    counts, times = np.array(counts, dtype=np.float64), np.array(times)
    p, q = np.nonzero(counts[:, None] < counts[None, :])
    slope = float(np.median((times[q] - times[p]) / (counts[q] - counts[p])))
    return slope if slope > 0 else float(np.median(times / counts))  # where the machine was taken away


def threads_setter(library):
    if library == "numpy":  # sums on one
        return lambda threads: None
    return lambda threads: importlib.import_module("torch" if library == "cuda" else library).set_num_threads(threads)


def cuda_rows():
    import cuda_rows

    return cuda_rows.rows(inputs, digest)


def main():
    rows = {"torch": torch_rows, "numba": numba_rows, "numpy": numpy_rows, "cuda": cuda_rows}[sys.argv[1]]()
    if sys.argv[2] == "--rows":
        # Without a pool of threads a row is bound to one.
        bound = [name for name in rows if name.endswith("@serial") or sys.argv[1] == "numpy"]
        print("\n".join(f"{name} {1 if name in bound else 0}" for name in rows))
        return
    set_threads, cores, kept = threads_setter(sys.argv[1]), os.cpu_count() or 1, {}
    for line in sys.stdin:
        if line == "forget\n":
            kept.clear()
            continue
        name, budget, *threads = line.split()
        try:
            set_threads(int(threads[0]) if threads and int(threads[0]) else cores)
            if name not in kept:
                calls, result = rows[name]()
                calls(3)
                kept[name] = calls, result()
            calls, values = kept[name]
            seconds = time_slope(calls, float(budget))
        except Exception as error:  # whatever a peer throws costs that row and no more
            print(f"{name}: {error}", file=sys.stderr)
            print(json.dumps({"row": name, "error": "failed"}), flush=True)
            continue
        print(json.dumps({"row": name, "seconds": seconds, "low": seconds, "high": seconds, "bytes": 0, "flops": 0, **values}),
              flush=True)


if __name__ == "__main__":
    main()
