# The digits example prints and writes the same for any number of threads, and a run that was stopped and resumed ends with
# the same bytes as one that was not. Called by CTest: cmake -DPROGRAM=<digits> -DFOLDER=<scratch> -P digits_example.cmake

file(REMOVE_RECURSE ${FOLDER})

# run(<name> <arguments>...): runs it in FOLDER/<name>, where its output goes to the file `printed`.
function(run name)
  file(MAKE_DIRECTORY ${FOLDER}/${name})
  execute_process(COMMAND ${PROGRAM} --epochs 1 --seed 3 --device cpu ${ARGN}
    WORKING_DIRECTORY ${FOLDER}/${name}
    OUTPUT_FILE printed ERROR_VARIABLE errors RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${name} ended with ${result}: ${errors}")
  endif()
endfunction()

function(expect_same name)
  foreach(file ${ARGN})
    file(SHA256 ${FOLDER}/one/${file} expected)
    file(SHA256 ${FOLDER}/${name}/${file} got)
    if(NOT got STREQUAL expected)
      message(FATAL_ERROR "${name}/${file} differs from one/${file}")
    endif()
  endforeach()
endfunction()

run(one --threads 1)
run(two --threads 2)
expect_same(two printed digits.safetensors digits.svg)

run(stopped --threads 2 --stop 37)
run(resumed --threads 1 --resume ../stopped/digits.safetensors)
expect_same(resumed printed digits.safetensors digits.svg)

# What must be refused: a run that was not of these options, a file that is none.
foreach(arguments "--batch;32;--resume;../one/digits.safetensors" "--resume;printed" "--device;gpu" "--epochs;0")
  execute_process(COMMAND ${PROGRAM} --epochs 1 ${arguments} WORKING_DIRECTORY ${FOLDER}/two
    OUTPUT_QUIET ERROR_VARIABLE errors RESULT_VARIABLE result)
  if(result EQUAL 0 OR errors STREQUAL "")
    message(FATAL_ERROR "digits ${arguments} must fail and say why")
  endif()
endforeach()
