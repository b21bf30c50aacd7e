# Budgets for the engine's own cost that no noise touches.
find_program(REEL_VALGRIND valgrind)
if(REEL_VALGRIND AND REEL_BENCHMARKS AND CMAKE_BUILD_TYPE STREQUAL "Release" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU"
    AND NOT CMAKE_CXX_FLAGS MATCHES "-fsanitize")
  add_test(NAME instructions COMMAND ${CMAKE_COMMAND} -DPROGRAM=$<TARGET_FILE:benchmark_rows> -DVALGRIND=${REEL_VALGRIND}
    -DBUDGETS=${PROJECT_SOURCE_DIR}/benchmarks/instruction_budgets.cmake
    -P ${CMAKE_CURRENT_SOURCE_DIR}/count_instructions.cmake)
  set_tests_properties(instructions PROPERTIES TIMEOUT 600 ENVIRONMENT "REEL_ISA=v3;OMP_WAIT_POLICY=passive")
endif()
