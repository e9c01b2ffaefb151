struct option { int level, name; const char *text; int get, get_err, set, set_err; const char *note; };
#define SOCKOPT(level, name, text, gc, ge, sc, se, note) { level, name, text, SF_##gc, ge, SF_##sc, se, note },
const struct option options[] = {
#include "sockopt.def"
};
struct source { const char *source, *treatment, *where, *note; };
#define ENTROPY(source, treatment, where, note) { source, #treatment, where, note },
const struct source sources[] = {
#include "entropy.def"
};
