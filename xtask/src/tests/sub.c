#undef SUB
#define SUB(command, name, class, err, arg, note) { command, SF_##class, err, arg, name, note },
const struct sf_sub NAMEs[] = {
#include "NAME.def"
};
