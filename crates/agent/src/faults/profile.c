/* Profile: how often each instruction of the program is executed.
 *
 * The population that fault campaigns draw from. The replica runs with the trap flag set: the
 * kernel sends SIGTRAP behind every instruction, and the address it is about to execute next
 * is counted in a table of this replica's own in the upper half of the payload area, which
 * nothing else uses then. Alone it shows the program; beside another, the agent's own work.
 *
 * Invariants
 *  1. An instruction counts when it is about to be executed; one with a rep prefix, at which
 *     every iteration traps, counts once (docs/reference/fault-grammar.md).
 *  2. What does not fit the table is counted as lost, never as something else.
 *
 * Not covered: handlers of the program (a fresh frame has no trap flag), the first instruction.
 * How often a replica looks while it waits for another depends on the other's pace.
 */
#include "agent.h"

/* Open addressing; 2^21 places of 16 bytes hold the working set of a compiler. */
#define PLACES (1ull << 21)
struct place {
	u64 ip, n;
};
#define TABLES 3 /* as many fit */
#define TABLE(slot) ((struct place *)(SF_SHARED + SF_OFF_PAYLOAD + SF_PAYLOAD_BYTES / 2) + (slot) * (PLACES + 1))
_Static_assert(TABLES *(PLACES + 1) * sizeof(struct place) <= SF_PAYLOAD_BYTES / 2, "shared with crates/replica/src/profile.rs");

/* rep and repne in front of a string instruction: Intel SDM vol. 2, 2.1.1. */
static int repeats(const u8 *p)
{
	int rep = 0;
	for (;; p++) {
		if (*p == 0xf2 || *p == 0xf3)
			rep = 1;
		else if (*p != 0x66 && *p != 0x67 && (*p & 0xf0) != 0x40)
			break;
	}
	return rep && ((*p >= 0xa4 && *p <= 0xa7) || (*p >= 0xaa && *p <= 0xaf));
}

void sf_profile(u64 ip)
{
	static u64 before;
	if (ip == before && repeats((const u8 *)ip))
		return;
	before = ip;
	if (me.slot >= TABLES || me.role == SF_SNAPSHOT)
		return;
	struct place *table = TABLE(me.slot);
	u64 at = (ip * 0x9e3779b97f4a7c15ull) >> 43;
	for (u32 i = 0; i < 64; i++) {
		struct place *p = &table[(at + i) % PLACES];
		if (!p->ip)
			p->ip = ip;
		if (p->ip == ip) {
			p->n++;
			return;
		}
	}
	table[PLACES].n++;
}
