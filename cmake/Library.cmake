# How Reel's own code is compiled, and the library made of it.
#
# All code is compiled once, position-independent, into object libraries: `reel_objects` and `reel_small_objects` for the
# baseline x86-64, and one `reel_cpu_<set>` per instruction set for the kernels (backends/cpu), among which `reel_choice` chooses.
# `reel` is these objects, static or shared.

find_package(OpenMP REQUIRED COMPONENTS CXX)

# Reading standard headers is half of a build from nothing, so that each object library reads its own once. Not through a
# compiler cache, which finds nothing by a precompiled header.
if("${CMAKE_CXX_COMPILER_LAUNCHER};${CMAKE_CXX_COMPILER}" MATCHES "cache")
  set(CMAKE_DISABLE_PRECOMPILE_HEADERS ON)
endif()

# Settings that every translation unit of Reel needs, and that no user of Reel inherits.
function(reel_compile_settings target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_compile_definitions(${target} PRIVATE REEL_LIBRARY)  # core/macros.h
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${REEL_INCLUDE_DIR}>)
  # Contraction to fma is written out where it is wanted, never left to the compiler: same bits with every compiler.
  target_compile_options(${target} PRIVATE
    $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-ffp-contract=off>
    $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20;--fmad=false;--diag-suppress=1675;-Xcompiler=-Wall,-Wextra,-ffp-contract=off>)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)  # warns of std::string's own operator+ (GCC bug 105651)
  endif()
  set_target_properties(${target} PROPERTIES
    CXX_EXTENSIONS OFF
    POSITION_INDEPENDENT_CODE ON
    CXX_VISIBILITY_PRESET hidden
    CUDA_VISIBILITY_PRESET hidden
    VISIBILITY_INLINES_HIDDEN ON
    UNITY_BUILD OFF)  # which a project around Reel may ask for; the kernels' files share names
  target_link_libraries(${target} PRIVATE OpenMP::OpenMP_CXX)
endfunction()

# SEPARATE: not part of libreel itself.
# An object library, or the same objects from the build tree REEL_OBJECTS_FROM (compile once, package static and shared).
function(reel_add_objects target)
  if(NOT "SEPARATE" IN_LIST ARGN)
    set_property(GLOBAL APPEND PROPERTY REEL_OBJECT_LIBRARIES ${target})
  endif()
  add_library(${target} OBJECT)
  set_target_properties(${target} PROPERTIES EXCLUDE_FROM_ALL ON)
  reel_compile_settings(${target})
endfunction()

# The long loops are in the kernels; here CMake's -O3 would add a fifth to the size and nothing to the speed, and what lies between
# aligned branches a thirtieth.
set(unaligned)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(unaligned -fno-align-loops -fno-align-jumps -fno-align-labels)
endif()
reel_add_objects(reel_objects)
target_compile_options(reel_objects PRIVATE $<$<CONFIG:Release>:-O2> "$<$<COMPILE_LANGUAGE:CXX>:${unaligned}>")
# What is seldom called, or leaves the work to others: here the library's size counts.
reel_add_objects(reel_small_objects)
target_compile_options(reel_small_objects PRIVATE $<$<CONFIG:Release>:-Os>)
reel_add_objects(reel_choice)
foreach(objects reel_objects reel_small_objects)
  set_target_properties(${objects} PROPERTIES UNITY_BUILD ${REEL_UNITY} UNITY_BUILD_BATCH_SIZE 12)
  target_precompile_headers(${objects} PRIVATE
    <algorithm> <atomic> <cmath> <functional> <map> <memory> <mutex> <optional> <span> <string> <vector>)
endforeach()

# The list that REEL_OBJECTS_FROM reads; where a build tree is for several configurations, it lists those of Release.
function(reel_list_objects name objects)
  set(condition)
  get_property(several GLOBAL PROPERTY GENERATOR_IS_MULTI_CONFIG)
  if(several)
    set(condition CONDITION $<CONFIG:Release>)
  endif()
  file(GENERATE OUTPUT ${PROJECT_BINARY_DIR}/${name} CONTENT "$<JOIN:${objects},\n>\n" ${condition})
endfunction()

# Of a finished tree's objects those of the instruction sets that are wanted here; if they are fewer, with a choice of our own.
function(reel_object_files result)
  if(REEL_OBJECTS_FROM)
    file(STRINGS ${REEL_OBJECTS_FROM}/reel-objects.txt files)
    set(kernels ${files})
    list(FILTER kernels INCLUDE REGEX "/reel_cpu_[^/]*[.]dir/")
    list(JOIN REEL_ISAS "|" wanted)
    set(wanted_kernels ${kernels})
    list(FILTER wanted_kernels INCLUDE REGEX "/reel_cpu_(${wanted})(_[a-z]+)?[.]dir/")
    foreach(isa ${REEL_ISAS})
      if(NOT wanted_kernels MATCHES "/reel_cpu_${isa}[._]")
        message(FATAL_ERROR "Reel: REEL_ISAS must be sets that ${REEL_OBJECTS_FROM} was built for, got '${isa}'")
      endif()
    endforeach()
    if(NOT wanted_kernels STREQUAL kernels)
      list(FILTER files EXCLUDE REGEX "/reel_(cpu_[^/]*|choice)[.]dir/")
      list(APPEND files ${wanted_kernels} $<TARGET_OBJECTS:reel_choice>)
    endif()
  else()
    get_property(libraries GLOBAL PROPERTY REEL_OBJECT_LIBRARIES)
    list(TRANSFORM libraries REPLACE "(.+)" "$<TARGET_OBJECTS:\\1>" OUTPUT_VARIABLE files)
    get_property(listed GLOBAL PROPERTY REEL_OBJECTS_LISTED)
    if(NOT listed)
      # CMake counts precompiled headers among them.
      reel_list_objects(reel-objects.txt "$<FILTER:${files},INCLUDE,[.]o$>")
      set_property(GLOBAL PROPERTY REEL_OBJECTS_LISTED TRUE)
    endif()
  endif()
  set(${result} ${files} PARENT_SCOPE)
endfunction()

# Packed, the addresses that the loader fills in take a hundredth of the room. Wants binutils 2.38 to link and glibc 2.36 to run.
include(CheckLinkerFlag)
check_linker_flag(CXX LINKER:-z,pack-relative-relocs REEL_PACKED_RELOCATIONS)
check_linker_flag(CXX LINKER:-Bsymbolic-functions REEL_BOUND_FUNCTIONS)

# Called when all folders have added their sources.
function(reel_add_library)
  reel_object_files(objects)
  add_library(reel ${objects})
  add_library(Reel::reel ALIAS reel)
  target_compile_features(reel PUBLIC cxx_std_20)
  target_include_directories(reel INTERFACE $<BUILD_INTERFACE:${REEL_INCLUDE_DIR}>)
  target_link_libraries(reel PRIVATE OpenMP::OpenMP_CXX ${CMAKE_DL_LIBS})
  if(BUILD_SHARED_LIBS AND NOT CMAKE_CXX_FLAGS MATCHES "-fsanitize")
    target_link_options(reel PRIVATE $<$<BOOL:${REEL_PACKED_RELOCATIONS}>:LINKER:-z,pack-relative-relocs>)
    # Calls from one of its functions to another are direct, as they are in a program that it is linked into.
    target_link_options(reel PRIVATE $<$<BOOL:${REEL_BOUND_FUNCTIONS}>:LINKER:-Bsymbolic-functions>)
    target_link_options(reel PRIVATE LINKER:-z,defs)  # a missing symbol is an error here, not in the user's program
  endif()
  set_target_properties(reel PROPERTIES
    LINKER_LANGUAGE CXX
    VERSION ${PROJECT_VERSION}
    SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
endfunction()
