# Flips a sign in each of ten random backward functions; the gradient tests must notice every one. A nightly run flips all:
# scripts/mutation-check --all. It reads Ninja's commands and the objects of this build tree, optimised as users get them.
if(CMAKE_GENERATOR STREQUAL "Ninja" AND CMAKE_BUILD_TYPE STREQUAL "Release" AND NOT CMAKE_CXX_FLAGS MATCHES "-fsanitize"
   AND NOT REEL_OBJECTS_FROM AND NOT REEL_UNITY)
  add_test(NAME mutation COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/scripts/mutation-check
    --no-build --build ${PROJECT_BINARY_DIR})
  set_tests_properties(mutation PROPERTIES LABELS mutation PROCESSORS 2 TIMEOUT 1800)
endif()

# What pages quote still stands in the tree.
add_test(NAME quotes COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/checks/quotes.py ${PROJECT_SOURCE_DIR}
  docs/adding-an-op.md docs/custom-ops.md)
