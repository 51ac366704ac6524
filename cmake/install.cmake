# What `cmake --install` installs: the library (shared and static), its headers,
# the command, the manual page, limber.pc and a CMake package. Everything is in
# the component `limber`, so that the Python package, which installs its own
# component, can leave it out.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# The ABI may change with each 0.x; from 1.0 on, the major version is the ABI
# version.
set(abi ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
set_target_properties(limber PROPERTIES
  VERSION ${PROJECT_VERSION} SOVERSION ${abi})

# The static library has the objects of every module under src/; modules under
# jit/ belong to the worker.
get_property(directories DIRECTORY ${PROJECT_SOURCE_DIR} PROPERTY SUBDIRECTORIES)
set(modules $<TARGET_OBJECTS:limber>)
list(FILTER directories INCLUDE REGEX "^${PROJECT_SOURCE_DIR}/src/")
foreach(directory ${directories})
  get_property(targets DIRECTORY ${directory} PROPERTY BUILDSYSTEM_TARGETS)
  list(FILTER targets INCLUDE REGEX "^module_")
  foreach(module ${targets})
    list(APPEND modules $<TARGET_OBJECTS:${module}>)
  endforeach()
endforeach()
add_library(limber-static STATIC ${modules} ${pack_objects})
set_target_properties(limber-static PROPERTIES
  OUTPUT_NAME limber LINKER_LANGUAGE C)

install(TARGETS limber limber-static limber-cli
  RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT limber
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT limber
          NAMELINK_COMPONENT limber
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT limber)
if(TARGET limber-jit) # where the library looks for it: beside itself
  install(TARGETS limber-jit
    RUNTIME DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT limber)
endif()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/limber
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT limber
  FILES_MATCHING PATTERN "*.h")
install(FILES ${PROJECT_SOURCE_DIR}/docs/limber.1
  DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT limber OPTIONAL)

# An installed command finds the library relative to itself.
file(RELATIVE_PATH bin_to_lib
  ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
set_target_properties(limber-cli PROPERTIES
  INSTALL_RPATH "$ORIGIN/${bin_to_lib}")

# Both files are relocatable: they contain no absolute path of this build.
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/limber)
file(RELATIVE_PATH pc_to_prefix
  /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
configure_file(${PROJECT_SOURCE_DIR}/cmake/limber.pc.in
  ${PROJECT_BINARY_DIR}/limber.pc @ONLY)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/limberConfig.cmake.in
  ${PROJECT_BINARY_DIR}/limberConfig.cmake
  INSTALL_DESTINATION ${package_dir}
  PATH_VARS CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_LIBDIR)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/limberConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/limber.pc
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT limber)
install(FILES ${PROJECT_BINARY_DIR}/limberConfig.cmake
              ${PROJECT_BINARY_DIR}/limberConfigVersion.cmake
  DESTINATION ${package_dir} COMPONENT limber)
