/* Agent: the code that lives inside every replica.
 *
 * Ground rules
 *  1. Freestanding: no libc, no allocation, no thread-local storage but the %gs page.
 *  2. General registers only; the linked blob is checked for vector instructions.
 *  3. The program's memory is touched under a guard only: its pointers may be wild.
 *  4. The kernel is reached through sf_gate, with a token that the vote produced
 *     (sf_call_agreed) or that ground.h made for the agent's own needs (sf_sys).
 *  5. State that must be equal in all replicas is kept apart from what differs by role (layout/state.h).
 *
 * Each folder has a header of what others may use:
 *
 *   layout    what launcher, replicas and entry code agree on      tables   what each system call is, as data
 *   ground    the way to the kernel, digests, start                vote     log and rendezvous: begin with log.c
 *   calls     system calls, processes, sources of entropy          threads  one runs at a time; locks; calls that wait
 *   memory    mappings, files mapped shared, shared memory         signals  deliveries at one place of the log
 *   pair      files and processes of two hosts                     repair   copies, snapshots, transplants
 *   faults    injected ones
 */
#ifndef SF_AGENT_H
#define SF_AGENT_H

/* One image, linked at its final address: nothing goes through a table of addresses. */
#pragma GCC visibility push(hidden)

#include "layout/state.h"
#include "ground/ground.h"
#include "vote/vote.h"
#include "calls/calls.h"
#include "memory/memory.h"
#include "signals/signals.h"
#include "threads/thread.h"
#include "pair/pair.h"
#include "faults/faults.h"
#include "repair/transfer.h"
#include "repair/repair.h"
#include "vote/event.h"

#endif
