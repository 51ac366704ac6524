# limber_module(NAME FILES f.c ... [USES module ...] [LIBS lib ...]
#               [UNDER directory ...])
#   Defines a module: a static library module_NAME with an explicit list of
#   sources. USES: the modules that it may include. Include paths are relative
#   to src/ and to the directories of UNDER.
function(limber_module name)
  cmake_parse_arguments(R "" "" "FILES;USES;LIBS;UNDER" ${ARGN})
  add_library(module_${name} STATIC ${R_FILES})
  foreach(directory src ${R_UNDER})
    target_include_directories(module_${name} PUBLIC
      ${PROJECT_SOURCE_DIR}/${directory})
  endforeach()
  foreach(use ${R_USES})
    target_link_libraries(module_${name} PUBLIC module_${use})
  endforeach()
  target_link_libraries(module_${name} PUBLIC ${R_LIBS})
endfunction()

# lb_test(NAME FILE f.c USES module ... [THREADS])
#   Defines a cmocka program that ctest runs. THREADS: it also runs under
#   ThreadSanitizer (target `thread_tests`).
function(lb_test name)
  if(NOT LIMBER_TESTS)
    return()
  endif()
  cmake_parse_arguments(T "THREADS" "FILE" "USES" ${ARGN})
  add_executable(test_${name} ${T_FILE})
  set_target_properties(test_${name} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  foreach(use ${T_USES})
    target_link_libraries(test_${name} PRIVATE module_${use})
  endforeach()
  target_link_libraries(test_${name} PRIVATE cmocka m)
  add_test(NAME ${name} COMMAND test_${name})
  set_tests_properties(${name} PROPERTIES ENVIRONMENT LIMBER_CACHE_DIR=off)
  if(T_THREADS)
    set_tests_properties(${name} PROPERTIES LABELS threads)
    add_dependencies(thread_tests test_${name})
  endif()
endfunction()

if(LIMBER_TESTS)
  enable_testing()
  add_custom_target(thread_tests)
endif()
