#pragma once

#include "reel/backends/cpu/kernel.h"

namespace reel::cpu::REEL_CPU_ISA {

/// table[index[i], :] += factor[i] y[source[i], :] in ascending order of i: the same bits however the work is cut.
struct RowSum {
  const Array& y;                   // [.., width], f32 or f64
  const Array& index;               // [n], i32 or i64
  const Array& table;               // [rows, width]
  const int64_t* source = nullptr;  // null: i
  const void* factor = nullptr;     // of the table's dtype; null: 1
};
void add_rows(const RowSum& sum);

}  // namespace reel::cpu::REEL_CPU_ISA
