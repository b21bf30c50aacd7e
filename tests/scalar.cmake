# The scalar maths, measured as users run it: loops compiled with the kernels' flags, once per instruction set.
set(scalar_flags -O3 -fno-math-errno -fno-trapping-math)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND scalar_flags -fno-thread-jumps)
endif()
set(scalar_v2 -march=x86-64-v2)
set(scalar_v3 -march=x86-64-v3 -mtune=haswell)
set(scalar_v4 -march=x86-64-v4 -mtune=icelake-server -mprefer-vector-width=512)

set(scalar_objects)
foreach(isa v2 v3 v4)
  add_library(scalar_loops_${isa} OBJECT EXCLUDE_FROM_ALL)
  reel_compile_settings(scalar_loops_${isa})
  target_sources(scalar_loops_${isa} PRIVATE scalar/loops.cpp)
  target_compile_definitions(scalar_loops_${isa} PRIVATE REEL_CPU_ISA=${isa})
  target_compile_options(scalar_loops_${isa} PRIVATE ${scalar_flags} ${scalar_${isa}})
  list(APPEND scalar_objects $<TARGET_OBJECTS:scalar_loops_${isa}>)
endforeach()

reel_add_test(scalar
  scalar/accuracy_test.cpp
  scalar/derivative_test.cpp
  scalar/extremes_test.cpp
  scalar/instruction_sets.cpp
  scalar/philox_test.cpp
  scalar/pow_test.cpp
  scalar/published_test.cpp
  scalar/reference.cpp
  ${scalar_objects})

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_test(NAME scalar_vectorised COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/scalar/vectorised.py
    ${PROJECT_SOURCE_DIR} ${REEL_INCLUDE_DIR} ${CMAKE_CXX_COMPILER} -std=c++20 -ffp-contract=off ${scalar_flags} ${scalar_v4})
endif()
