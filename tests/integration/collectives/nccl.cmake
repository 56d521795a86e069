# Tests of the NCCL module that need no GPU. Tests that need one are in tests/gpu.
if(TARGET mayfly_nccl)
  mayfly_test(collectives_nccl_module_test LABEL integration
    SOURCES nccl_module_test.cpp
    LIBS mayfly_collectives ${CMAKE_DL_LIBS})
  target_compile_definitions(collectives_nccl_module_test PRIVATE
    NCCL_MODULE="$<TARGET_FILE:mayfly_nccl>")
  add_dependencies(collectives_nccl_module_test mayfly_nccl)

  # All GPUs are hidden, so the script must behave in the same way on machines with and without one.
  add_test(NAME gpu_test_script
    COMMAND bash -c "set -o pipefail; '${PROJECT_SOURCE_DIR}/scripts/gpu-test' \
                     --from '${CMAKE_BINARY_DIR}' | grep '^no GPU: '")
  set_tests_properties(gpu_test_script PROPERTIES LABELS integration TIMEOUT 60
    ENVIRONMENT CUDA_VISIBLE_DEVICES=)
  mayfly_test_load(ONE_CORE gpu_test_script)
endif()
