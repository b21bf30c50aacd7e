# `cmake --install` and what find_package(Reel) reads. Nothing in it names the build machine's folders.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Reel)

install(TARGETS reel EXPORT ReelTargets INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES reel.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/reel)
# Every header of these folders is public; those of backends/ are not.
foreach(folder core ops nn interop)
  install(DIRECTORY ${folder} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/reel FILES_MATCHING PATTERN "*.h")
endforeach()
install(FILES LICENSE NOTICE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES scripts/gdb/reel_printers.py DESTINATION ${CMAKE_INSTALL_DATADIR}/reel/gdb)

if(REEL_CUDA)
  install(TARGETS reel_cuda EXPORT ReelCudaTargets)
  install(EXPORT ReelCudaTargets NAMESPACE Reel:: DESTINATION ${package_dir})
endif()

install(EXPORT ReelTargets NAMESPACE Reel:: DESTINATION ${package_dir})
configure_package_config_file(cmake/ReelConfig.cmake.in ${PROJECT_BINARY_DIR}/ReelConfig.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/ReelConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/ReelConfig.cmake ${PROJECT_BINARY_DIR}/ReelConfigVersion.cmake
  DESTINATION ${package_dir})
