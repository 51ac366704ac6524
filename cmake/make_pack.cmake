# cmake/make_pack.cmake -- makes the object of one level, unless it is there:
# a build that has not made it itself would not know.
#
#   MAKER  limber-pack          CC      the C compiler
#   LEVEL  x86-64-v4            OBJECT  what is to be there
#   MADE   files in between, without suffix
if(EXISTS ${OBJECT})
  return()
endif()
get_filename_component(folder ${OBJECT} DIRECTORY)
file(MAKE_DIRECTORY ${folder})
file(LOCK ${OBJECT}.lock) # another build may be making it: minutes of work
if(EXISTS ${OBJECT})
  return()
endif()
execute_process(COMMAND ${MAKER} ${LEVEL} ${MADE} COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CC} -c ${MADE}.s -o ${MADE}.o
  COMMAND_ERROR_IS_FATAL ANY)
file(COPY_FILE ${MADE}.o ${OBJECT}.new)
file(RENAME ${OBJECT}.new ${OBJECT}) # whole or not at all
