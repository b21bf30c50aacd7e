# Benchmarks are measured by hand; these keep them from rotting.
add_test(NAME bench_logic COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/bench_logic.py)
add_test(NAME bench_programs COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/bench_programs.py)
reel_add_test(slope slope_test.cpp ../benchmarks/slope.cpp)

if(REEL_BENCHMARKS)
  reel_add_test(steady_rows steady_rows_test.cpp malloc_count.cpp
    $<TARGET_OBJECTS:benchmark_reel_rows> $<TARGET_OBJECTS:benchmark_runner>)
endif()

if(REEL_BENCHMARKS AND NOT REEL_CUDA AND NOT BUILD_SHARED_LIBS AND CMAKE_BUILD_TYPE STREQUAL "Release"
    AND NOT CMAKE_CXX_FLAGS MATCHES "-fsanitize")
  add_test(NAME bench_suites COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/bench_suites.py ${PROJECT_BINARY_DIR})
  set_tests_properties(bench_suites PROPERTIES TIMEOUT 600)
  # Each is a program of Google Benchmark too.
  foreach(program_and_row "rows:sum_10000" "op_rows:matmul#l2_backward" "gemm_ladder:ladder_100")
    string(REPLACE ":" ";" program_and_row ${program_and_row})
    list(GET program_and_row 0 program)
    list(GET program_and_row 1 row)
    add_test(NAME bench_google_${program} COMMAND benchmark_${program} --benchmark_filter=^${row}/ --benchmark_min_time=0.01)
    set_tests_properties(bench_google_${program} PROPERTIES PASS_REGULAR_EXPRESSION "${row}/real_time +[0-9.]+ ns")
  endforeach()
endif()
