#include "runner.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <sstream>
#include <string_view>
#include <thread>

#include "slope.h"

namespace bench {

namespace {

void answer(const Row& row, double budget_seconds) {
  Work work = row.make();
  work.calls(3);
  const Digest digest = work.digest();
  const Slope slope = time_slope(work.calls, budget_seconds);
  std::printf(
      "{\"row\": \"%s\", \"seconds\": %.6g, \"low\": %.6g, \"high\": %.6g, \"weighted\": %.9g, \"size\": %.9g, "
      "\"count\": %lld}\n",
      row.name.c_str(), slope.seconds, slope.low, slope.high, digest.weighted, digest.size,
      static_cast<long long>(digest.count));
}

}  // namespace

int serve(int argc, char** argv, const std::vector<Row>& rows, const std::function<void(int)>& set_threads) {
  const std::string_view mode = argc > 1 ? argv[1] : "";
  if (mode == "--rows") {
    for (const Row& row : rows) std::puts(row.name.c_str());
    return 0;
  }
  const auto find = [&](std::string_view name) {
    return std::find_if(rows.begin(), rows.end(), [&](const Row& row) { return row.name == name; });
  };
  if (mode == "--calls" && argc == 4) {
    const auto row = find(argv[2]);
    if (row == rows.end()) return std::fprintf(stderr, "no row %s\n", argv[2]), 2;
    set_threads(1);
    row->make().calls(std::atoll(argv[3]));
    return 0;
  }
  if (mode != "--serve") return -1;

  const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream words(line);
    std::string name;
    double seconds = 0.2;
    words >> name >> seconds;
    const auto row = find(name);
    if (row == rows.end()) {
      std::printf("{\"row\": \"%s\", \"error\": \"unknown\"}\n", name.c_str());
    } else {
      try {
        set_threads(row->threads > 0 ? row->threads : cores);
        answer(*row, seconds);
      } catch (const std::exception& e) {
        std::cerr << name << ": " << e.what() << '\n';
        std::printf("{\"row\": \"%s\", \"error\": \"failed\"}\n", name.c_str());
      }
    }
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace bench
