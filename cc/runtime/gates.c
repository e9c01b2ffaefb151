/* Gates that do not hold: the verdict, or with --recover what has changed in them. */
#include "gates.h"

SF_COLD _Noreturn void sf_gate_differs(const struct sf_context *c, const struct sf_handler *h, uint64_t phase) {
  static const char *const what[] = {
      [END_I] = "control flow: a handler begins before the last one has ended",
      [END_E1] = "control flow: the first run ends that did not begin",
      [END_R] = "control flow: memory was put back that no first run had left",
      [END_E2] = "control flow: the second run ends that did not begin",
      [END_V] = "control flow: validation was not entered at its beginning",
  };
  if (phase == END_I)
    __sf_tls.phase = SF_OUTSIDE; /* what the event before has left was not validated: nothing to begin again from */
  sf_differ_name(what[phase], h->name, c->gate_enter, c->gate_leave);
}

/* With --recover: a word of the gates in which a bit has changed is none that a jump has left. Of two numbers that differ in one bit
   there are 2^58 phases between (powers of two times the factor's inverse). */
static bool near_gate(const volatile uint64_t *word, uint64_t should) { return __builtin_popcountll(*word ^ should) <= 1; }

/* Looked at again, by the event that is kept beside the second log: the next one begins, or the same once more. */
SF_COLD void sf_end_phase_again(struct sf_context *c, const struct sf_handler *h, uint64_t phase) {
  volatile uint64_t *own = phase & 1 ? &c->gate_enter : &c->gate_leave, *other = phase & 1 ? &c->gate_leave : &c->gate_enter;
  for (uint64_t later = phase == END_I; c->shadow != NULL; later--) {
    uint64_t event = __sf_recover.shadow_event(c) + later;
    if (near_gate(own, gate_last(event, phase)) && near_gate(other, gate_before(event, phase))) {
      *other = gate_before(event, phase);
      c->event = event;
      *own = gate(event, phase);
      sf_tell_mended(c, "a gate of its phases had changed");
      return;
    }
    if (later == 0)
      break;
  }
  sf_gate_differs(c, h, phase);
}

/* As V leaves them. */
void sf_gates_close(struct sf_context *c, uint64_t event) {
  c->gate_enter = gate(event, END_V);
  c->gate_leave = gate(event, END_E2);
}

/* Out of line: numbers that the caller has kept in registers may be what went wrong. */
SF_COLD void sf_passed_again(struct sf_context *c) {
  uint64_t event = c->shadow ? __sf_recover.shadow_event(c) : c->event;
  if (!c->shadow || !near_gate(&c->gate_enter, gate(event, END_V)) || !near_gate(&c->gate_leave, gate(event, END_E2)))
    sf_gate_differs(c, c->handler, END_V);
  sf_gates_close(c, event);
  c->event = event;
  sf_tell_mended(c, "a gate of its phases had changed");
}
