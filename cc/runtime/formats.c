/*
 * Lists of arguments that printf's family takes (va_list): what strings a format has it read.
 *
 * Where a list's next argument lies is the System V ABI's (x86-64 supplement, 3.5.7): in the save area of registers, or on
 * the stack behind those that did not fit.
 *
 * Invariant: a conversion that is not known here stops the program; nothing is read that its format does not name.
 *
 * Not covered: lists with more than 512 bytes on the stack, %n and arguments by number: refused when they come.
 */
#include "state.h"

#include <stdarg.h>

struct tag {
  unsigned gp, fp;
  char *stack, *saved;
};
_Static_assert(sizeof(struct tag) == sizeof(va_list), "the list of the System V ABI");
enum { GP_BYTES = 6 * 8, SAVED_BYTES = GP_BYTES + 8 * 16 };

static SF_COLD void unknown(void) {
  sf_stop("a handler prints with a conversion that is not known for a list of arguments (%n, %1$s and their like)",
          "write the conversion without them, or print outside handlers");
}

/* WHAT for each string, told where its pointer lies and how much of it is read at most; gives where the list ends on the stack. */
static char *walk_formats(const char *how, struct tag *list, void (*what)(const char **, size_t most, bool wide)) {
#define NEXT(type) (void)va_arg(*(va_list *)(void *)list, type)
  for (; *how; how++) {
    if (*how != '%')
      continue;
    how++;
    size_t most = SIZE_MAX;
    bool wide = false, quad = false, long_double = false, precision = false;
    for (;; how++) {
      if (*how == '*') {
        int v = va_arg(*(va_list *)(void *)list, int);
        if (precision)
          most = v >= 0 ? (size_t)v : SIZE_MAX;
      } else if (*how == '.') {
        precision = true;
        most = 0;
      } else if (*how >= '0' && *how <= '9') {
        if (precision)
          most = most * 10 + (size_t)(*how - '0');
      } else if (*how == 'l') {
        long_double = quad; /* glibc's ll is L, with numbers of any kind */
        wide = quad = true;
      } else if (*how == 'z' || *how == 'Z' || *how == 'j' || *how == 't') {
        quad = true;
      } else if (*how == 'L' || *how == 'q') {
        long_double = quad = true;
      } else if (*how != '-' && *how != '+' && *how != ' ' && *how != '#' && *how != '\'' && *how != 'I' && *how != 'h') {
        break;
      }
    }
    switch (*how) {
    case '%':
    case 'm':
      break;
    case 'd':
    case 'i':
    case 'u':
    case 'x':
    case 'X':
    case 'o':
    case 'b':
    case 'B':
      if (quad)
        NEXT(long);
      else
        NEXT(int);
      break;
    case 'c':
    case 'C':
      NEXT(int);
      break;
    case 'p':
      NEXT(void *);
      break;
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
    case 'a':
    case 'A':
      if (long_double)
        NEXT(long double);
      else
        NEXT(double);
      break;
    case 's':
    case 'S': {
      const char **slot = (const char **)(void *)(list->gp < GP_BYTES ? list->saved + list->gp : list->stack);
      NEXT(const char *);
      if (what && *slot)
        what(slot, most, wide || *how == 'S');
      break;
    }
    default:
      unknown();
    }
  }
  return list->stack;
}

void sf_format_strings(const char *how, va_list list, void (*what)(const char **, size_t, bool)) {
  struct tag own = *(const struct tag *)(const void *)list;
  walk_formats(how, &own, what);
}

static void to_own(const char **slot, size_t most, bool wide) {
  (void)most, (void)wide;
  __sf_state.give(*slot);
  *slot = sf_own(*slot);
}

/* The list with the run's own strings in it: a copy of it, since the program may use it again. */
void sf_own_strings(struct sf_list *own, const char *how, va_list list) {
  const struct tag *of = (const struct tag *)(const void *)list;
  struct tag *mine = (struct tag *)(void *)own->list, end = *of;
  size_t stack = (size_t)(walk_formats(how, &end, NULL) - of->stack);
  if (stack > sizeof own->stack - 8)
    sf_stop("a handler prints a list with more than 512 bytes of arguments on the stack", "print in pieces, or outside handlers");
  sf_copy(own->saved, of->saved, SAVED_BYTES);
  char *to = own->stack + ((uintptr_t)of->stack & 8);
  sf_copy(to, of->stack, stack);
  *mine = (struct tag){of->gp, of->fp, to, own->saved};
  struct tag again = *mine;
  walk_formats(how, &again, to_own);
}
