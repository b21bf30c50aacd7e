// The one file that knows which backends there are.

#include "reel/backends/cpu/cpu.h"
#include "reel/core/device.h"
#include "reel/core/error.h"
#include "reel/core/ops.h"

namespace reel {

Ops& backend(Device device) {
  if (device.is_cpu()) return cpu::ops();
  throw DeviceError("device: must be cpu, as this build of Reel has no CUDA backend, got " + device.name());
}

Device Device::best() { return cpu(); }

}  // namespace reel
