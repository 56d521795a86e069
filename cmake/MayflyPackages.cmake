# `cpack -G DEB` in the build folder: Debian packages of the program, the library, its headers, and
# the Python package. The modules for GPUs are left out, because they need packages that Debian does
# not have.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME mayfly)
set(CPACK_PACKAGE_CONTACT "the developers of Mayfly <mayfly@localhost>")
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_COMPONENTS_ALL mayfly library headers python)

# mayfly_package(COMPONENT NAME DESCRIPTION [DEPENDENCIES])
function(mayfly_package component name description)
  string(TOUPPER ${component} key)
  set(CPACK_DEBIAN_${key}_PACKAGE_NAME ${name} PARENT_SCOPE)
  set(CPACK_COMPONENT_${key}_DESCRIPTION ${description} PARENT_SCOPE)
  if(ARGC GREATER 3)
    set(CPACK_DEBIAN_${key}_PACKAGE_DEPENDS ${ARGV3} PARENT_SCOPE)
  endif()
endfunction()
mayfly_package(mayfly mayfly "Elastic data-parallel training: the program")
mayfly_package(library libmayfly0 "Elastic data-parallel training: the library"
               "mayfly (= ${PROJECT_VERSION})")
mayfly_package(headers libmayfly-dev "Elastic data-parallel training: headers for C and C++"
               "libmayfly0 (= ${PROJECT_VERSION})")
mayfly_package(python python3-mayfly "Elastic data-parallel training for Python"
               "libmayfly0 (= ${PROJECT_VERSION}), python3, python3-numpy")
set(CPACK_DEBIAN_PYTHON_PACKAGE_ARCHITECTURE all)
include(CPack)
