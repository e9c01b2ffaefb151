/* Reads its own map with an argument, as start-up code that looks for its stack does; without, something of the same kind that no injector changes. */
#include <stdio.h>

int main(int argc, char **argv) {
  (void)argv;
  FILE *file = fopen(argc > 1 ? "/proc/self/maps" : "/proc/self/limits", "r");
  if (!file)
    return 1;
  int c, lines = 0;
  while ((c = getc(file)) != EOF)
    lines += c == '\n';
  fclose(file);
  return lines < 3;
}
