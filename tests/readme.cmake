# The program in README.md compiles, runs, and does what the page says.
set(readme ${PROJECT_SOURCE_DIR}/README.md)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${readme})
file(READ ${readme} text)
string(FIND "${text}" "```cpp\n" begin)
math(EXPR begin "${begin} + 7")
string(SUBSTRING "${text}" ${begin} -1 text)
string(FIND "${text}" "```" end)
string(SUBSTRING "${text}" 0 ${end} text)
file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/readme.cpp CONTENT "@text@" @ONLY)

add_executable(readme ${CMAKE_CURRENT_BINARY_DIR}/readme.cpp)
target_compile_options(readme PRIVATE -Wall -Wextra)
target_link_libraries(readme PRIVATE Reel::reel)
add_test(NAME readme COMMAND readme)
set_tests_properties(readme PROPERTIES
  PASS_REGULAR_EXPRESSION "^(0\\.9[5-9][0-9]*|1) of the test images are read right" ENVIRONMENT OMP_WAIT_POLICY=passive)
