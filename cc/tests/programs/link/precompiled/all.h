#include <steadfast/sei.h>
#include <cstdio>
#include <string>
