/* Arguments and environment arrive as given, empty ones too; setenv and getenv work on them. */
#include "guest.h"

extern char **environ;

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) printf("%d [%s]\n", i, argv[i]);
    for (char **e = environ; *e; e++)
        if (!strncmp(*e, "GUEST_", 6)) puts(*e);
    for (char **e = environ; *e; e++) check("nothing of the protector's in the environment", strncasecmp(*e, "steadfast", 9));
    setenv("GUEST_NEW", "set", 1);
    puts(getenv("GUEST_NEW"));
    unsetenv("GUEST_MARK");
    check("unset", !getenv("GUEST_MARK"));
    printf("last argument ends in %c\n", argv[argc - 1][strlen(argv[argc - 1]) - 1]);
    return done();
}
