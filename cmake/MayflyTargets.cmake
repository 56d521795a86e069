# Several sources of one target are compiled as one translation unit: their headers are read once,
# so a whole build takes a third of the time. For work on one file separate compilation may be
# preferred.
option(MAYFLY_BATCHES "Compile several sources of a target at once" ON)
set(MAYFLY_BATCH_SIZE 12)

# mayfly_batches(TARGET)
# Kernels that Highway compiles once for each instruction set stay alone: they include themselves.
function(mayfly_batches target)
  get_target_property(sources ${target} SOURCES)
  foreach(source IN LISTS sources)
    cmake_path(ABSOLUTE_PATH source)
    set(dispatched)
    if(EXISTS ${source})
      file(STRINGS ${source} dispatched REGEX "HWY_TARGET_INCLUDE" LIMIT_COUNT 1)
    endif()
    if(dispatched)
      set_source_files_properties(${source} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    endif()
  endforeach()
  set_target_properties(${target} PROPERTIES
    UNITY_BUILD ${MAYFLY_BATCHES} UNITY_BUILD_BATCH_SIZE ${MAYFLY_BATCH_SIZE})
  # A class of one source may have members of types in that source's unnamed namespace: GCC warns
  # about that if the source is not the main file.
  target_compile_options(${target} PRIVATE
    $<$<AND:$<BOOL:${MAYFLY_BATCHES}>,$<CXX_COMPILER_ID:GNU>>:-Wno-subobject-linkage>)
endfunction()

# mayfly_library(NAME [COLD] [SOURCES ...] [PUBLIC targets...] [PRIVATE targets...])
# A static library of one folder; includes are written from the repository's root. Mayfly's
# libraries are named mayfly_<folder with underscores>. Without SOURCES the folder has only headers.
# COLD: none of its code runs within a step, so it is compiled with -O1, in three quarters of the
# time.
function(mayfly_library name)
  cmake_parse_arguments(ARG "COLD" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  if(NOT ARG_SOURCES)
    add_library(mayfly_${name} INTERFACE)
    target_include_directories(mayfly_${name} INTERFACE ${PROJECT_SOURCE_DIR})
    target_link_libraries(mayfly_${name} INTERFACE ${ARG_PUBLIC})
    return()
  endif()
  add_library(mayfly_${name} STATIC ${ARG_SOURCES})
  target_include_directories(mayfly_${name} PUBLIC ${PROJECT_SOURCE_DIR})
  target_link_libraries(mayfly_${name} PUBLIC ${ARG_PUBLIC} PRIVATE ${ARG_PRIVATE})
  if(ARG_COLD)
    target_compile_options(mayfly_${name} PRIVATE $<$<NOT:$<CONFIG:Debug>>:-O1>)
  endif()
  mayfly_batches(mayfly_${name})
endfunction()

# All modules. They are built together with the program, which rejects modules of another build.
add_custom_target(modules)

# mayfly_module(NAME SOURCES ... LIBS ...)
# libmayfly_<NAME>.so beside the program: a part that is loaded at run time, because not every
# machine has its libraries. It contains its own copy of Mayfly's static libraries and exports one
# symbol.
function(mayfly_module name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBS" ${ARGN})
  add_library(mayfly_${name} MODULE ${ARG_SOURCES})
  target_include_directories(mayfly_${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(mayfly_${name} PRIVATE ${ARG_LIBS} mayfly_module_file)
  target_link_options(mayfly_${name} PRIVATE -Wl,--exclude-libs,ALL)
  set_target_properties(mayfly_${name} PROPERTIES
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}
    CXX_VISIBILITY_PRESET hidden)
  mayfly_batches(mayfly_${name})
  add_dependencies(modules mayfly_${name})
  set_property(GLOBAL APPEND PROPERTY MAYFLY_MODULES mayfly_${name})
endfunction()

# The part of the machine that a test keeps busy, in slots: scripts/test gives ctest five slots for
# two cores. A job of several workers waits for a quarter of its time, so two jobs run at once on
# two cores, besides a test that mostly waits.
set(MAYFLY_LOAD_WAITS 1)
set(MAYFLY_LOAD_ONE_CORE 2)
set(MAYFLY_LOAD_JOB 4)
cmake_host_system_information(RESULT cores QUERY NUMBER_OF_LOGICAL_CORES)
if(MAYFLY_LOAD_JOB GREATER cores)
  set(MAYFLY_LOAD_JOB ${cores})
endif()
math(EXPR MAYFLY_LOAD_MOST "5 * ${cores} / 2 - 1")
# ctest first starts tests with the highest COST: those with many slots, then those that fit beside
# them.
set(MAYFLY_COST_MOST 2500)
set(MAYFLY_COST_JOB 2000)
set(MAYFLY_COST_WAITS 1000)
set(MAYFLY_COST_ONE_CORE 0)
set(MAYFLY_COST_LONG 3000)

# mayfly_test_load(WAITS|ONE_CORE|JOB|MOST|ALONE|LONG TEST...)
# How busy these tests keep the machine. MOST is for tests that another job would disturb: ranks of
# Open MPI, which poll while they wait, and tests that count late events. ALONE is for tests that
# judge speed, or that start more processes than any machine has cores. LONG, in addition, is for
# tests that take a good part of their label's time: they begin before others, so that they do not
# end after them. Names that are not tests of this build are ignored.
function(mayfly_test_load load)
  foreach(test ${ARGN})
    if(NOT TEST ${test})
      continue()
    endif()
    if(load STREQUAL "ALONE")
      set_tests_properties(${test} PROPERTIES RUN_SERIAL TRUE)
    elseif(load STREQUAL "LONG")
      set_tests_properties(${test} PROPERTIES COST ${MAYFLY_COST_LONG})
    else()
      set_tests_properties(${test} PROPERTIES
        PROCESSORS ${MAYFLY_LOAD_${load}} COST ${MAYFLY_COST_${load}})
    endif()
  endforeach()
endfunction()

# mayfly_test(NAME LABEL label SOURCES ... LIBS ... [TIMEOUT seconds] [ENVIRONMENT VAR=value...]
#             [SERIAL] [LONG] [SUITES suite...])
# One GoogleTest executable whose tests are registered with CTest under the label. LONG: some tests
# take so long that they begin before others. SUITES: each of these test suites is registered as one
# test, because its tests share a process that takes longer to start than they take to run; all
# other tests of the executable are registered as one more.
function(mayfly_test name)
  cmake_parse_arguments(ARG "SERIAL;LONG" "LABEL;TIMEOUT" "SOURCES;LIBS;ENVIRONMENT;SUITES" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  # Tests need no speed: with -O1 they build in half the time. GCC 12 warns wrongly about "literal"
  # + string and about an operator new that a test replaces to count allocations.
  target_compile_options(${name} PRIVATE -O1 -Wno-restrict -Wno-mismatched-new-delete)
  target_link_libraries(${name} PRIVATE ${ARG_LIBS} GTest::gtest GTest::gmock GTest::gtest_main)
  mayfly_batches(${name})
  set(properties LABELS ${ARG_LABEL} PROCESSORS ${MAYFLY_LOAD_ONE_CORE})
  if(ARG_TIMEOUT)
    list(APPEND properties TIMEOUT ${ARG_TIMEOUT})
  else()
    list(APPEND properties TIMEOUT 120)
  endif()
  if(ARG_LONG)
    list(APPEND properties COST ${MAYFLY_COST_LONG})
  endif()
  if(ARG_SERIAL)
    list(APPEND properties RUN_SERIAL TRUE)
  endif()
  if(ARG_ENVIRONMENT)
    list(APPEND properties ENVIRONMENT "${ARG_ENVIRONMENT}")
  endif()
  if(ARG_SUITES)
    set(filters)
    foreach(suite ${ARG_SUITES})
      add_test(NAME ${name}/${suite} COMMAND ${name} --gtest_filter=${suite}.*)
      set_tests_properties(${name}/${suite} PROPERTIES ${properties})
      list(APPEND filters "${suite}.*")
    endforeach()
    list(JOIN filters ":" filters)
    add_test(NAME ${name}/others COMMAND ${name} "--gtest_filter=-${filters}")
    set_tests_properties(${name}/others PROPERTIES ${properties})
    return()
  endif()
  include(GoogleTest)
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST TEST_PREFIX "${name}/"
                       PROPERTIES ${properties})
endfunction()

# MAYFLY_SANITIZE: comma-separated sanitizers for the whole tree (set by the asan and tsan presets).
if(MAYFLY_SANITIZE)
  # -O1 as the sanitizers' manuals advise. With the instrumentation GCC 12 does not understand
  # std::variant and warns about members that are initialised.
  add_compile_options(-O1 -fsanitize=${MAYFLY_SANITIZE} -fno-omit-frame-pointer
                      -Wno-maybe-uninitialized)
  add_link_options(-fsanitize=${MAYFLY_SANITIZE})
  if(MAYFLY_SANITIZE MATCHES "thread")
    add_compile_options(-Wno-tsan)
  endif()
  if(MAYFLY_SANITIZE MATCHES "undefined")
    add_compile_options(-fno-sanitize-recover=undefined)
  endif()
endif()

# GCC 12 wrongly reports overflows in code of fmt and std::vector that it has inlined.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options(-Wno-stringop-overflow -Wno-array-bounds)
endif()
