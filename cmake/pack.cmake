# The pack: the built-in kernels of the library, one object for each ISA level
# in LIMBER_COMPILE_KERNELS_FOR_ARCH, built by limber-pack. The directory of an
# object is named by a hash of all sources that determine it, so that all
# presets share it, and a build after an unrelated change reuses it.
set(levels "")
if(TARGET limber-pack AND NOT LIMBER_COMPILE_KERNELS_FOR_ARCH STREQUAL "NONE")
  set(levels ${LIMBER_COMPILE_KERNELS_FOR_ARCH})
endif()

file(GLOB pack_sources CONFIGURE_DEPENDS
  ${PROJECT_SOURCE_DIR}/jit/*/*.[ch] ${PROJECT_SOURCE_DIR}/jit/*/*.def
  ${PROJECT_SOURCE_DIR}/src/spec/*.[ch] ${PROJECT_SOURCE_DIR}/src/spec/*.def
  ${PROJECT_SOURCE_DIR}/src/partition/*.[ch]
  ${PROJECT_SOURCE_DIR}/src/device/cpu/elf.c
  ${PROJECT_SOURCE_DIR}/src/device/cpu/pack.h)
list(FILTER pack_sources EXCLUDE REGEX "_test\\.[ch]$|/test[a-z]*\\.h$")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${pack_sources})
set(hashes "")
foreach(source ${pack_sources})
  file(SHA256 ${source} hash)
  string(APPEND hashes ${hash})
endforeach()
if(LLVM_CONFIG)
  execute_process(COMMAND ${LLVM_CONFIG} --version OUTPUT_VARIABLE llvm_version)
  string(APPEND hashes "${llvm_version}")
endif()
string(SHA256 hash "${hashes}")
string(SUBSTRING ${hash} 0 16 hash)
set(directory ${LIMBER_PACK_DIR}/${hash})

set(pack_objects "")
foreach(level ${levels})
  if(NOT level MATCHES "^x86-64-v[34]$")
    message(FATAL_ERROR "LIMBER_COMPILE_KERNELS_FOR_ARCH: there are kernels "
      "for x86-64-v3 and x86-64-v4, not for '${level}'; NONE leaves them out")
  endif()
  set(object ${directory}/pack-${level}.o)
  add_custom_command(OUTPUT ${object}
    COMMAND ${CMAKE_COMMAND} -DPACKER=$<TARGET_FILE:limber-pack>
      -DCC=${CMAKE_C_COMPILER} -DLEVEL=${level} -DOBJECT=${object}
      -DMADE=${PROJECT_BINARY_DIR}/pack-${level}
      -P ${PROJECT_SOURCE_DIR}/cmake/make_pack.cmake
    COMMENT "Kernels for ${level}" VERBATIM)
  list(APPEND pack_objects ${object})
  string(REPLACE "x86-64-v" "LIMBER_PACK_V" name ${level})
  target_compile_definitions(module_api PRIVATE ${name})
endforeach()

if(pack_objects)
  set_source_files_properties(${pack_objects} PROPERTIES
    GENERATED TRUE EXTERNAL_OBJECT TRUE)
  add_custom_target(pack DEPENDS ${pack_objects})
  add_dependencies(module_api pack)
  target_link_libraries(module_api PUBLIC ${pack_objects})
endif()
