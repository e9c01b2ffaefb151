# cmake -DCMAKE_TOOLCHAIN_FILE=PREFIX/lib/steadfast/steadfast-toolchain.cmake: compile with steadfast cc and c++.
#
# Without a handler in annotations or in STEADFAST_POLICY the program is built but nothing in it runs hardened; the
# link says so.
get_filename_component(steadfast_bin "${CMAKE_CURRENT_LIST_DIR}/../../bin" ABSOLUTE)
set(CMAKE_C_COMPILER "${steadfast_bin}/steadfast-cc")
set(CMAKE_CXX_COMPILER "${steadfast_bin}/steadfast-c++")
# Hardened code in shared libraries is not supported.
set(BUILD_SHARED_LIBS OFF CACHE BOOL "static libraries" FORCE)
