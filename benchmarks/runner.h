#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace bench {

/// Input i of a stream in [-1, 1), the same numbers in every program that is compared (and in peers/python_rows.py).
inline float input(std::uint32_t stream, std::uint64_t i) {
  std::uint32_t h = static_cast<std::uint32_t>(i) * 2654435761u + stream * 2246822519u + 374761393u;
  h ^= h >> 15, h *= 2246822519u, h ^= h >> 13, h *= 3266489917u, h ^= h >> 16;
  return static_cast<float>(h >> 8) * 0x1p-23f - 1;
}
template <class T = float>
std::vector<T> inputs(std::uint32_t stream, std::int64_t count, double scale = 1) {
  std::vector<T> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<T>(input(stream, i) * scale);
  return values;
}

/// What stands for many numbers when two programs' results are compared: a weighted sum, and the sum of their sizes.
struct Digest {
  double weighted = 0, size = 0;
  std::int64_t count = 0;

  void add(double value) {
    weighted += value * static_cast<double>(input(99, static_cast<std::uint64_t>(count++)));
    size += std::fabs(value);
  }
  template <class T>
  void add(const T* values, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) add(static_cast<double>(values[i]));
  }
};

/// Something to be timed.
struct Work {
  std::function<void(std::int64_t)> calls;  // makes so many calls in a row
  std::function<Digest()> digest;           // of the last call's result
  std::function<Digest()> exact = {};       // of the result in double precision, where f32 may be far off
  double bytes = 0, flops = 0;              // of one call, where a table shows rates
};

/// One row of the tables. `name` may end in "@variant" where there are several ways to do the same.
struct Row {
  std::string name;
  int threads;  // 0: as many as there are cores
  std::function<Work()> make;
  int warm_calls = 3;  // before the digest is taken; 0: calls are so long that it is taken after those that are timed
};

template <class F>
std::function<void(std::int64_t)> repeated(F f) {
  return [f](std::int64_t n) mutable {
    for (std::int64_t i = 0; i < n; ++i) f();
  };
}

/// n calls of f, the last of which leaves its result in `last`. The others' results are gone before the next call, which may
/// take their memory: it is still near.
template <class Result, class F>
void call_repeatedly(std::int64_t n, Result& last, F f) {
  for (std::int64_t i = 1; i < n; ++i) f();
  if (n > 0) last = f();
}

/// Main program of one side. `--rows` lists the rows and how many threads each is bound to (0: any). `--serve` reads lines
/// "<row> <seconds> [<threads>]", times that row by slope for about so long, and answers each with one line of JSON: row,
/// seconds, low, high, digest, and what else the row's work tells. What a row needs is kept for the next time that it is
/// asked for; the line "forget" gives it back. `--calls <row> <n> [<threads>]` makes n calls of a row and no more, for
/// tools that count; on one thread unless told.
/// Threads are set by `set_threads`. Returns the exit status; -1 for anything else.
int serve(int argc, char** argv, const std::vector<Row>& rows, const std::function<void(int)>& set_threads);

}  // namespace bench
