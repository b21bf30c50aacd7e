#include "reel/core/device.h"

#include "reel/core/error.h"
#include "reel/core/node_list.h"
#include "reel/core/ops.h"

namespace reel {

Device Device::parse(const std::string& text, SourceLocation where) {
  if (text == "cpu") return cpu();
  if (text == "cuda") return cuda();
  const std::string prefix = "cuda:";
  if (text.size() > prefix.size() && text.size() <= prefix.size() + 2 && text.compare(0, prefix.size(), prefix) == 0) {
    int index = 0;
    bool digits = true;
    for (std::size_t i = prefix.size(); i < text.size(); ++i) {
      digits = digits && text[i] >= '0' && text[i] <= '9';
      index = 10 * index + (text[i] - '0');
    }
    if (digits) return cuda(index);
  }
  throw DeviceError("Device::parse: a device must be 'cpu', 'cuda' or 'cuda:N' with N below 100, got '" + text + "'",
                    where);
}

std::string Device::name() const { return is_cpu() ? "cpu" : "cuda:" + std::to_string(index); }

void Device::refuse_index(int index, SourceLocation where) {
  throw DeviceError("Device::cuda: the index must be in [0, 100), got " + std::to_string(index), where);
}

void synchronize(Device device, SourceLocation where) {
  backend(device, where).synchronize();
  detail::check_unread_after_wait();
}

}  // namespace reel
