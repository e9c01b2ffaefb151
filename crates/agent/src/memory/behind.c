/* Behind: which instruction of the program's a payload stands before that has made the running thread give way.
 *
 *   site:   jmp payload ──► counts ──► enters the agent ──► behind ──► the instructions that the jump has replaced
 *
 * The thread goes on behind, in an arena that no unwinder knows. A handler that comes meanwhile is to see the site, as bare: Go
 * gives up a loop only where it knows the instruction. Nothing of the program's has run between the two.
 *
 * Not covered: the second payload before one instruction; a jump that takes a bounce.
 */
#include "agent.h"

#define JUMP 0xe9u
#define JUMP_BYTES 5u
/* mov dword ptr gs:[TLS_DESC], SF_DESC_YIELD; lea rcx, [rip+..]; jmp [rip]; its target (alignment.rs, `enter`). */
#define ENTER_BYTES (12u + 7u + 6u + 8u)
/* It begins with a look at the budget (alignment.rs, `payload`). */
#define LOOK_BYTES 96u

void sf_behind_note(u64 site)
{
	static const u8 enter[12] = { 0x65, 0xc7, 0x04, 0x25, TLS_DESC, 0, 0, 0, SF_DESC_YIELD, 0, 0, 0 };
	const u8 *jump = (const u8 *)site;
	s32 far;
	if (*jump != JUMP || app.behinds == SF_BEHIND_MAX)
		return;
	memcpy(&far, jump + 1, sizeof far);
	const u8 *payload = jump + JUMP_BYTES + far;
	for (u32 i = 0; i < LOOK_BYTES; i++)
		if (memcmp(payload + i, enter, sizeof enter) == 0) {
			app.behind[app.behinds++] = (struct sf_behind){ (u64)payload + i + ENTER_BYTES, site };
			return;
		}
}

/* 0: it is none. */
u64 sf_behind_site(u64 at)
{
	for (u32 i = 0; i < app.behinds; i++)
		if (app.behind[i].at == at)
			return app.behind[i].site;
	return 0;
}
