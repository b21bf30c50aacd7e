# The digits example prints and writes the same for any number of threads, and a run that was stopped and resumed ends with
# the same bytes as one that was not, also if it was stopped twice and within an epoch. Called by CTest:
# cmake -DPROGRAM=<digits> -DFOLDER=<scratch> -DEPOCHS=<number> -DSTOP=<steps> -P digits_example.cmake

file(REMOVE_RECURSE ${FOLDER})

# run(<name> <arguments>...): runs it in FOLDER/<name>, where its output goes to the file `printed`.
function(run name)
  file(MAKE_DIRECTORY ${FOLDER}/${name})
  execute_process(COMMAND ${PROGRAM} --epochs ${EPOCHS} --seed 3 --device cpu ${ARGN}
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
run(three --threads 3)

# An epoch has 113 steps.
math(EXPR later "${STOP} + 20")
run(stopped --threads 2 --stop ${STOP})
run(again --threads 3 --stop ${later} --resume ../stopped/digits.safetensors)
run(resumed --threads 1 --resume ../again/digits.safetensors)

foreach(name two three resumed)
  expect_same(${name} printed digits.safetensors digits.svg)
endforeach()

file(READ ${FOLDER}/one/printed text)
foreach(part "conv1 +Conv2dRelu" "epoch  1  loss" "true \\\\ predicted +0 +1" "accuracy +[0-9.]+ % \\([0-9]+ of 360\\)")
  if(NOT text MATCHES "${part}")
    message(FATAL_ERROR "'${part}' is not in what digits prints:\n${text}")
  endif()
endforeach()
execute_process(COMMAND ${PROGRAM} --help OUTPUT_VARIABLE text RESULT_VARIABLE result)
foreach(option --epochs --batch --rate --seed --threads --device --resume --output --stop --require-accuracy)
  if(result OR NOT text MATCHES "${option} ")
    message(FATAL_ERROR "${option} is not in what digits --help prints:\n${text}")
  endif()
endforeach()

# What must be refused: a run that was not of these options or is past the stop, a file that is none, numbers out of range.
set(stopped --epochs ${EPOCHS} --resume ../stopped/digits.safetensors)
math(EXPR longer "${EPOCHS} + 1")
foreach(arguments
    "${stopped};--batch;32" "${stopped};--rate;0.01" "${stopped};--stop;${STOP}"
    "--epochs;${longer};--resume;../stopped/digits.safetensors" "--resume;printed" "--device;gpu" "--epochs;0"
    "--epochs;9000000000000000000" "--threads;-1" "--rate;nan;--stop;1" "--nonsense")
  execute_process(COMMAND ${PROGRAM} ${arguments} WORKING_DIRECTORY ${FOLDER}/two
    OUTPUT_QUIET ERROR_VARIABLE errors RESULT_VARIABLE result)
  if(result EQUAL 0 OR errors STREQUAL "")
    message(FATAL_ERROR "digits ${arguments} must fail and say why")
  endif()
endforeach()
