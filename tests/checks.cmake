# Rules that the source tree and the built library keep.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
set(checks ${CMAKE_CURRENT_SOURCE_DIR}/checks)

add_test(NAME layering COMMAND ${Python3_EXECUTABLE} ${checks}/layering.py ${PROJECT_SOURCE_DIR})
add_test(NAME sources COMMAND ${Python3_EXECUTABLE} ${checks}/sources.py ${PROJECT_SOURCE_DIR})
add_test(NAME checks_find_faults COMMAND ${Python3_EXECUTABLE} ${checks}/self_test.py ${CMAKE_CXX_COMPILER})

# Skipped, and counted as such, without clang-format 14.
find_program(REEL_CLANG_FORMAT NAMES clang-format-14 clang-format)
add_test(NAME format COMMAND ${Python3_EXECUTABLE} ${checks}/format.py ${PROJECT_SOURCE_DIR} "${REEL_CLANG_FORMAT}")
set_tests_properties(format PROPERTIES LABELS style SKIP_RETURN_CODE 77)

# What is linked and packaged is what an optimised build without sanitizers makes, of its own objects for all instruction sets.
if(NOT CMAKE_CXX_FLAGS MATCHES "-fsanitize" AND CMAKE_BUILD_TYPE STREQUAL "Release" AND NOT REEL_OBJECTS_FROM AND every_isa)
  add_test(NAME isa_symbols COMMAND ${Python3_EXECUTABLE} ${checks}/isa_symbols.py ${PROJECT_BINARY_DIR}/reel-objects.txt)
  include(packaging.cmake)
endif()
