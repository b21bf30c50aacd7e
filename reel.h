#pragma once

/// All of Reel.
#include "reel/core/device.h"
#include "reel/core/dtype.h"
#include "reel/core/error.h"
#include "reel/core/shape.h"
#include "reel/core/source_location.h"
