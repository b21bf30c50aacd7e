# Reel as other projects get it: installed (static and shared), or as a folder of theirs.
set(work ${PROJECT_BINARY_DIR}/packaging)
set(compiler ${CMAKE_CXX_COMPILER})
file(MAKE_DIRECTORY ${work})

# With Reel::cuda where it is built; its programs run with and without a GPU.
set(flavours static shared)
if(REEL_CUDA)
  list(APPEND flavours static_with_cuda shared_with_cuda)
endif()

foreach(flavour ${flavours})
  set(ways add_subdirectory FetchContent FetchContent_git)
  set(settings -DREEL_CUDA=OFF)
  set(wanted)
  if(flavour MATCHES "with_cuda")
    set(ways add_subdirectory FetchContent)
    set(settings -DREEL_CUDA=ON -DCUDAToolkit_ROOT=${CUDAToolkit_BIN_DIR}/..)
    set(wanted -DCOMPONENTS=cuda -DCUDAToolkit_ROOT=${CUDAToolkit_BIN_DIR}/..)
  endif()

  add_test(NAME install_${flavour} COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/install/install.sh
    ${flavour} ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR} ${work} ${compiler} ${settings})
  set_tests_properties(install_${flavour} PROPERTIES
    FIXTURES_SETUP installed_${flavour} TIMEOUT 300 ENVIRONMENT CMAKE_GENERATOR=${CMAKE_GENERATOR})

  add_test(NAME find_package_${flavour} COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/install/consume.sh
    find_package_${flavour} ${work} ${compiler} -DCMAKE_PREFIX_PATH=${work}/${flavour} ${wanted})
  set_tests_properties(find_package_${flavour} PROPERTIES
    FIXTURES_REQUIRED installed_${flavour} TIMEOUT 300 ENVIRONMENT CMAKE_GENERATOR=${CMAKE_GENERATOR})

  string(REGEX MATCH "^shared" shared ${flavour})
  string(COMPARE NOTEQUAL "${shared}" "" shared)
  foreach(how ${ways})
    set(name ${how}_${flavour})
    set(before)
    set(from -DREEL_SOURCE=${PROJECT_SOURCE_DIR})
    if(how STREQUAL "FetchContent_git")
      set(before ${CMAKE_CURRENT_SOURCE_DIR}/install/repository.sh ${PROJECT_SOURCE_DIR} ${work}/repository_${flavour})
      set(from -DREEL_URL=file://${work}/repository_${flavour})
    endif()
    add_test(NAME ${name} COMMAND ${before} ${CMAKE_CURRENT_SOURCE_DIR}/install/consume.sh ${name} ${work} ${compiler}
      -DHOW=${how} ${from} -DREEL_OBJECTS_FROM=${PROJECT_BINARY_DIR} -DBUILD_SHARED_LIBS=${shared}
      ${settings} ${wanted})
    set_tests_properties(${name} PROPERTIES
      TIMEOUT 300 SKIP_RETURN_CODE 77 ENVIRONMENT CMAKE_GENERATOR=${CMAKE_GENERATOR})
  endforeach()
endforeach()

# A Reel without the CUDA backend says so to who asks for it.
add_test(NAME find_package_cuda_missing COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/install/consume.sh
  find_package_cuda_missing ${work} ${compiler} -DCMAKE_PREFIX_PATH=${work}/static -DCOMPONENTS=cuda)
set_tests_properties(find_package_cuda_missing PROPERTIES FIXTURES_REQUIRED installed_static TIMEOUT 300
  PASS_REGULAR_EXPRESSION "this Reel was built without its CUDA backend" ENVIRONMENT CMAKE_GENERATOR=${CMAKE_GENERATOR})
# And what is no component at all is named.
add_test(NAME find_package_component_unknown COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/install/consume.sh
  find_package_component_unknown ${work} ${compiler} -DCMAKE_PREFIX_PATH=${work}/static -DCOMPONENTS=gpu)
set_tests_properties(find_package_component_unknown PROPERTIES FIXTURES_REQUIRED installed_static TIMEOUT 300
  PASS_REGULAR_EXPRESSION "Reel has no component 'gpu', only cuda" ENVIRONMENT CMAKE_GENERATOR=${CMAKE_GENERATOR})

# A Reel for one instruction set runs without the others, and names its own to who asks for another.
add_test(NAME install_one_isa COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/install/install.sh static_v2 ${PROJECT_SOURCE_DIR}
  ${PROJECT_BINARY_DIR} ${work} ${compiler} -DREEL_CUDA=OFF -DREEL_ISAS=v2 -DCMAKE_COMPILE_WARNING_AS_ERROR=ON)
add_test(NAME find_package_one_isa COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/install/consume.sh
  find_package_one_isa ${work} ${compiler} -DCMAKE_PREFIX_PATH=${work}/static_v2)
add_test(NAME one_isa_refuses_others COMMAND sh -c "${work}/find_package_one_isa/consumer || true")
set_tests_properties(install_one_isa PROPERTIES FIXTURES_SETUP installed_one_isa)
set_tests_properties(find_package_one_isa PROPERTIES FIXTURES_REQUIRED installed_one_isa FIXTURES_SETUP consumer_one_isa)
set_tests_properties(install_one_isa find_package_one_isa PROPERTIES
  TIMEOUT 300 ENVIRONMENT CMAKE_GENERATOR=${CMAKE_GENERATOR})
set_tests_properties(one_isa_refuses_others PROPERTIES FIXTURES_REQUIRED consumer_one_isa ENVIRONMENT REEL_ISA=v3
  PASS_REGULAR_EXPRESSION "REEL_ISA: must be an instruction set that this CPU has and Reel was built for .v2., got 'v3'")

# What REEL_ISAS may not be is told by CMake.
file(WRITE ${work}/for_v2/reel-objects.txt "/reel_cpu_v2.dir/a.cpp.o\n")
function(reel_add_isas_test name isas from message)
  add_test(NAME isas_${name} COMMAND ${CMAKE_COMMAND} -S ${PROJECT_SOURCE_DIR} -B ${work}/isas_${name} -DREEL_ISAS=${isas}
    -DCMAKE_CXX_COMPILER=${compiler} -DREEL_OBJECTS_FROM=${from} -DREEL_CUDA=OFF -DREEL_TESTS=OFF -DREEL_EXAMPLES=OFF -DREEL_BENCHMARKS=OFF)
  set_tests_properties(isas_${name} PROPERTIES
    PASS_REGULAR_EXPRESSION "${message}" TIMEOUT 300 ENVIRONMENT CMAKE_GENERATOR=${CMAKE_GENERATOR})
endfunction()
reel_add_isas_test(unknown v5 ${PROJECT_BINARY_DIR} "REEL_ISAS must be of v2, v3, v4 and native, got 'v5'")
reel_add_isas_test(none "" ${PROJECT_BINARY_DIR} "REEL_ISAS must name an instruction set, of v2, v3, v4 and native")
reel_add_isas_test(missing v3 ${work}/for_v2 "REEL_ISAS must be sets.*built.*'v3'")

add_test(NAME presets COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/install/presets.sh ${PROJECT_SOURCE_DIR} ${work})
set_tests_properties(presets PROPERTIES TIMEOUT 300)

find_program(REEL_NINJA NAMES ninja ninja-build)
if(REEL_NINJA)
  add_test(NAME surroundings COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/install/surroundings.sh
    ${PROJECT_SOURCE_DIR} ${work} ${compiler})
  set_tests_properties(surroundings PROPERTIES TIMEOUT 300)
  add_test(NAME other_compiler COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/install/other_compiler.sh
    ${PROJECT_SOURCE_DIR} ${work} clang++ OFF)
  # A dozen files at a time, as builds without tests compile them: those may not give two things one name.
  add_test(NAME unity COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/install/other_compiler.sh
    ${PROJECT_SOURCE_DIR} ${work} ${compiler} ON)
  set_tests_properties(other_compiler unity PROPERTIES PROCESSORS 2 TIMEOUT 900 SKIP_RETURN_CODE 77)
endif()

add_test(NAME library_size COMMAND ${Python3_EXECUTABLE} ${checks}/library_size.py ${work}/shared/lib/libreel.so ${work})
set_tests_properties(library_size PROPERTIES FIXTURES_REQUIRED installed_shared SKIP_RETURN_CODE 77)

# Without clang++ its test is skipped, and counted as such.
find_program(REEL_CLANGXX clang++)
set(together)
foreach(header_compiler ${CMAKE_CXX_COMPILER} ${REEL_CLANGXX})
  get_filename_component(name ${header_compiler} NAME)
  string(REPLACE "REEL_CLANGXX-NOTFOUND" "clang++" name ${name})
  if(NOT TEST headers_${name})
    add_test(NAME headers_${name} COMMAND ${Python3_EXECUTABLE} ${checks}/headers.py ${work}/static/include ${header_compiler}
      ${together})
    set_tests_properties(headers_${name} PROPERTIES
      FIXTURES_REQUIRED installed_static TIMEOUT 600 SKIP_RETURN_CODE 77)
  endif()
  set(together --together)
endforeach()
