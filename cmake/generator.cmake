# The version of the kernel generator, which is part of every key: a hash of all
# that decides what code a spec becomes. Library and worker of one build have
# the same; both read it from spec/generator.h.
file(GLOB generator_sources CONFIGURE_DEPENDS
  ${PROJECT_SOURCE_DIR}/jit/kir/*.[ch] ${PROJECT_SOURCE_DIR}/jit/kir/*.def
  ${PROJECT_SOURCE_DIR}/jit/lower/*.[ch]
  ${PROJECT_SOURCE_DIR}/jit/render/*.[ch]
  ${PROJECT_SOURCE_DIR}/jit/toolchain/*.[ch]
  ${PROJECT_SOURCE_DIR}/jit/worker/jit.c
  ${PROJECT_SOURCE_DIR}/src/spec/target.c
  ${PROJECT_SOURCE_DIR}/src/spec/target.def
  ${PROJECT_SOURCE_DIR}/src/spec/abi.h ${PROJECT_SOURCE_DIR}/src/spec/spec.h
  ${PROJECT_SOURCE_DIR}/src/spec/sops.def)
list(FILTER generator_sources EXCLUDE REGEX "_test\\.[ch]$|/test[a-z]*\\.h$")
set_property(DIRECTORY APPEND PROPERTY
  CMAKE_CONFIGURE_DEPENDS ${generator_sources})

set(generator_hashes "")
foreach(source ${generator_sources})
  file(SHA256 ${source} hash)
  string(APPEND generator_hashes ${hash})
endforeach()
find_program(LLVM_CONFIG NAMES llvm-config-19)
if(LLVM_CONFIG)
  execute_process(COMMAND ${LLVM_CONFIG} --version OUTPUT_VARIABLE llvm_version)
  string(APPEND generator_hashes "${llvm_version}")
endif()
string(SHA256 generator_hash "${generator_hashes}")
string(SUBSTRING ${generator_hash} 0 16 generator_version)
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/spec/generator.h CONTENT
"// The version of the kernel generator; made by cmake/generator.cmake.
#define LB_GENERATOR_VERSION UINT64_C(0x@generator_version@)
" @ONLY)
