/* Executes a command that may execute no page that was written (PR_SET_MDWE, Linux 6.3), as MemoryDenyWriteExecute= of a unit asks for. */
#include "guest.h"
#include <sys/prctl.h>

#ifndef PR_SET_MDWE
#define PR_SET_MDWE 65
#define PR_MDWE_REFUSE_EXEC_GAIN 1
#endif

int main(int argc, char **argv) {
    need("words", argc > 1);
    need("memory-deny-write-execute", prctl(PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN, 0, 0, 0) == 0);
    execv(argv[1], argv + 1);
    return 127;
}
