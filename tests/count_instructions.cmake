# Counts the instructions of small works with valgrind's callgrind, which no noise touches, and fails beyond their budgets; and
# where the bars of benchmarks give a count as the limit of a row, which must be no more than a tenth from what is counted.
# PROGRAM: benchmark_rows; VALGRIND; BUDGETS: benchmarks/instruction_budgets.cmake; BARS: benchmarks/bars.json
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

function(instructions_of_a_call result row)
  count_instructions(few ${row} 100)
  count_instructions(many ${row} 600)
  math(EXPR each "(${many} - ${few}) / 500")
  set(${result} ${each} PARENT_SCOPE)
endfunction()

while(REEL_INSTRUCTION_BUDGETS)
  list(POP_FRONT REEL_INSTRUCTION_BUDGETS row budget)
  instructions_of_a_call(each ${row})
  message("${row}: ${each} instructions a call, budget ${budget}")
  if(each GREATER budget)
    list(APPEND wrong ${row})
  endif()
endwhile()

# {"limits": {"add_1": {..., "limit": {"count": "0.368", "of": "limit_1000_instructions", ...}}}}
file(READ ${BARS} bars)
string(REGEX MATCHALL "\"[a-z0-9_]+\": {[^{}]*{\"count\": \"[0-9.]+\", \"of\": \"limit_1000_instructions\"" limits "${bars}")
if(NOT limits)
  message(FATAL_ERROR "${BARS}: no limit in instructions was found")
endif()
foreach(limit IN LISTS limits)
  string(REGEX MATCH "^\"([a-z0-9_]+)\".*\"0\\.([0-9][0-9][0-9])\", \"of\"" found "${limit}")
  if(NOT found)
    message(FATAL_ERROR "${BARS}: a count is written as thousands with three places, such as 0.368; got ${limit}")
  endif()
  set(row ${CMAKE_MATCH_1})
  set(given ${CMAKE_MATCH_2})
  instructions_of_a_call(each ${row})
  message("${row}: ${each} instructions a call, ${given} given as its limit")
  math(EXPR off "(${each} - ${given}) * 10")
  if(off GREATER given OR off LESS "-${given}")
    list(APPEND wrong "${row}'s limit")
  endif()
endforeach()
if(wrong)
  message(FATAL_ERROR "not as counted: ${wrong}")
endif()
