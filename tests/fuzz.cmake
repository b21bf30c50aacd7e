# Programs for libFuzzer, which comes with clang. What they test is compiled into them, because the library is not
# instrumented. As a CTest each runs a while from an empty corpus; run one by hand with a folder to search for long.
option(REEL_FUZZ "Build the libFuzzer programs (needs clang)" OFF)
if(REEL_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "Reel: REEL_FUZZ=ON needs clang, got ${CMAKE_CXX_COMPILER_ID}")
  endif()

  find_package(nlohmann_json 3.9 REQUIRED)
  set(nn ${PROJECT_SOURCE_DIR}/nn)
  set(core ${PROJECT_SOURCE_DIR}/core)
  add_executable(fuzz_safetensors fuzz_safetensors.cpp
    ${nn}/safetensors.cpp ${nn}/safetensors_header.cpp ${nn}/file.cpp ${core}/shape.cpp ${core}/error.cpp)
  set(instrumented -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all)
  target_compile_features(fuzz_safetensors PRIVATE cxx_std_20)
  target_compile_options(fuzz_safetensors PRIVATE -Wall -Wextra ${instrumented})
  target_include_directories(fuzz_safetensors PRIVATE ${REEL_INCLUDE_DIR})
  target_link_libraries(fuzz_safetensors PRIVATE nlohmann_json::nlohmann_json)
  target_link_options(fuzz_safetensors PRIVATE ${instrumented})
  add_test(NAME fuzz_safetensors COMMAND fuzz_safetensors -runs=300000 -max_len=1024)
endif()
