#include "runner.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <map>
#include <sstream>
#include <string_view>
#include <thread>

#include "slope.h"

namespace bench {

namespace {

/// A row's work, made once, and what its warm calls gave.
struct Kept {
  Work work;
  std::string values;  // the digests, as JSON
};

std::string json(const char* prefix, const Digest& digest) {
  char text[200];
  std::snprintf(text, sizeof text, ", \"%sweighted\": %.12g, \"%ssize\": %.12g, \"%scount\": %lld", prefix,
                digest.weighted, prefix, digest.size, prefix, static_cast<long long>(digest.count));
  return text;
}

std::string values_of(const Work& work) {
  return json("", work.digest()) + (work.exact ? json("exact_", work.exact()) : "");
}

void answer(const Row& row, double budget_seconds, std::map<std::string, Kept>& all_kept) {
  const auto [found, made] = all_kept.try_emplace(row.name);
  Kept& kept = found->second;
  if (made) kept.work = row.make();
  if (made && row.warm_calls > 0) {
    kept.work.calls(row.warm_calls);
    kept.values = values_of(kept.work);
  }
  const Slope slope = time_slope(kept.work.calls, budget_seconds);
  if (kept.values.empty()) kept.values = values_of(kept.work);
  std::printf(
      "{\"row\": \"%s\", \"seconds\": %.6g, \"low\": %.6g, \"high\": %.6g, \"bytes\": %.9g, \"flops\": %.9g%s}\n",
      row.name.c_str(), slope.seconds, slope.low, slope.high, kept.work.bytes, kept.work.flops, kept.values.c_str());
}

}  // namespace

int serve(int argc, char** argv, const std::vector<Row>& rows, const std::function<void(int)>& set_threads) {
  const std::string_view mode = argc > 1 ? argv[1] : "";
  if (mode == "--rows") {
    for (const Row& row : rows) std::printf("%s %d\n", row.name.c_str(), row.threads);
    return 0;
  }
  const auto find = [&](std::string_view name) {
    return std::find_if(rows.begin(), rows.end(), [&](const Row& row) { return row.name == name; });
  };
  if (mode == "--calls" && (argc == 4 || argc == 5)) {
    const auto row = find(argv[2]);
    if (row == rows.end()) return std::fprintf(stderr, "no row %s\n", argv[2]), 2;
    set_threads(argc == 5 ? std::atoi(argv[4]) : 1);
    row->make().calls(std::atoll(argv[3]));
    return 0;
  }
  if (mode != "--serve") return -1;

  const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  std::map<std::string, Kept> kept;
  std::string line;
  while (std::getline(std::cin, line)) {
    if (line == "forget") {
      kept.clear();
      continue;
    }
    std::istringstream words(line);
    std::string name;
    double seconds = 0.2;
    int threads = 0;
    words >> name >> seconds >> threads;
    const auto row = find(name);
    if (row == rows.end()) {
      std::printf("{\"row\": \"%s\", \"error\": \"unknown\"}\n", name.c_str());
    } else {
      try {
        set_threads(row->threads > 0 ? row->threads : threads > 0 ? threads : cores);
        answer(*row, seconds, kept);
      } catch (const std::exception& e) {
        kept.erase(name);
        std::cerr << name << ": " << e.what() << '\n';
        std::printf("{\"row\": \"%s\", \"error\": \"failed\"}\n", name.c_str());
      }
    }
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace bench
