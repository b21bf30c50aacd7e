# What tests need to run under a sanitizer; the presets `asan` and `tsan` set it in CMAKE_CXX_FLAGS. Counters of coverage
# (scripts/coverage) slow them down as much.

# Tests run side by side on few cores: OpenMP's threads must not spin while they wait.
set(test_environment OMP_WAIT_POLICY=passive)
set(test_timeout 600)
if(CMAKE_CXX_FLAGS MATCHES "-fsanitize" OR CMAKE_EXE_LINKER_FLAGS MATCHES "--coverage")
  set(test_timeout 7200)
endif()

# Builds what has the label `threads`.
add_custom_target(thread_tests)

# reel_add_thread_test(<name> <program> <arguments>...): a test for the thread sanitizer only.
function(reel_add_thread_test name program)
  if(CMAKE_CXX_FLAGS MATCHES "-fsanitize=thread")
    add_test(NAME ${name} COMMAND ${program} ${ARGN})
    set_tests_properties(${name} PROPERTIES LABELS threads ENVIRONMENT "${test_environment}" TIMEOUT ${test_timeout})
    add_dependencies(thread_tests ${program})
  endif()
endfunction()

# libomp tells the sanitizer through a tool of its own, archer, how its threads wait for each other. That this hides no race of
# ours is shown by one that must be found.
add_executable(planted_race EXCLUDE_FROM_ALL planted_race.cpp)
target_link_libraries(planted_race PRIVATE ${reel_for_tests})
reel_add_thread_test(planted_race planted_race)
if(TEST planted_race)
  set_tests_properties(planted_race PROPERTIES
    PASS_REGULAR_EXPRESSION "ThreadSanitizer: data race[^=]*planted_race\\.cpp")
endif()
