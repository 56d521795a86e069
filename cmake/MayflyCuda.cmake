# Finds the CUDA compiler and NCCL: MAYFLY_NVCC_FOUND, MAYFLY_NCCL_FOUND. Nothing links libcuda: the
# static runtime loads the driver itself, so programs built here start on machines without one. nvcc
# is called for single files only (mayfly_cuda_object); the language CUDA is not enabled, because
# every configuration would then run a set of compiler checks.
set(MAYFLY_CUDA "" CACHE STRING "ON: fail without CUDA and NCCL; OFF: do not look for them")
set(MAYFLY_NVCC_FOUND OFF)
set(MAYFLY_NCCL_FOUND OFF)

# mayfly_version_in(HEADER PREFIX OUTPUT_VARIABLE): MAJOR.MINOR, as the header defines PREFIX_MAJOR
# and PREFIX_MINOR.
function(mayfly_version_in header prefix output_variable)
  foreach(part MAJOR MINOR)
    file(STRINGS ${header} line REGEX "define ${prefix}_${part} ")
    string(REGEX MATCH "[0-9]+" ${part} "${line}")
  endforeach()
  set(${output_variable} ${MAJOR}.${MINOR} PARENT_SCOPE)
endfunction()

if(MAYFLY_CUDA OR MAYFLY_CUDA STREQUAL "")
  set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL ON)
  find_package(CUDAToolkit 12.0 QUIET)
  if(CUDAToolkit_FOUND)
    find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS} ENV NCCL_HOME
              PATH_SUFFIXES include)
    find_library(NCCL_LIBRARY nccl HINTS ${CUDAToolkit_LIBRARY_DIR} ENV NCCL_HOME
                 PATH_SUFFIXES lib lib64)
  endif()
  if(CUDAToolkit_NVCC_EXECUTABLE AND TARGET CUDA::cudart_static)
    set(MAYFLY_NVCC_FOUND ON)
  endif()
  # NCCL, of a version with non-blocking communicators.
  if(MAYFLY_NVCC_FOUND AND NCCL_INCLUDE_DIR AND NCCL_LIBRARY)
    mayfly_version_in(${NCCL_INCLUDE_DIR}/nccl.h NCCL nccl_version)
    if(nccl_version VERSION_GREATER_EQUAL 2.14)
      set(MAYFLY_NCCL_FOUND ON)
    else()
      message(STATUS "NCCL ${nccl_version} is too old: backend nccl is left out")
    endif()
  endif()
  if(MAYFLY_NCCL_FOUND)
    add_library(NCCL::nccl UNKNOWN IMPORTED GLOBAL)
    set_target_properties(NCCL::nccl PROPERTIES
      IMPORTED_LOCATION ${NCCL_LIBRARY}
      INTERFACE_INCLUDE_DIRECTORIES ${NCCL_INCLUDE_DIR}
      INTERFACE_SYSTEM_INCLUDE_DIRECTORIES ${NCCL_INCLUDE_DIR})
  elseif(MAYFLY_CUDA)
    message(FATAL_ERROR
            "MAYFLY_CUDA is ON, but nvcc, the CUDA runtime or NCCL 2.14 or newer was not found")
  endif()
endif()

# cuDNN, of a version for which the choice of convolutions was checked (nn/cuda/device_choice.hpp).
set(MAYFLY_CUDNN_FOUND OFF)
if(MAYFLY_NVCC_FOUND)
  find_path(CUDNN_INCLUDE_DIR cudnn_graph.h HINTS ${CUDAToolkit_INCLUDE_DIRS} ENV CUDNN_HOME
            PATH_SUFFIXES include)
  find_library(CUDNN_LIBRARY cudnn HINTS ${CUDAToolkit_LIBRARY_DIR} ENV CUDNN_HOME
               PATH_SUFFIXES lib lib64)
  if(CUDNN_INCLUDE_DIR AND CUDNN_LIBRARY)
    mayfly_version_in(${CUDNN_INCLUDE_DIR}/cudnn_version.h CUDNN cudnn_version)
    if(cudnn_version VERSION_GREATER_EQUAL 9.11)
      set(MAYFLY_CUDNN_FOUND ON)
      add_library(CUDNN::cudnn UNKNOWN IMPORTED GLOBAL)
      set_target_properties(CUDNN::cudnn PROPERTIES
        IMPORTED_LOCATION ${CUDNN_LIBRARY}
        INTERFACE_INCLUDE_DIRECTORIES "${CUDNN_INCLUDE_DIR};${CUDAToolkit_INCLUDE_DIRS}"
        INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "${CUDNN_INCLUDE_DIR};${CUDAToolkit_INCLUDE_DIRS}")
    else()
      message(STATUS "cuDNN ${cudnn_version} is too old: device cuda is left out")
    endif()
  endif()
  if(MAYFLY_CUDA AND NOT MAYFLY_CUDNN_FOUND)
    message(FATAL_ERROR "MAYFLY_CUDA is ON, but cuDNN 9.11 or newer was not found")
  endif()
endif()

# mayfly_cuda_object(OUTPUT_VARIABLE SOURCE [FLAG...])
# An object file made by nvcc: machine code for the supported GPUs and PTX for later ones. The
# assembler's report about registers and spilled registers is kept beside it, in *.resources.
function(mayfly_cuda_object output_variable source)
  get_filename_component(name ${source} NAME)
  set(object ${CMAKE_CURRENT_BINARY_DIR}/${name}.o)
  add_custom_command(
    OUTPUT ${object}
    BYPRODUCTS ${object}.resources
    COMMAND ${PROJECT_SOURCE_DIR}/cmake/keep_resource_report ${object}.resources
            ${CMAKE_CXX_COMPILER_LAUNCHER} ${CUDAToolkit_NVCC_EXECUTABLE} -x cu -c
            ${CMAKE_CURRENT_SOURCE_DIR}/${source} -o ${object} -std=c++20 -O3 -lineinfo
            -I${PROJECT_SOURCE_DIR} -Xcompiler -fPIC,-Wall,-Wextra -Xptxas -v ${ARGN}
            -gencode arch=compute_80,code=sm_80
            -gencode arch=compute_90,code=[sm_90,compute_90]
            -MD -MF ${object}.d
    DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${source}
            ${PROJECT_SOURCE_DIR}/cmake/keep_resource_report
    DEPFILE ${object}.d
    COMMENT "Building CUDA object ${name}.o"
    VERBATIM)
  set(${output_variable} ${object} PARENT_SCOPE)
endfunction()
