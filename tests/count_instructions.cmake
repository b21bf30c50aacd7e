# Counts the instructions of small works with valgrind's callgrind, which no noise touches. Fails beyond their budgets, and where
# the bars of the benchmarks give a row's count as its limit, a tenth from what is counted or more.
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
string(REGEX MATCHALL "limit_1000_instructions" mentions "${bars}")
list(LENGTH limits found)
list(LENGTH mentions expected)
if(NOT found OR NOT found EQUAL expected)
  message(FATAL_ERROR "${BARS}: ${found} of ${expected} limits in instructions could be read")
endif()
foreach(limit IN LISTS limits)
  string(REGEX MATCH "^\"([a-z0-9_]+)\".*\"([0-9])\\.([0-9][0-9][0-9])\", \"of\"" found "${limit}")
  if(NOT found)
    message(FATAL_ERROR "${BARS}: a count is written as thousands with three places, such as 0.368; got ${limit}")
  endif()
  set(row ${CMAKE_MATCH_1})
  math(EXPR given "${CMAKE_MATCH_2} * 1000 + 1${CMAKE_MATCH_3} - 1000")  # 010 would be octal
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
