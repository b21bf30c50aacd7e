#include "reel/core/trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "reel/core/checkpoint.h"
#include "reel/core/parameter.h"
#include "reel/nn/optimizer.h"
#include "reel/ops/arithmetic.h"
#include "reel/ops/create.h"
#include "reel/ops/losses.h"
#include "reel/ops/matmul.h"
#include "reel/ops/padding.h"
#include "reel/ops/reduce.h"
#include "reel/ops/softmax.h"
#include "reel/ops/unary.h"
#include "reel/tests/expect.h"

namespace reel {
namespace {

std::string names(const Trace& trace) {
  std::string text;
  for (const TraceEvent& event : trace.events())
    text += (text.empty() ? "" : " ") + event.op + (event.backward ? "'" : "");
  return text;
}

TEST(Trace, NotesForwardAndBackwardAndTheStep) {
  Parameter w(ones({3, 4}));
  nn::SGD sgd({w}, {.lr = 0.1});
  const Tensor x = ones({2, 4});
  Trace trace;
  {
    Tape tape;
    tape.backward(sum(tanh(linear(x, w))));
  }
  sgd.step();
  EXPECT_EQ(names(trace), "linear tanh sum sum' tanh' linear' SGD::step");
  const TraceEvent& event = trace.events()[0];
  EXPECT_EQ(event.shapes, "[2, 4] [3, 4] -> [2, 3]");
  EXPECT_EQ(event.bytes, 4 * (8 + 12 + 6));
  EXPECT_EQ(trace.events()[5].shapes, "[2, 3] -> [3, 4]");
  EXPECT_NE(std::string(event.where.file).find("trace_test.cpp"), std::string::npos);
  for (const TraceEvent& each : trace.events()) EXPECT_GE(each.duration, 0) << each.op;
}

TEST(Trace, NotesOpsWithoutATapeAndThoseWithoutAGradient) {
  const Tensor x = tensor({1, -2, 3});
  Trace trace;
  const Tensor y = exp(x);
  (void)(x > 0);
  argmax(x, 0);
  EXPECT_FALSE(is_recording());
  EXPECT_FALSE(is_tracked(y));
  EXPECT_NE(names(trace).find("exp greater"), std::string::npos) << names(trace);
  EXPECT_NE(names(trace).find("argmax"), std::string::npos) << names(trace);
}

TEST(Trace, PaddingIsOneOpAndHasItsTime) {
  const Tensor x = ones({500, 500});
  Trace trace;
  pad(x, {{0, 1, 1}, {1, 1, 1}}, PaddingMode::reflect);
  pad(x, {{0, 1, 1}, {1, 1, 1}}, 0);
  EXPECT_EQ(names(trace), "pad pad");
  for (const int i : {0, 1}) EXPECT_GT(trace.events()[static_cast<std::size_t>(i)].duration, 0) << i;
}

TEST(Trace, ChangesNoGradient) {
  const Tensor x = tensor({0.3, -0.2, 0.9}, {.dtype = f64});
  const auto gradient = [&] {
    Tape tape;
    tape.watch(x);
    return tape.gradient(sum(square(softmax(x, 0))), {x})[0].to_vector<double>();
  };
  const std::vector<double> plain = gradient();
  Trace trace;
  EXPECT_EQ(gradient(), plain);
  EXPECT_NE(names(trace).find("softmax'"), std::string::npos);
  EXPECT_EQ(names(trace).find("mul"), std::string::npos) << "the fused backward must run: " << names(trace);
}

TEST(Trace, TimesOfOpsInsideACallbackAreNotCountedTwice) {
  const Tensor x = ones({200, 200});
  Trace trace;
  Tape tape;
  tape.watch(x);
  const auto f = [](const Tensor& t) { return matmul(tanh(t), t); };
  tape.gradient(sum(checkpoint(f, x)), {x});
  double own = 0, last = 0, first = 1e300;
  for (const TraceEvent& event : trace.events()) {
    EXPECT_GE(event.duration, event.inside) << event.op;
    own += event.duration - event.inside;
    first = std::min(first, event.start);
    last = std::max(last, event.start + event.duration);
  }
  EXPECT_LE(own, last - first + 1e-6);
  const auto outer = std::find_if(trace.events().begin(), trace.events().end(), [](const TraceEvent& event) {
    return event.op == "checkpoint" && event.backward && event.inside > 0;
  });
  ASSERT_NE(outer, trace.events().end());
  EXPECT_EQ(outer->shapes, "[200, 200] -> [200, 200]");
}

TEST(Trace, TellsWhatAnOpCostNotWhatLiesBetween) {
  const Tensor x = ones({64});
  Trace trace;
  Parameter w(ones({64}));
  const auto pause = [] { std::this_thread::sleep_for(std::chrono::milliseconds(30)); };
  exp(x);
  pause();
  const double first = sum(exp(x)).item();
  pause();
  const Tensor zero = zeros({64});
  pause();
  {
    Tape tape;
    tape.backward(sum(w * first));
  }
  pause();
  exp(zero);
  for (const TraceEvent& event : trace.events()) EXPECT_LT(event.duration, 15e3) << event.op;
}

TEST(Trace, TheInnermostNotes) {
  const Tensor x = ones({2});
  Trace outer;
  exp(x);
  {
    Trace inner;
    log(x);
    EXPECT_EQ(names(inner), "log");
  }
  tanh(x);
  EXPECT_EQ(names(outer), "exp tanh");
}

TEST(Trace, TableAddsUpEqualCalls) {
  const Tensor x = ones({5, 2});
  Trace trace;
  for (int i = 0; i < 3; ++i) exp(x);
  const std::string table = trace.table();
  EXPECT_NE(table.find("ms"), std::string::npos) << table;
  EXPECT_NE(table.find("    3  240 B  exp  [5, 2] -> [5, 2]  trace_test.cpp:"), std::string::npos) << table;
  tanh(x);
  log(x);
  EXPECT_NE(trace.table(1).find("and 2 more rows"), std::string::npos) << trace.table(1);
  EXPECT_NE(trace.table(2).find("and 1 more row\n"), std::string::npos) << trace.table(2);
  std::ostringstream printed;
  printed << trace;
  EXPECT_EQ(printed.str(), trace.table());
}

TEST(Trace, LiveTensorsAreGroupedByTheLineThatMadeThem) {
  std::vector<Tensor> kept;
  const Tensor x = ones({1000});
  {
    Trace earlier;
    kept.push_back(exp(x));  // not since the Trace below began
  }
  Trace trace;
  for (int step = 0; step < 3; ++step) {
    kept.push_back(exp(x));
    tanh(x);  // gone at once
  }
  const std::string live = trace.live_tensors();
  EXPECT_NE(live.find("12.0 kB        3  exp  trace_test.cpp:"), std::string::npos) << live;
  EXPECT_EQ(live.find("tanh"), std::string::npos) << live;
  kept.clear();
  EXPECT_EQ(trace.live_tensors().find("exp"), std::string::npos) << trace.live_tensors();
}

TEST(Trace, LiveTensorsShowWhatATapeHolds) {
  const Tensor x = ones({1000});
  Trace trace;
  Tape tape;
  tape.watch(x);
  const Tensor y = sum(exp(tanh(x)));
  EXPECT_NE(trace.live_tensors().find("tanh"), std::string::npos) << trace.live_tensors();  // its callback needs it
  tape.gradient(y, {x});
  EXPECT_EQ(trace.live_tensors().find("tanh"), std::string::npos) << trace.live_tensors();
}

TEST(Trace, LiveTensorsOfATrainingStepAllHaveALine) {
  Trace trace;
  Parameter w(ones({100})), v(ones({100}));
  flatten_parameters({w, v});
  nn::Adam adam({w, v}, {.lr = 0.1});
  const int line = __LINE__ + 3;
  for (int step = 0; step < 2; ++step) {
    Tape tape;
    tape.backward(sum(w * v * v));
    adam.step();
  }
  const std::string live = trace.live_tensors();
  const std::string at = "trace_test.cpp:";
  EXPECT_EQ(missing_words(live, {"backward", "Adam", "Parameter", (at + std::to_string(line)).c_str(),
                                 (at + std::to_string(line + 1)).c_str()}),
            "")
      << live;
  EXPECT_EQ(live.find("memory"), std::string::npos) << live;
  std::istringstream rows(live);
  std::string row;
  std::getline(rows, row);  // the head
  while (std::getline(rows, row)) EXPECT_NE(row.find(at), std::string::npos) << live;
}

TEST(Trace, LiveTensorsNameTheLineOfAParameter) {
  Trace trace;
  const Tensor x = ones({1000});
  const int line = __LINE__ + 1;
  const Parameter w(x);
  EXPECT_NE(trace.live_tensors().find("Parameter  trace_test.cpp:" + std::to_string(line)), std::string::npos)
      << trace.live_tensors();
}

TEST(Trace, ChromeFileIsJsonWithEveryEvent) {
  const Tensor x = ones({2});
  Trace trace;
  Tape tape;
  tape.watch(x);
  const Tensor y = record("my \"op\"\n", {x}, untaped([&] { return x * 2; }), [](const Tensor& dy) { return dy * 2; });
  tape.gradient(sum(y), {x});
  const std::string path = testing::TempDir() + "reel_trace_test.json";
  trace.write_chrome(path);
  std::ifstream file(path);
  const nlohmann::json json = nlohmann::json::parse(file);
  ASSERT_EQ(json["traceEvents"].size(), trace.events().size());
  for (std::size_t i = 0; i < trace.events().size(); ++i) {
    const TraceEvent& event = trace.events()[i];
    const nlohmann::json& entry = json["traceEvents"][i];
    EXPECT_EQ(entry["name"], event.op + (event.backward ? " backward" : ""));
    EXPECT_EQ(entry["ph"], "X");
    EXPECT_NEAR(entry["dur"], event.duration, 1e-3);
    EXPECT_EQ(entry["args"]["shapes"], event.shapes);
  }
  std::remove(path.c_str());
  EXPECT_THROW_WITH(trace.write_chrome("/no/such/folder/trace.json"), FileError,
                    "Trace::write_chrome: '/no/such/folder/trace.json': cannot be written: No such file",
                    "trace_test.cpp:");
}

}  // namespace
}  // namespace reel
