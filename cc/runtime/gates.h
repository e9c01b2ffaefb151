/*
 * Control-flow gates (Figure 4a). The phases I, E1, R, E2, V end one after the other, and each says so in its turn in one of two
 * words, by what no other phase of any event says there. Before it does, both words must say that those before have ended;
 * afterwards the other word is looked at once more, for who has jumped to where this one is set. The end of V stays until the
 * next event: what a jump can set at the end cannot be what tells that all went well (crates/model).
 */
#ifndef STEADFAST_GATES_H
#define STEADFAST_GATES_H

#include "runtime.h"

enum { END_I = 1, END_E1, END_R, END_E2, END_V };

/* One number for each phase of each event, spread over the word by an odd factor (2^64 / golden ratio), so that none is another's and
   a bit that changes makes none of them. */
static inline uint64_t gate(uint64_t event, uint64_t phase) { return (8 * event + phase) * 0x9e3779b97f4a7c15ull; }

static inline bool passed(const struct sf_context *c, uint64_t event, uint64_t odd, uint64_t even) {
  const volatile uint64_t *leave = &c->gate_leave, *enter = &c->gate_enter;
  return likely((*enter ^ gate(event, odd)) == 0) && likely((*leave ^ gate(event, even)) == 0);
}

_Noreturn SF_COLD void sf_gate_differs(const struct sf_context *, const struct sf_handler *, uint64_t phase);
/* Looked at again, where either may be repaired. */
SF_COLD void sf_end_phase_again(struct sf_context *, const struct sf_handler *, uint64_t phase);
SF_COLD void sf_passed_again(struct sf_context *);

static inline uint64_t gate_before(uint64_t event, uint64_t phase) {
  return phase > END_I ? gate(event, phase - 1) : gate(event - 1, END_E2);
}
static inline uint64_t gate_last(uint64_t event, uint64_t phase) {
  return phase > END_E1 ? gate(event, phase - 2) : gate(event - 1, 6 - phase);
}

static inline __attribute__((always_inline)) void end_phase(struct sf_context *c, const struct sf_handler *h, uint64_t phase) {
  volatile uint64_t *own = phase & 1 ? &c->gate_enter : &c->gate_leave, *other = phase & 1 ? &c->gate_leave : &c->gate_enter;
  uint64_t event = c->event;
  uint64_t before = gate_before(event, phase);
  if (unlikely(*own != gate_last(event, phase) || *other != before)) {
    sf_end_phase_again(c, h, phase);
    return;
  }
  *own = gate(event, phase);
  sf_reload();
  if (unlikely(*other != before))
    sf_gate_differs(c, h, phase);
}

/* After V. */
static inline __attribute__((always_inline)) void see_passed(struct sf_context *c) {
  if (unlikely(!passed(c, c->event, END_V, END_E2)))
    sf_passed_again(c);
}

#endif
