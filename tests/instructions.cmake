# Budgets for the engine's own cost that no noise touches. Skipped, and counted as such, where they mean nothing.
if(REEL_BENCHMARKS)
  find_program(REEL_VALGRIND valgrind)
  set(lacks)
  if(NOT REEL_VALGRIND)
    set(lacks "valgrind is needed, and not installed; scripts/setup test does so")
  elseif(NOT CMAKE_BUILD_TYPE STREQUAL "Release" OR CMAKE_CXX_FLAGS MATCHES "-fsanitize")
    set(lacks "the budgets are for a Release build without sanitizers")
  elseif(NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    set(lacks "the budgets are for g++, got ${CMAKE_CXX_COMPILER_ID}")
  endif()
  if(lacks)  # a script of CMake cannot exit with 77
    add_test(NAME instructions COMMAND sh -c "echo 'skipped: ${lacks}'; exit 77")
  else()
    add_test(NAME instructions COMMAND ${CMAKE_COMMAND} -DPROGRAM=$<TARGET_FILE:benchmark_rows> -DVALGRIND=${REEL_VALGRIND}
      -DBUDGETS=${PROJECT_SOURCE_DIR}/benchmarks/instruction_budgets.cmake
      -DBARS=${PROJECT_SOURCE_DIR}/benchmarks/bars.json
      -P ${CMAKE_CURRENT_SOURCE_DIR}/count_instructions.cmake)
  endif()
  set_tests_properties(instructions PROPERTIES
    SKIP_RETURN_CODE 77 TIMEOUT 600 ENVIRONMENT "REEL_ISA=v3;OMP_WAIT_POLICY=passive")
endif()
