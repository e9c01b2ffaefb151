/*
 * What hardened code and the runtime must agree on as numbers: offsets, shifts, and the version of all of it. Read by C, C++ (the pass)
 * and assembly, so this has nothing but definitions; abi.h, state.h, recover.c and second_core.c assert that their structures are so.
 */
#ifndef STEADFAST_LAYOUT_H
#define STEADFAST_LAYOUT_H

/* Raised when the layout or the meaning of a call changes: objects of different versions refuse to link, since each names __sf_abi_N. */
#define SF_ABI 6
#define SF_JOINED(A, B) A##B
#define SF_JOIN(A, B) SF_JOINED(A, B)
#define SF_ABI_NAME SF_JOIN(__sf_abi_, SF_ABI)
#define SF_QUOTED(X) #X
#define SF_TEXT(X) SF_QUOTED(X)

/* A tag of the log: word address << SF_WORD_SHIFT | epoch << SF_EPOCH_SHIFT | bytes (abi.h). */
#define SF_EPOCH_SHIFT 8
#define SF_EPOCH_BITS 9
#define SF_EPOCH_FIRST 8
#define SF_WORD_SHIFT 17
#define SF_TAG_BYTES 0xff

/* struct sf_tls */
#define SF_TLS_TABLE 0
#define SF_TLS_INDEX_MASK 8
#define SF_TLS_EPOCH_KEY 16
#define SF_TLS_PHASE 24
#define SF_TLS_CURSOR 32
#define SF_TLS_LIMIT 40
#define SF_TLS_SUM 48
#define SF_TLS_STACK_LOW 56
#define SF_TLS_STACK_LENGTH 64
#define SF_TLS_DELTA 72
#define SF_TLS_KEY_WHOLE 80
#define SF_TLS_PARTIAL 88
#define SF_TLS_KEPT 96
#define SF_TLS_GROWS 160
#define SF_TLS_SHADOW 168
#define SF_TLS_SHADOW_AGAIN 176
#define SF_TLS_SHADOW_END 184

/* struct sf_shadow */
#define SF_SHADOW_ENTRIES 0
#define SF_SHADOW_COUNT 8
#define SF_SHADOW_SUM 24

/* struct sf_partner */
#define SF_PARTNER_SP 0
#define SF_PARTNER_OWN_SP 8
#define SF_PARTNER_WAIT_SP 16
#define SF_PARTNER_THREAD_BASE 24
#define SF_PARTNER_OWN_BASE 32
#define SF_PARTNER_INSTRUCTION 40

/* State at rest (state.h): an object with a copy has this in its address from bit SF_KIND_SHIFT on; its copy lies 1 << SF_COPY_SHIFT further
   on. */
#define SF_KIND_SHIFT 43
#define SF_KIND_DUP 2
#define SF_KIND_CRC 3
#define SF_COPY_SHIFT 44
/* struct sf_places */
#define SF_PLACES_DUP_AT 0
#define SF_PLACES_DUP_LENGTH 8
#define SF_PLACES_CRC_AT 16
#define SF_PLACES_CRC_LENGTH 24

/* struct sf_handler: flags. */
#define SF_HANDLER_LOCAL 1
#define SF_HANDLER_STREAM 2 /* each byte of its inputs is received, and handled once */

/* --protect, as modules with hardened code say it (context.c). */
#define SF_LEVEL_SEI 1
#define SF_LEVEL_FULL 2

#endif
