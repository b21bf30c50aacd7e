// Program A of the design, as it stands there: train a small model.
// clang-format off
#include <reel/reel.h>
using namespace reel;

struct Net : nn::Module {                       // members register themselves under their names
  nn::Conv2dRelu conv1{this, "conv1", {.in = 1,  .out = 16, .kernel = 3, .padding = 1}};
  nn::Conv2dRelu conv2{this, "conv2", {.in = 16, .out = 16, .kernel = 3, .padding = 2, .dilation = 2}};
  nn::Linear     head {this, "head",  {.in = 16 * 64, .out = 10}};
  Tensor operator()(const Tensor& x) { return head(flatten(conv2(conv1(x)), 1)); }
};

int main() {
  manual_seed(0);
  Net net;
  net.to(Device::best());                       // a CUDA GPU if there is one, else the CPU
  nn::Adam adam(net.parameters(), {.lr = 1e-3});
  for (auto [images, labels] : nn::batches(nn::digits::train(), {.size = 64, .shuffle = true, .device = net.device()})) {
    Tape tape;                                  // while a Tape is alive, what depends on parameters is recorded
    Tensor loss = cross_entropy(net(images), labels);
    tape.backward(loss);                        // gradients of the parameters it reaches
    adam.step();                                // uses them and clears them
  }
  nn::save(net, "digits.safetensors");
}
