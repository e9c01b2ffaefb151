/*
 * C++: new and delete, and exceptions that hardened code throws, catches, or lets out of a handler.
 *
 * Exception objects live outside the state: each run makes its own, stores into it are not logged. An exception that
 * leaves the first run is destroyed; the one of the second run leaves the handler after V. What is compared is its type.
 *
 * Invariant: an object's destructor runs as hardened code inside a handler (what it frees is freed after V), and as the
 * program's own code outside.
 *
 * Not covered: exceptions of other languages; std::exception_ptr that outlives a run.
 * See the Itanium C++ ABI, Level II; the header's layout is that of libstdc++ since GCC 4.
 */
#define _GNU_SOURCE
#include "state.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdlib.h>

struct unwind_exception {
  uint64_t type;
  void *cleanup;
  uint64_t private_1, private_2;
};

struct exception {
  void *type;
  void (*destructor)(void *);
  void *unexpected, *terminate;
  struct exception *next;
  int handlers, switch_value;
  void *action, *lsda, *catch_temp, *object;
  struct unwind_exception unwind __attribute__((aligned(16)));
};
_Static_assert(offsetof(struct exception, unwind) == 80, "libstdc++: unwind-cxx.h");

struct globals {
  struct exception *caught;
  unsigned uncaught;
};

/* Weak: a C program is linked without the C++ library. */
#define WEAK __attribute__((weak))
extern void *__cxa_allocate_exception(size_t) WEAK;
extern void *__cxa_begin_catch(void *) WEAK;
extern void __cxa_end_catch(void) WEAK;
extern struct globals *__cxa_get_globals(void) WEAK;
extern _Noreturn void _ZSt17__throw_bad_allocv(void) WEAK;
extern _Noreturn void _ZSt9terminatev(void) WEAK;
extern int _Unwind_Resume_or_Rethrow(struct unwind_exception *) WEAK;

extern void *__sf_w_malloc(size_t);
extern void *__sf_w_memalign(size_t alignment, size_t size);
extern void __sf_w_free(void *);

/*
 * A program may have operators of its own (C++20, [replacement.functions]): they are hardened code like any other. Modules that only
 * call them come here, and those that it does not have lead to those that it has, as the library's do:
 *
 *     new[] -> new      delete(size) -> delete      delete[](size) -> delete[] -> delete      nothrow -> the same without
 *
 * and alike with an alignment. Operators of a shared library that brings no malloc along are refused.
 */
#define OWN(NAME) __asm__(NAME ".sf") WEAK
extern void *own_new(size_t) OWN("_Znwm");
extern void *own_new_array(size_t) OWN("_Znam");
extern void *own_new_nothrow(size_t, const void *) OWN("_ZnwmRKSt9nothrow_t");
extern void *own_new_array_nothrow(size_t, const void *) OWN("_ZnamRKSt9nothrow_t");
extern void *own_new_aligned(size_t, size_t) OWN("_ZnwmSt11align_val_t");
extern void *own_new_array_aligned(size_t, size_t) OWN("_ZnamSt11align_val_t");
extern void *own_new_aligned_nothrow(size_t, size_t, const void *) OWN("_ZnwmSt11align_val_tRKSt9nothrow_t");
extern void *own_new_array_aligned_nothrow(size_t, size_t, const void *) OWN("_ZnamSt11align_val_tRKSt9nothrow_t");
extern void own_delete(void *) OWN("_ZdlPv");
extern void own_delete_array(void *) OWN("_ZdaPv");
extern void own_delete_sized(void *, size_t) OWN("_ZdlPvm");
extern void own_delete_array_sized(void *, size_t) OWN("_ZdaPvm");
extern void own_delete_nothrow(void *, const void *) OWN("_ZdlPvRKSt9nothrow_t");
extern void own_delete_array_nothrow(void *, const void *) OWN("_ZdaPvRKSt9nothrow_t");
extern void own_delete_aligned(void *, size_t) OWN("_ZdlPvSt11align_val_t");
extern void own_delete_array_aligned(void *, size_t) OWN("_ZdaPvSt11align_val_t");
extern void own_delete_sized_aligned(void *, size_t, size_t) OWN("_ZdlPvmSt11align_val_t");
extern void own_delete_array_sized_aligned(void *, size_t, size_t) OWN("_ZdaPvmSt11align_val_t");

/* What stands in for operators that the program does not have takes memory from malloc, as the C++ library's own do, and an allocator's
   that brings both along. Of others nobody knows what they add to a block. */
extern void library_new(size_t) __asm__("_Znwm") WEAK;
static void know_operators(void) {
  static _Atomic bool known;
  if (likely(atomic_load_explicit(&known, memory_order_relaxed)))
    return;
  void *const fine[] = {(void *)know_operators, (void *)__cxa_begin_catch, (void *)malloc};
  Dl_info of_new, of;
  bool other = library_new && dladdr((void *)library_new, &of_new);
  for (size_t i = 0; i < sizeof fine / sizeof *fine; i++)
    other = other && dladdr(fine[i], &of) && of.dli_fbase != of_new.dli_fbase;
  if (other)
    sf_stop("a handler takes or gives back memory by operators new and delete that a shared library has replaced",
            "build these operators into the program with `steadfast c++`");
  atomic_store_explicit(&known, true, memory_order_relaxed);
}

static void *take_cxx(size_t n) {
  know_operators();
  return __sf_w_malloc(n ? n : 1);
}

static void *take_aligned(size_t alignment, size_t n) {
  know_operators();
  return __sf_w_memalign(alignment, n ? n : 1);
}

static void give_back_cxx(void *p) {
  know_operators();
  __sf_w_free(p);
}

static void *or_throw_cxx(void *p) {
  if (!p)
    _ZSt17__throw_bad_allocv();
  return p;
}

SF_API void *__sf_w_new(size_t n) { return own_new ? own_new(n) : or_throw_cxx(take_cxx(n)); }

SF_API void *__sf_w_new_array(size_t n) { return own_new_array ? own_new_array(n) : __sf_w_new(n); }

/* Without one of its own, a program that has `new` lets the exception of that through: memory has ended then. */
SF_API void *__sf_w_new_nothrow(size_t n, const void *tag) {
  return own_new_nothrow ? own_new_nothrow(n, tag) : own_new ? own_new(n) : take_cxx(n);
}

SF_API void *__sf_w_new_array_nothrow(size_t n, const void *tag) {
  return own_new_array_nothrow ? own_new_array_nothrow(n, tag) : own_new_array ? own_new_array(n) : __sf_w_new_nothrow(n, tag);
}

/* For types that want more than malloc's alignment. */
SF_API void *__sf_w_new_aligned(size_t n, size_t alignment) {
  return own_new_aligned ? own_new_aligned(n, alignment) : or_throw_cxx(take_aligned(alignment, n));
}

SF_API void *__sf_w_new_array_aligned(size_t n, size_t alignment) {
  return own_new_array_aligned ? own_new_array_aligned(n, alignment) : __sf_w_new_aligned(n, alignment);
}

SF_API void *__sf_w_new_aligned_nothrow(size_t n, size_t alignment, const void *tag) {
  return own_new_aligned_nothrow ? own_new_aligned_nothrow(n, alignment, tag)
         : own_new_aligned       ? own_new_aligned(n, alignment)
                                 : take_aligned(alignment, n);
}

SF_API void *__sf_w_new_array_aligned_nothrow(size_t n, size_t alignment, const void *tag) {
  return own_new_array_aligned_nothrow ? own_new_array_aligned_nothrow(n, alignment, tag)
         : own_new_array_aligned       ? own_new_array_aligned(n, alignment)
                                       : __sf_w_new_aligned_nothrow(n, alignment, tag);
}

/* Blocks with copies or checksums are the runtime's, whatever the program has. */
#define IS(OWN, P) ((OWN) && !(unlikely(sf_state()) && sf_is_heap(P)))

SF_API void __sf_w_delete(void *p) { IS(own_delete, p) ? own_delete(p) : give_back_cxx(p); }

SF_API void __sf_w_delete_array(void *p) { IS(own_delete_array, p) ? own_delete_array(p) : __sf_w_delete(p); }

SF_API void __sf_w_delete_sized(void *p, size_t n) { IS(own_delete_sized, p) ? own_delete_sized(p, n) : __sf_w_delete(p); }

SF_API void __sf_w_delete_array_sized(void *p, size_t n) {
  IS(own_delete_array_sized, p) ? own_delete_array_sized(p, n) : __sf_w_delete_array(p);
}

SF_API void __sf_w_delete_nothrow(void *p, const void *tag) { IS(own_delete_nothrow, p) ? own_delete_nothrow(p, tag) : __sf_w_delete(p); }

SF_API void __sf_w_delete_array_nothrow(void *p, const void *tag) {
  IS(own_delete_array_nothrow, p) ? own_delete_array_nothrow(p, tag) : __sf_w_delete_array(p);
}

SF_API void __sf_w_delete_aligned(void *p, size_t alignment) {
  IS(own_delete_aligned, p) ? own_delete_aligned(p, alignment) : give_back_cxx(p);
}

SF_API void __sf_w_delete_array_aligned(void *p, size_t alignment) {
  IS(own_delete_array_aligned, p) ? own_delete_array_aligned(p, alignment) : __sf_w_delete_aligned(p, alignment);
}

SF_API void __sf_w_delete_sized_aligned(void *p, size_t n, size_t alignment) {
  IS(own_delete_sized_aligned, p) ? own_delete_sized_aligned(p, n, alignment) : __sf_w_delete_aligned(p, alignment);
}

SF_API void __sf_w_delete_array_sized_aligned(void *p, size_t n, size_t alignment) {
  IS(own_delete_array_sized_aligned, p) ? own_delete_array_sized_aligned(p, n, alignment) : __sf_w_delete_array_aligned(p, alignment);
}

/* Variables of functions, made at the first call (Itanium C++ ABI, 3.3.2). The first run takes the library's guard, so that
   nobody else makes the variable; it is given back after V. The guard's first byte, which says that the variable is there, is
   state like any other; the library's own marks are in other bytes.

   Not covered: two handlers of which one waits for such a guard and the other for a lock of the first. */
extern int __cxa_guard_acquire(uint64_t *) WEAK;
extern void __cxa_guard_release(uint64_t *) WEAK;
extern void __cxa_guard_abort(uint64_t *) WEAK;

SF_API int __sf_w_cxa_guard_acquire(uint64_t *guard) {
  uint64_t mine;
  if (!__sf_once("__cxa_guard_acquire", (uint64_t)guard, &mine))
    __sf_once_done(mine = (uint64_t)__cxa_guard_acquire(guard));
  return (int)mine;
}

SF_API void __sf_w_cxa_guard_release(uint64_t *guard) {
  __sf_log(guard, 1);
  *(volatile uint8_t *)guard = 1;
  __sf_logged(guard, 1);
  uint64_t a[1] = {(uint64_t)guard};
  __sf_defer("__cxa_guard_release", (void *)__cxa_guard_release, 1, a);
}

/* Nothing was made: an exception has left the constructor. */
SF_API void __sf_w_cxa_guard_abort(uint64_t *guard) {
  uint64_t none;
  if (__sf_once("__cxa_guard_abort", (uint64_t)guard, &none))
    return;
  __cxa_guard_abort(guard);
  __sf_once_done(0);
}

SF_API void *__sf_w_cxa_allocate_exception(size_t n) {
  struct sf_context *c = sf_inside("an exception is thrown by hardened code outside a handler");
  void *p = __cxa_allocate_exception(n);
  /* Blocks come back at the same address, as a rule; an address that is listed is listed once. */
  for (size_t i = 0; i < c->ignored_count; i++)
    if (c->ignored[i].at == (uintptr_t)p) {
      if (c->ignored[i].length < n)
        c->ignored[i].length = n;
      return p;
    }
  sf_ignore_words(c, (uintptr_t)p & ~7ull, (n + 7) & ~7ull);
  return p;
}

/* The destructor as hardened code, if it is the program's; the C++ library then runs none. */
static void (*take_destructor(struct exception *e))(void *) {
  void (*hardened)(void *) = e->destructor ? (void (*)(void *))sf_clone_of((void *)e->destructor) : NULL;
  if (hardened)
    e->destructor = NULL;
  return hardened;
}

static bool is_cxx(const struct unwind_exception *u) {
  return u->type >> 8 == 0x474e5543432b2bull; /* "GNUCC++", last byte 0: a primary exception */
}

SF_API void __sf_w_cxa_end_catch(void) {
  struct globals *g = __cxa_get_globals();
  struct exception *e = g->caught;
  if (e && e->handlers == 1 && e->unwind.type == 0x474e5543432b2b00ull) {
    void (*destroy)(void *) = take_destructor(e);
    if (destroy)
      destroy(e + 1);
  }
  __cxa_end_catch();
}

/* An exception leaves a run: its type as the run's result. */
SF_API uint64_t __sf_caught(struct unwind_exception *u, int run) {
  if (!is_cxx(u))
    sf_stop("an exception of another language leaves a handler", "catch it inside");
  struct exception *e = (struct exception *)((char *)u - offsetof(struct exception, unwind));
  uint64_t word = sf_mix((uint64_t)e->type, 1);
  if (run == 1) {
    /* Not destroyed: what it owns are blocks that the second run is given again. */
    if (u->type == 0x474e5543432b2b00ull)
      take_destructor(e);
    __cxa_begin_catch(u);
    __cxa_end_catch();
  }
  return word;
}

/* Containers. What libstdc++ keeps compiled writes nodes of the program's: those that it may change are logged first. */

struct tree_node {
  int color;
  struct tree_node *parent, *left, *right;
};

struct list_node {
  struct list_node *next, *previous;
};

/* Rebalancing changes nodes on the way to the root, and below each of them: inserting, children of children (a rotation
   moves the inner child of a child); erasing, two levels more. There the brother w of the node that became too low is at
   level 1; if it is red, a rotation makes its child, level 2, the brother; that one's child, level 3, may be rotated over
   it, which moves an inner child of level 4. */
#define INSERT_LEVELS 2
#define ERASE_LEVELS 4

static void log_around(struct tree_node *n, int depth) {
  if (!n)
    return;
  __sf_log(n, sizeof *n);
  if (depth == 0)
    return;
  log_around(n->left, depth - 1);
  log_around(n->right, depth - 1);
}

/* The child from which the way comes has been logged, to the same depth. */
static void log_way(struct tree_node *from, struct tree_node *header, int depth) {
  __sf_log(header, sizeof *header);
  if (from == header)
    return;
  log_around(from, depth);
  for (struct tree_node *n = from->parent; n != header; from = n, n = n->parent) {
    __sf_log(n, sizeof *n);
    log_around(n->left == from ? n->right : n->left, depth - 1);
  }
}

#define INSERT _ZSt29_Rb_tree_insert_and_rebalancebPSt18_Rb_tree_node_baseS0_RS_
#define ERASE _ZSt28_Rb_tree_rebalance_for_erasePSt18_Rb_tree_node_baseRS_
extern void INSERT(int, struct tree_node *, struct tree_node *, struct tree_node *) WEAK;
extern struct tree_node *ERASE(struct tree_node *, struct tree_node *) WEAK;

SF_API void __sf_w_tree_insert(int left, struct tree_node *n, struct tree_node *parent, struct tree_node *header) {
  __sf_log(n, sizeof *n);
  log_way(parent, header, INSERT_LEVELS);
  INSERT(left & 1, n, parent, header);
}

SF_API struct tree_node *__sf_w_tree_erase(struct tree_node *n, struct tree_node *header) {
  /* With two children the successor takes the place: the way starts at the lower of the two. */
  struct tree_node *from = n;
  if (n->left && n->right) {
    from = n->right;
    while (from->left)
      from = from->left;
  }
  log_way(from, header, ERASE_LEVELS);
  return ERASE(n, header);
}

#define LIST(NAME, MANGLED, PARAMETERS, LOG, CALL) \
  extern void MANGLED PARAMETERS WEAK;             \
  SF_API void __sf_w_list_##NAME PARAMETERS {      \
    LOG;                                           \
    CALL;                                          \
  }
LIST(hook, _ZNSt8__detail15_List_node_base7_M_hookEPS0_, (struct list_node * n, struct list_node *at),
     (__sf_log(n, 16), __sf_log(at, 16), __sf_log(at->previous, 16)), _ZNSt8__detail15_List_node_base7_M_hookEPS0_(n, at))
LIST(unhook, _ZNSt8__detail15_List_node_base9_M_unhookEv, (struct list_node * n), (__sf_log(n->next, 16), __sf_log(n->previous, 16)),
     _ZNSt8__detail15_List_node_base9_M_unhookEv(n))
LIST(transfer, _ZNSt8__detail15_List_node_base11_M_transferEPS0_S1_,
     (struct list_node * at, struct list_node *first, struct list_node *last),
     (__sf_log(at, 16), __sf_log(at->previous, 16), __sf_log(first, 16), __sf_log(first->previous, 16), __sf_log(last, 16),
      __sf_log(last->previous, 16)),
     _ZNSt8__detail15_List_node_base11_M_transferEPS0_S1_(at, first, last))

static void log_list(struct list_node *n) {
  struct list_node *at = n;
  do
    __sf_log(at, 16);
  while ((at = at->next) != n);
}
LIST(reverse, _ZNSt8__detail15_List_node_base10_M_reverseEv, (struct list_node * n), log_list(n),
     _ZNSt8__detail15_List_node_base10_M_reverseEv(n))
LIST(swap, _ZNSt8__detail15_List_node_base4swapERS0_S1_, (struct list_node * a, struct list_node *b),
     (__sf_log(a, 16), __sf_log(a->next, 16), __sf_log(a->previous, 16), __sf_log(b, 16), __sf_log(b->next, 16), __sf_log(b->previous, 16)),
     _ZNSt8__detail15_List_node_base4swapERS0_S1_(a, b))

/* struct _Prime_rehash_policy: a float, and the size at which to grow. */
struct rehash {
  float load;
  size_t next;
};
struct rehash_answer {
  uint64_t first, second;
};
extern struct rehash_answer _ZNKSt8__detail20_Prime_rehash_policy14_M_need_rehashEmmm(struct rehash *, size_t, size_t, size_t) WEAK;
extern size_t _ZNKSt8__detail20_Prime_rehash_policy11_M_next_bktEm(struct rehash *, size_t) WEAK;

SF_API struct rehash_answer __sf_w_need_rehash(struct rehash *p, size_t buckets, size_t elements, size_t more) {
  __sf_log(&p->next, 8);
  return _ZNKSt8__detail20_Prime_rehash_policy14_M_need_rehashEmmm(p, buckets, elements, more);
}

SF_API size_t __sf_w_next_bucket(struct rehash *p, size_t n) {
  __sf_log(&p->next, 8);
  return _ZNKSt8__detail20_Prime_rehash_policy11_M_next_bktEm(p, n);
}

SF_API _Noreturn void __sf_throw_again(struct unwind_exception *u) {
  _Unwind_Resume_or_Rethrow(u);
  __cxa_begin_catch(u); /* nobody catches it: as __cxa_throw ends then */
  _ZSt9terminatev();
}

/* Behind pointers: virtual functions that a class of the C++ library has. Those that only read, and the way out of
   std::cout, std::cerr and std::clog as long as they share the C library's streams (sync_with_stdio). */

struct sync_filebuf {
  void *vtable;
  char *areas[6];
  void *locale;
  void *file; /* FILE * */
};
extern size_t __sf_w_fwrite(const void *, size_t, size_t, void *);
extern int __sf_w_fputc(int, void *), __sf_w_fflush(void *);

static long stream_put(struct sync_filebuf *s, const char *bytes, long n) { return (long)__sf_w_fwrite(bytes, 1, (size_t)n, s->file); }
static int stream_byte(struct sync_filebuf *s, int byte) { return byte == -1 ? 0 : __sf_w_fputc(byte, s->file); }
static int stream_flush(struct sync_filebuf *s) {
  __sf_w_fflush(s->file);
  return 0;
}

/* Numbers into a stream. The library's code writes them into a streambuf of this frame, which has the base class's
   functions and no more room than its buffer; from there they go to the stream's own, as hardened code. A stream's width is
   set back by each output: for std::cout that is memory of the library's, so it is logged here.

   512 bytes: the longest double in fixed notation has 309 digits before the point, and a stream's precision is 6 unless
   the program asks for more. What does not fit stops the program. */
struct streambuf {
  void **vtable;
  char *in[3], *out, *out_now, *out_end;
  void *locale;
};
struct stream_iterator {
  struct streambuf *to;
  bool failed;
};
struct ios {
  void *vtable;
  long precision, width;
};
#define SLOT_XSPUTN 12 /* after two destructors, imbue, setbuf, seekoff, seekpos, sync, showmanyc, xsgetn, underflow, uflow, pbackfail */
#define NUMBER_BYTES 512
extern void *_ZTVSt15basic_streambufIcSt11char_traitsIcEE[] WEAK;
typedef long (*put_bytes)(struct streambuf *, const char *, long);

static struct stream_iterator put_number_cxx(struct stream_iterator to, struct streambuf *from, struct stream_iterator made) {
  if (made.failed)
    sf_stop("a number of more than 512 characters is written to a stream in a handler", "write it in parts, or outside the handler");
  put_bytes put = (put_bytes)__sf_clone(to.to->vtable[SLOT_XSPUTN], "std::ostream");
  long n = from->out_now - from->out;
  if (!to.failed && put(to.to, from->out, n) != n)
    to.failed = true;
  return to;
}

#define FOR_EACH_NUMBER(DO) \
  DO(b, bool)               \
  DO(l, long) DO(m, unsigned long) DO(x, long long) DO(y, unsigned long long) DO(d, double) DO(e, long double) DO(PKv, const void *)
#define NUM_PUT(CODE) _ZNKSt7num_putIcSt19ostreambuf_iteratorIcSt11char_traitsIcEEE6do_putES3_RSt8ios_basec##CODE
#define PUT(CODE, TYPE)                                                                                                               \
  extern struct stream_iterator NUM_PUT(CODE)(const void *, struct stream_iterator, struct ios *, char, TYPE) WEAK;                   \
  static struct stream_iterator put_##CODE(const void *facet, struct stream_iterator to, struct ios *io, char fill, TYPE v) {         \
    char bytes[NUMBER_BYTES];                                                                                                         \
    struct streambuf own = {                                                                                                          \
        .vtable = _ZTVSt15basic_streambufIcSt11char_traitsIcEE + 2, .out = bytes, .out_now = bytes, .out_end = bytes + sizeof bytes}; \
    __sf_log(&io->width, sizeof io->width);                                                                                           \
    struct stream_iterator made = NUM_PUT(CODE)(facet, (struct stream_iterator){.to = &own}, io, fill, v);                            \
    __sf_logged(&io->width, sizeof io->width);                                                                                        \
    return put_number_cxx(to, &own, made);                                                                                            \
  }
FOR_EACH_NUMBER(PUT)

/* clang-format off */
#define STREAM(NAME) _ZN9__gnu_cxx18stdio_sync_filebufIcSt11char_traitsIcEE##NAME
#define FOR_EACH_READER(DO)                                                                                            \
  DO(_ZNKSt9exception4whatEv) DO(_ZNKSt11logic_error4whatEv) DO(_ZNKSt13runtime_error4whatEv) DO(_ZNKSt9bad_alloc4whatEv)    \
  DO(_ZNKSt20bad_array_new_length4whatEv) DO(_ZNKSt8bad_cast4whatEv) DO(_ZNKSt10bad_typeid4whatEv)                           \
  DO(_ZNKSt13bad_exception4whatEv) DO(_ZNKSt17bad_function_call4whatEv) DO(_ZNKSt12bad_weak_ptr4whatEv)                      \
  DO(_ZNKSt5ctypeIcE8do_widenEc) DO(_ZNKSt5ctypeIcE9do_narrowEcc) DO(_ZNKSt5ctypeIcE10do_toupperEc) DO(_ZNKSt5ctypeIcE10do_tolowerEc)
#define DECLARE(MANGLED) extern void MANGLED(void) WEAK;
FOR_EACH_READER(DECLARE)
DECLARE(STREAM(6xsputnEPKcl)) DECLARE(STREAM(8overflowEi)) DECLARE(STREAM(4syncEv))

#define NUMBER(CODE, TYPE) {(void *)NUM_PUT(CODE), (void *)put_##CODE},
#define ENTRY(MANGLED) {(void *)MANGLED, (void *)MANGLED},
__attribute__((section("sf_clones"), used)) static const struct sf_clone library[] = {
    FOR_EACH_READER(ENTRY) FOR_EACH_NUMBER(NUMBER){(void *)STREAM(6xsputnEPKcl), (void *)stream_put},
    {(void *)STREAM(8overflowEi), (void *)stream_byte},
    {(void *)STREAM(4syncEv), (void *)stream_flush},
};
/* clang-format on */
