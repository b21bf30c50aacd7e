# Every include is spelled "reel/<folder>/<file>.h". In the build tree that is a folder of links to the sources, so that
# the tree and the installed package read the same; the links are relative, so that both may be moved together.
set(REEL_INCLUDE_DIR ${PROJECT_BINARY_DIR}/include)
file(MAKE_DIRECTORY ${REEL_INCLUDE_DIR}/reel)
foreach(name core ops backends nn interop examples tests reel.h)
  file(RELATIVE_PATH target ${REEL_INCLUDE_DIR}/reel ${PROJECT_SOURCE_DIR}/${name})
  file(CREATE_LINK ${target} ${REEL_INCLUDE_DIR}/reel/${name} SYMBOLIC)
endforeach()
