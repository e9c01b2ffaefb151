/* Where a chain of components (deep.c) ends. No state. */
#include "component.h"

EXPORT("test:deep/chain@0.1.0#go") uint32_t go(uint32_t frames)
{
	return frames;
}
