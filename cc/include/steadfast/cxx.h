/*
 * Included before every C++ source by `steadfast c++`.
 *
 * libstdc++ keeps some templates compiled in its library (std::string, streams) and tells compilers not to make them
 * again. What is compiled there has no hardened code, so here they are made again, in each module that uses them.
 *
 * With --state, so are its trees and lists.
 *
 * Not covered: other C++ libraries, which have no such switch and need none.
 */
#if defined(__cplusplus) && !defined(STEADFAST_PLAIN)
#if __has_include(<bits/c++config.h>)
#include <bits/c++config.h>
#undef _GLIBCXX_EXTERN_TEMPLATE
#define _GLIBCXX_EXTERN_TEMPLATE 0
#ifdef __STEADFAST_STATE__
#include <steadfast/containers.h>
#endif
#endif
#endif
