# The mpi transport's tests run under mpirun. Their programs are built into the folder in which they
# find the module. Open MPI cannot be used with sanitizers: it leaks memory, and its components
# define symbols twice.
if(NOT TARGET mayfly_mpi OR MAYFLY_SANITIZE)
  return()
endif()

add_executable(mpi_contract mpi_contract_program.cpp mpi_contract_views.cpp mpi_rank.cpp)
add_executable(mpi_kill mpi_kill_program.cpp mpi_rank.cpp)
foreach(program contract kill)
  target_link_libraries(mpi_${program} PRIVATE collectives_test_cluster GTest::gtest)
  add_dependencies(mpi_${program} mayfly_mpi)
  set_target_properties(mpi_${program} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
endforeach()

function(mayfly_mpi_test program mode btl ranks)
  set(name collectives_mpi/${mode}_${btl}_${ranks})
  add_test(NAME ${name}
    COMMAND ${MAYFLY_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/mpi_contract_test.py
            $<TARGET_FILE:mpi_${program}> ${mode} ${btl} ${ranks})
  set_tests_properties(${name} PROPERTIES
    LABELS integration TIMEOUT 480 SKIP_RETURN_CODE 77)
  # A waiting rank polls and yields after each poll, so ranks are slow beside other work.
  if(ranks GREATER_EQUAL 8)
    mayfly_test_load(ALONE ${name})
  else()
    mayfly_test_load(MOST ${name})
  endif()
endfunction()

# Both of Open MPI's transports within one machine, and several numbers of ranks in each mode.
foreach(ranks 1 2 4 8)
  mayfly_mpi_test(contract static vader ${ranks})
endforeach()
foreach(ranks 2 3 5)
  mayfly_mpi_test(contract static tcp ${ranks})
  mayfly_mpi_test(contract elastic vader ${ranks})
endforeach()
foreach(ranks 1 2 4 8)
  mayfly_mpi_test(contract elastic tcp ${ranks})
endforeach()
mayfly_mpi_test(kill kill tcp 5)
mayfly_mpi_test(kill kill vader 5)
