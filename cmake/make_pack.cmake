# cmake/make_pack.cmake -- builds the pack's object for one ISA level, unless it
# exists: another build directory may have built it.
#
#   PACKER limber-pack          CC      the C compiler
#   LEVEL  x86-64-v4            OBJECT  the output
#   MADE   path of intermediate files, without suffix
if(EXISTS ${OBJECT})
  return()
endif()
get_filename_component(directory ${OBJECT} DIRECTORY)
file(MAKE_DIRECTORY ${directory})
file(LOCK ${OBJECT}.lock) # another build may be building it
if(EXISTS ${OBJECT})
  return()
endif()
execute_process(COMMAND ${PACKER} ${LEVEL} ${MADE} COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CC} -c ${MADE}.s -o ${MADE}.o
  COMMAND_ERROR_IS_FATAL ANY)
file(COPY_FILE ${MADE}.o ${OBJECT}.new)
file(RENAME ${OBJECT}.new ${OBJECT}) # atomically
