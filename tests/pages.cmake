# reel_add_page(<name>): the C++ blocks of docs/<name>.md compile, and run without an error.
function(reel_add_page name)
  set(page ${PROJECT_SOURCE_DIR}/docs/${name}.md)
  set(program ${CMAKE_CURRENT_BINARY_DIR}/${name}_page.cpp)
  add_custom_command(OUTPUT ${program} COMMAND ${Python3_EXECUTABLE} ${checks}/page_program.py ${page} ${program}
    DEPENDS ${page} ${checks}/page_program.py)
  add_executable(page_${name} ${program})
  target_compile_options(page_${name} PRIVATE -Wall -Wno-unused-variable)
  target_link_libraries(page_${name} PRIVATE Reel::reel)
  add_dependencies(cpu_tests page_${name})
  add_test(NAME ${name}_page COMMAND page_${name})
  set_tests_properties(${name}_page PROPERTIES ENVIRONMENT OMP_WAIT_POLICY=passive)
endfunction()

reel_add_page(gradients)
