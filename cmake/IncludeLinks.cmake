# Every include is spelled "reel/<folder>/<file>.h". In the build tree that is a folder of links to the sources, so that
# the tree and the installed package read the same; the links are relative, so that both may be moved together.
set(REEL_INCLUDE_DIR ${PROJECT_BINARY_DIR}/include)
file(MAKE_DIRECTORY ${REEL_INCLUDE_DIR}/reel)
file(REAL_PATH ${REEL_INCLUDE_DIR}/reel from)  # the system follows the links from there, if a folder above is a link too
file(REAL_PATH ${PROJECT_SOURCE_DIR} sources)
foreach(name core ops backends nn interop examples tests reel.h)
  file(RELATIVE_PATH target ${from} ${sources}/${name})
  file(CREATE_LINK ${target} ${REEL_INCLUDE_DIR}/reel/${name} SYMBOLIC)
endforeach()
