# Identifies the sources of a program and its modules, as text that base/module_file compares before
# a module is used: C++ types are passed between them, and both must compute the same bits. The text
# is a hash of the sources, so no version number has to be raised by hand.
#
# Also a script: cmake -D ROOT=... -D VERSION=... -D OUTPUT=... -P MayflyModuleBuild.cmake

# The folders from which modules are built, and the suffixes of their sources.
set(MAYFLY_MODULE_FOLDERS base collectives datasets/core nn)
set(MAYFLY_MODULE_SUFFIXES hpp cpp cuh cu)

# mayfly_module_sources(OUTPUT_VARIABLE ROOT [CONFIGURE_DEPENDS])
# Paths from ROOT, in a fixed order.
function(mayfly_module_sources output_variable root)
  set(patterns)
  foreach(folder IN LISTS MAYFLY_MODULE_FOLDERS)
    foreach(suffix IN LISTS MAYFLY_MODULE_SUFFIXES)
      list(APPEND patterns ${root}/${folder}/*.${suffix})
    endforeach()
  endforeach()
  file(GLOB_RECURSE sources RELATIVE ${root} ${ARGN} ${patterns})
  list(SORT sources)
  set(${output_variable} ${sources} PARENT_SCOPE)
endfunction()

# mayfly_module_build_source(OUTPUT_VARIABLE)
# A source file with module_build() of base/module_file.hpp, written again when a source changes.
function(mayfly_module_build_source output_variable)
  mayfly_module_sources(sources ${PROJECT_SOURCE_DIR} CONFIGURE_DEPENDS)
  string(SHA256 names "${sources}")  # so that the command line changes when a file is removed
  list(TRANSFORM sources PREPEND ${PROJECT_SOURCE_DIR}/)
  set(script ${PROJECT_SOURCE_DIR}/cmake/MayflyModuleBuild.cmake)
  set(output ${CMAKE_CURRENT_BINARY_DIR}/module_build.cpp)
  add_custom_command(
    OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -D ROOT=${PROJECT_SOURCE_DIR} -D VERSION=${PROJECT_VERSION}
            -D OUTPUT=${output} -D NAMES=${names} -P ${script}
    DEPENDS ${sources} ${script}
    COMMENT "Hashing the sources of modules"
    VERBATIM)
  set(${output_variable} ${output} PARENT_SCOPE)
endfunction()

if(NOT CMAKE_SCRIPT_MODE_FILE)
  return()
endif()
mayfly_module_sources(sources ${ROOT})
set(hashes)
foreach(source IN LISTS sources)
  file(SHA256 ${ROOT}/${source} hash)
  string(APPEND hashes "${source} ${hash}\n")
endforeach()
string(SHA256 hash "${hashes}")
string(SUBSTRING ${hash} 0 16 hash)
file(CONFIGURE OUTPUT ${OUTPUT} @ONLY CONTENT [[
#include "base/module_file.hpp"

const char* mayfly::module_build() {
  return "@VERSION@ " __VERSION__ " @hash@";
}
]])
