// The examples of docs/errors.md about tapes, gradients and custom ops. errors_doc_test.cpp runs them.

#include <optional>

#include "reel/reel.h"
#include "reel/tests/errors_doc.h"

namespace reel {
namespace {

// Backward from a constant
void constant() {
#line 1 "train.cpp"
  Parameter w(ones({3}));
  Tensor loss = sum(w * w);
  Tape tape;  // too late: the loss was computed before
  tape.backward(loss);
}

// Backward from several elements
void several_elements() {
#line 1 "train.cpp"
  Parameter w(ones({3}));
  Tape tape;
  tape.backward(w * w);
}

// Backward twice
void twice() {
#line 1 "train.cpp"
  Parameter w(ones({3}));
  Tape tape;
  Tensor loss = sum(w * w);
  tape.backward(loss);
  tape.backward(loss);
}

// A gradient that nobody watched
void unwatched() {
#line 1 "train.cpp"
  Parameter w(ones({3}));
  Tensor x = ones({3});
  Tape tape;
  Tensors gradients = tape.gradient(sum(w * x), {x});
}

// What an inner tape does not see
void inner_tape() {
#line 1 "train.cpp"
  Parameter w(ones({3}));
  Tape outer;
  Tensor h = w * 2;
  Tape inner;
  Tensors gradients = inner.gradient(sum(h), {w});
}

// Writing to what is on a tape
void write_on_tape() {
#line 1 "train.cpp"
  Parameter w(ones({3}));
  Tape tape;
  Tensor y = w * 2;
  y.fill_(0);
}

// Writing to what backward needs
void write_before_backward() {
#line 1 "train.cpp"
  Parameter w(ones({3}));
  Tape tape;
  Tensor loss = sum(exp(w) * w);
  w.set_value(zeros({3}));
  tape.backward(loss);
}

// A gradient of the wrong shape
void wrong_gradient() {
#line 1 "train.cpp"
  Parameter w(ones({3}));
  Tape tape;
  Tensor y = untaped([&] { return w * w; });
  record("square", {w}, y, [](const Tensor& dy) { return sum(dy); });
  tape.backward(sum(y));
}

// An error inside a backward callback
void inside_a_callback() {
#line 1 "train.cpp"
  Parameter w(ones({3}));
  Tape tape;
  Tensor y = untaped([&] { return w * w; });
  record("square", {w}, y, [](const Tensor& dy) { return dy * ones({2}); });
  tape.backward(sum(y));
}

// A callback that ends its tape
void ended_tape() {
#line 1 "train.cpp"
  Parameter w(ones({3}));
  std::optional<Tape> tape(std::in_place);
  Tensor y = untaped([&] { return w * 2; });
  record("twice", {w}, y, [&](const Tensor& dy) {
    tape.reset();
    return dy * 2;
  });
  tape->backward(sum(y));
}

// Tapes that end in another order
void tapes_out_of_order() {
#line 1 "train.cpp"
  Parameter w(ones({3}));
  std::optional<Tape> outer(std::in_place), inner(std::in_place);
  outer.reset();
  inner->backward(sum(w * w));
}

// The first infinity, forward
void infinity_forward() {
#line 1 "train.cpp"
  Parameter w(tensor({1, 0, 2}));
  Tape strict{{.check_finite = true}};
  Tensor y = log(w) * 2;
}

// The first infinity, backward
void infinity_backward() {
#line 1 "train.cpp"
  Parameter w(tensor({4, 0, 1}));
  Tape strict{{.check_finite = true}};
  Tensor loss = sum(sqrt(w));
  strict.backward(loss);
}

// An op without a loop
void without_a_loop() {
#line 1 "train.cpp"
  CustomOp cube = CustomOp("cube").cuda("cube.cu", "cube<T>");
  cube(ones({3}));
}

// An op without a name
void nameless_op() {
#line 1 "train.cpp"
  CustomOp cube("");
}

// A wrong gradient, at the first call
void wrong_backprop() {
#line 1 "train.cpp"
  CustomOp cube = CustomOp("cube", true)
                      .cpu([]<class T>(const CpuContext&, Inputs in, Outputs out) {
                        for (int i = 0; i < 2; ++i)
                          out.get<T>(0)[i] = in.get<T>(0)[i] * in.get<T>(0)[i] * in.get<T>(0)[i];
                      })
                      .backprop([](const CustomBackward& g) { return Tensors{g.dy[0] * g.in[0] * g.in[0]}; });
  cube(tensor({1, 2}));
}

// An output that is not written
void not_written() {
#line 1 "train.cpp"
  CustomOp copy = CustomOp("copy", true).cpu([]<class T>(const CpuContext&, Inputs in, Outputs out) {
    for (int i = 1; i < 3; ++i) out.get<T>(0)[i] = in.get<T>(0)[i];
  });
  copy(ones({3}));
}

// A loop for another type
void another_type() {
#line 1 "train.cpp"
  CustomOp copy = CustomOp("copy", false).cpu([](const CpuContext&, Inputs in, Outputs out) {
    for (int i = 0; i < 3; ++i) out.get<float>(0)[i] = in.get<float>(0)[i];
  });
  copy(ones({3}, {.dtype = f64}));
}

// No gradient
void no_backprop() {
#line 1 "train.cpp"
  CustomOp copy = CustomOp("copy", false).cpu([]<class T>(const CpuContext&, Inputs in, Outputs out) {
    for (int i = 0; i < 3; ++i) out.get<T>(0)[i] = in.get<T>(0)[i];
  });
  Parameter w(ones({3}));
  Tape tape;
  tape.backward(sum(copy(w)));
}

#line 175 "errors_doc_tapes.cpp"

}  // namespace

std::vector<Example> examples_of_tapes() {
  return {
      {"Backward from a constant", constant, "errors_doc_tapes.cpp"},
      {"Backward from several elements", several_elements, "errors_doc_tapes.cpp"},
      {"Backward twice", twice, "errors_doc_tapes.cpp"},
      {"A gradient that nobody watched", unwatched, "errors_doc_tapes.cpp"},
      {"What an inner tape does not see", inner_tape, "errors_doc_tapes.cpp"},
      {"Writing to what is on a tape", write_on_tape, "errors_doc_tapes.cpp"},
      {"Writing to what backward needs", write_before_backward, "errors_doc_tapes.cpp"},
      {"A gradient of the wrong shape", wrong_gradient, "errors_doc_tapes.cpp"},
      {"An error inside a backward callback", inside_a_callback, "errors_doc_tapes.cpp"},
      {"A callback that ends its tape", ended_tape, "errors_doc_tapes.cpp"},
      {"Tapes that end in another order", tapes_out_of_order, "errors_doc_tapes.cpp"},
      {"The first infinity, forward", infinity_forward, "errors_doc_tapes.cpp"},
      {"The first infinity, backward", infinity_backward, "errors_doc_tapes.cpp"},
      {"An op without a loop", without_a_loop, "errors_doc_tapes.cpp"},
      {"An op without a name", nameless_op, "errors_doc_tapes.cpp"},
      {"A wrong gradient, at the first call", wrong_backprop, "errors_doc_tapes.cpp"},
      {"An output that is not written", not_written, "errors_doc_tapes.cpp"},
      {"A loop for another type", another_type, "errors_doc_tapes.cpp"},
      {"No gradient", no_backprop, "errors_doc_tapes.cpp"},
  };
}

}  // namespace reel
