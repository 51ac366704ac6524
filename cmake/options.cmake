# All build options, and the compiler flags.
option(LIMBER_TESTS "Build the tests" ON)
find_program(LLVM_CONFIG NAMES llvm-config-19)
set(jit ON)
if(SKBUILD AND NOT LLVM_CONFIG) # `pip install .` works without LLVM
  set(jit OFF)
endif()
set(python OFF)
if(SKBUILD)
  set(python ON)
endif()
option(LIMBER_JIT
  "Compile kernels: limber-jit, and those in the library (needs LLVM 19)" ${jit})
option(LIMBER_BENCH "Build the programs of scripts/bench" ON)
set(LIMBER_COMPILE_KERNELS_FOR_ARCH "x86-64-v3;x86-64-v4" CACHE STRING
  "Levels whose kernels the library contains: x86-64-v3;x86-64-v4, or NONE")
set(LIMBER_PACK_DIR ${PROJECT_SOURCE_DIR}/build/pack CACHE PATH
  "Directory of these kernels, shared by all builds")
option(LIMBER_PREFER_REUSABLE_KERNELS
  "Prefer kernels that serve every shape; other settings override it" OFF)
option(LIMBER_PYTHON "Build the Python package's extension" ${python})
option(LIMBER_FUZZ "Build the libFuzzer targets (clang)" OFF)
set(LIMBER_SANITIZE "" CACHE STRING "Sanitizers: address,undefined or thread")

set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS ON) # for _GNU_SOURCE: memfd, sched_getaffinity
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})

add_compile_definitions(_GNU_SOURCE)
add_compile_options(-Wall -Wextra -Wshadow -Wconversion -Werror
                    -fno-math-errno -ffp-contract=off)
if(CMAKE_C_COMPILER_ID STREQUAL GNU)
  # gcc does not infer that a failed function returned a status other than
  # LB_OK, and reports unset outputs. clang's analysis is exact and stays
  # enabled.
  add_compile_options(-Wno-maybe-uninitialized)
endif()
if(LIMBER_SANITIZE)
  add_compile_options(-fsanitize=${LIMBER_SANITIZE} -fno-omit-frame-pointer
                      -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${LIMBER_SANITIZE})
endif()
if(LIMBER_SANITIZE AND LIMBER_PYTHON)
  # An interpreter that is not instrumented preloads the sanitizer's runtime,
  # which its children inherit: so all programs link it as a shared library.
  execute_process(COMMAND ${CMAKE_C_COMPILER}
    -print-file-name=libclang_rt.asan-${CMAKE_SYSTEM_PROCESSOR}.so
    OUTPUT_VARIABLE asan_runtime OUTPUT_STRIP_TRAILING_WHITESPACE)
  get_filename_component(asan_dir ${asan_runtime} DIRECTORY)
  add_link_options(-shared-libasan LINKER:-rpath,${asan_dir})
endif()
if(LIMBER_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
find_package(Threads REQUIRED)
