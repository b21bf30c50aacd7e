# Counts the instructions of small works with valgrind's callgrind, which no noise touches, and fails beyond their budgets.
# PROGRAM: benchmark_rows; VALGRIND; BUDGETS: benchmarks/instruction_budgets.cmake
include(${BUDGETS})

function(count_instructions result row calls)
  execute_process(
    COMMAND ${VALGRIND} --tool=callgrind --callgrind-out-file=/dev/null ${PROGRAM} --calls ${row} ${calls}
    RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(status OR NOT output MATCHES "Collected : ([0-9]+)")
    message(FATAL_ERROR "${row}: valgrind failed (${status}):\n${output}")
  endif()
  set(${result} ${CMAKE_MATCH_1} PARENT_SCOPE)
endfunction()

while(REEL_INSTRUCTION_BUDGETS)
  list(POP_FRONT REEL_INSTRUCTION_BUDGETS row budget)
  count_instructions(few ${row} 100)
  count_instructions(many ${row} 600)
  math(EXPR each "(${many} - ${few}) / 500")
  message("${row}: ${each} instructions a call, budget ${budget}")
  if(each GREATER budget)
    list(APPEND over ${row})
  endif()
endwhile()
if(over)
  message(FATAL_ERROR "over budget: ${over}")
endif()
