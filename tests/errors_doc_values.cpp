// The examples of docs/errors.md about values: shapes, types, handles, memory, files. errors_doc_test.cpp runs them.

#include <filesystem>

#include "reel/reel.h"
#include "reel/tests/errors_doc.h"

namespace reel {
namespace {

// Sizes of a product
void product() {
#line 1 "train.cpp"
  Tensor x = ones({2, 3});
  Tensor y = matmul(x, ones({4, 5}));
}

// Sizes that do not broadcast
void broadcasting() {
#line 1 "train.cpp"
  Tensor x = ones({2, 3});
  Tensor y = x + ones({4});
}

// A layer's input
void layer() {
#line 1 "train.cpp"
  struct Net : nn::Module {
    nn::Linear head{this, "head", {.in = 64, .out = 10}};
  } net;
  net.head(ones({8, 32}));
}

// An axis that is not there
void axis() {
#line 1 "train.cpp"
  Tensor x = ones({2, 3});
  Tensor y = sum(x, 2);
}

// A shape's axis
void shape_axis() {
#line 1 "train.cpp"
  Tensor x = ones({2, 3});
  std::int64_t channels = x.shape()[2];
  x.fill_(channels);
}

// As many elements as before
void reshaped() {
#line 1 "train.cpp"
  Tensor x = ones({2, 3});
  Tensor y = reshape(x, {4, -1});
}

// Element types that differ
void element_types() {
#line 1 "train.cpp"
  Tensor x = ones({2, 3});
  Tensor weight = ones({4, 3}, {.dtype = f64});
  Tensor y = linear(x, weight);
}

// Class numbers are integers
void class_numbers() {
#line 1 "train.cpp"
  Tensor logits = zeros({3, 10});
  Tensor loss = cross_entropy(logits, tensor({7, 2, 1}));
}

// Reading as another type
void reading() {
#line 1 "train.cpp"
  Tensor x = ones({2, 3});
  for (double value : x.data<double>()) x.fill_(value);
}

// A device that has no such name
void device_name() {
#line 1 "train.cpp"
  Tensor x = zeros({2, 3}, {.device = Device::parse("gpu")});
}

// An index out of range
void index() {
#line 1 "train.cpp"
  Tensor x = ones({2, 3});
  Tensor row = x[5];
}

// A row of a table that is not there
void embedding_row() {
#line 1 "train.cpp"
  Tensor table = ones({100, 8});
  Tensor rows = embedding(table, tensor({3, 100}, {.dtype = i64}));
}

// A handle to nothing
void undefined_handle() {
#line 1 "train.cpp"
  Tensor x;
  std::int64_t n = x.size();
  x = zeros({n});
}

// An operand that is undefined
void undefined_operand() {
#line 1 "train.cpp"
  Parameter weight;
  Tensor y = linear(ones({2, 3}), weight);
}

// One element is wanted
void one_element() {
#line 1 "train.cpp"
  Tensor losses = ones({8});
  losses.item();
}

// Out of memory
void memory() {
#line 1 "train.cpp"
  Tensor x = zeros({1'000'000'000, 1'000'000});
}

// Lengths that do not add up
void lengths() {
#line 1 "train.cpp"
  Ragged x = Ragged::from_lengths(ones({20, 64}), {3, 0, 16});
}

// Sequences of other lengths
void other_lengths() {
#line 1 "train.cpp"
  Ragged x = Ragged::from_lengths(ones({5, 2}), {3, 2});
  Ragged y = Ragged::from_lengths(ones({5, 2}), {2, 3});
  Ragged z = x + y;
}

// A checkpoint of another model
void other_model() {
#line 1 "train.cpp"
  struct Net : nn::Module {
    nn::Linear head;
    explicit Net(int classes) : head(this, "head", {.in = 4, .out = classes}) {}
  } ten(10), five(5);
  nn::save(ten, "digits.safetensors");
  nn::load(five, "digits.safetensors");
}

// A file that is cut off
void cut_off() {
#line 1 "train.cpp"
  struct Net : nn::Module {
    nn::Linear head{this, "head", {.in = 4, .out = 10}};
  } net;
  nn::save(net, "digits.safetensors");
  std::filesystem::resize_file("digits.safetensors", 200);
  nn::load(net, "digits.safetensors");
}

// Options out of range
void options() {
#line 1 "train.cpp"
  Parameter w(ones({3}));
  nn::Adam adam({w}, {.lr = 1e-3, .beta1 = 1});
}

#line 170 "errors_doc_values.cpp"

}  // namespace

std::vector<Example> examples_of_values() {
  return {
      {"Sizes of a product", product, "errors_doc_values.cpp"},
      {"Sizes that do not broadcast", broadcasting, "errors_doc_values.cpp"},
      {"A layer's input", layer, "errors_doc_values.cpp"},
      {"An axis that is not there", axis, "errors_doc_values.cpp"},
      {"A shape's axis", shape_axis, "errors_doc_values.cpp"},
      {"As many elements as before", reshaped, "errors_doc_values.cpp"},
      {"Element types that differ", element_types, "errors_doc_values.cpp"},
      {"Class numbers are integers", class_numbers, "errors_doc_values.cpp"},
      {"Reading as another type", reading, "errors_doc_values.cpp"},
      {"A device that has no such name", device_name, "errors_doc_values.cpp"},
      {"An index out of range", index, "errors_doc_values.cpp"},
      {"A row of a table that is not there", embedding_row, "errors_doc_values.cpp"},
      {"A handle to nothing", undefined_handle, "errors_doc_values.cpp"},
      {"An operand that is undefined", undefined_operand, "errors_doc_values.cpp"},
      {"One element is wanted", one_element, "errors_doc_values.cpp"},
      {"Out of memory", memory, "errors_doc_values.cpp"},
      {"Lengths that do not add up", lengths, "errors_doc_values.cpp"},
      {"Sequences of other lengths", other_lengths, "errors_doc_values.cpp"},
      {"A checkpoint of another model", other_model, "errors_doc_values.cpp"},
      {"A file that is cut off", cut_off, "errors_doc_values.cpp"},
      {"Options out of range", options, "errors_doc_values.cpp"},
  };
}

}  // namespace reel
