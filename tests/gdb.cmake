# The debugger shows what values hold. The program is for the debugger: no optimisation, and what it knows of the types.
find_program(REEL_GDB gdb)
if(REEL_GDB AND NOT CMAKE_CXX_FLAGS MATCHES "-fsanitize")
  execute_process(COMMAND ${REEL_GDB} -batch -nx -ex "python print('python')" OUTPUT_VARIABLE answer ERROR_QUIET)
  if(answer MATCHES "python")
    add_executable(test_gdb_values gdb/values.cpp)
    target_compile_options(test_gdb_values PRIVATE -g -O0 $<$<CXX_COMPILER_ID:Clang>:-fstandalone-debug>)
    target_link_libraries(test_gdb_values PRIVATE Reel::reel)
    add_dependencies(cpu_tests test_gdb_values)
    add_test(NAME gdb_printers COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/gdb/printers.py
      ${REEL_GDB} ${PROJECT_SOURCE_DIR}/scripts/gdb/reel_printers.py $<TARGET_FILE:test_gdb_values>)
    set_tests_properties(gdb_printers PROPERTIES TIMEOUT 300 ENVIRONMENT OMP_WAIT_POLICY=passive)
  endif()
endif()
