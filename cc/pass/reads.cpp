// Loads of clones, for --validate=async.
//
// There the second run happens later, in another process, and sees memory as the first run saw it: every word that a
// handler reads is kept with the value that it had when it was first touched. So before a load, and before a call of a
// library function that reads memory, the words concerned are looked up in the run's table, where stores look as well
// (runtime/abi.h), and entered if they are new. In the second run a word that is not there is a difference: the first run
// has not read it.
//
// Elided: loads from the clone's own frame (memory.cpp), from constants, and loads of what an access that always comes
// first has entered.
//
// Invariants
//  1. Nothing in a clone reads memory of the program that was not looked up, by load, by intrinsic, by an argument that is
//     passed as a copy, or by a library function: those that are not in the table below are refused.
//  2. Functions called `local` are hardened like all others.
//
// Not covered: what a library function reads behind the pointers that it is given (the environment, a locale).

#include "../runtime/layout.h"
#include "harden.h"

#include "llvm/ADT/StringSwitch.h"
#include "llvm/Analysis/ValueTracking.h"
#include "llvm/IR/Dominators.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InlineAsm.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/MDBuilder.h"
#include "llvm/Transforms/Utils/BasicBlockUtils.h"

using namespace llvm;

namespace steadfast {

namespace {

// The bytes of a tag, and the bit of the epoch by which the second run's tags differ from the first's: a word is known if
// either run has entered it.
constexpr uint64_t Either = SF_TAG_BYTES | 1 << SF_EPOCH_SHIFT;

// What functions read, by their name or by that of the runtime's function in their place:
//     A:B   length B at argument A      A:#N  N bytes there
//     A:s   a string                    A:s:B a string of at most B bytes      A:m:B as memchr does, for argument A + 1
struct Reads {
  const char *Names, *What;
};
constexpr Reads Table[] = {
    {"memcmp bcmp", "0:2 1:2"},
    {"memchr", "0:m:2"},
    {"memrchr", "0:2"},
    {"memmem", "0:1 2:3"},
    {"strlen strchr strrchr strchrnul index rindex basename atoi atol atoll atof inet_addr inet_network", "0:s"},
    {"strnlen", "0:s:1"},
    {"strcmp strcasecmp strcoll strspn strcspn strpbrk strstr strcasestr", "0:s 1:s"},
    {"strncmp strncasecmp", "0:s:2 1:s:2"},
    {"sf_crc32c", "1:2"},
    {"getenv secure_getenv", "0:s"},
    {"__sf_memcpy __sf_memmove __sf_w_mempcpy __sf_w_memcpy_chk __sf_w_memmove_chk", "1:2"},
    {"__sf_w_strcpy __sf_w_stpcpy __sf_w_strcpy_chk", "1:s"},
    {"__sf_w_strncpy __sf_w_strncpy_chk", "1:s:2"},
    {"__sf_w_strcat __sf_w_strcat_chk", "0:s 1:s"},
    {"__sf_w_strncat", "0:s 1:s:2"},
    {"__sf_w_strdup __sf_w_fputs __sf_w_puts __sf_w_perror", "0:s"},
    {"__sf_w_strndup", "0:s:1"},
    {"__sf_w_strtol __sf_w_strtoul __sf_w_strtoll __sf_w_strtoull __sf_w_strtod", "0:s"},
    {"__sf_w_inet_pton", "1:s"},
    {"__sf_w_inet_aton", "0:s"},
    {"fnmatch strverscmp", "0:s 1:s"},
    {"__sf_w_localtime_r __sf_w_gmtime_r __sf_w_localtime __sf_w_gmtime", "0:#8"},
    {"__sf_w_strftime", "2:s 3:#56"},
    {"__sf_w_strptime", "0:s 1:s"},
    {"__sf_w_rand_r", "0:#4"},
    {"__sf_w_write __sf_w_send", "1:2"},
    {"__sf_w_open __sf_w_stat __sf_w_lstat __sf_w_access __sf_w_mkstemp __sf_w_unlink __sf_w_readlink __sf_w_realpath", "0:s"},
    {"__sf_w_openat __sf_w_fstatat", "1:s"},
    {"__sf_w_getsockname __sf_w_getpeername", "2:#4"},
};

// Those that read nothing, or that look for themselves what they read (strings.c, libc.c, messages.c).
constexpr const char *NoReads =
    " sf_input_edge sf_output_append sf_output_done sf_ignore sf_run __errno_location __h_errno_location __ctype_b_loc"
    " __ctype_tolower_loc __ctype_toupper_loc abort __assert_fail __assert __stack_chk_fail __chk_fail __fortify_fail"
    " pthread_equal pthread_self malloc_usable_size fileno isatty strerror strsignal gai_strerror hstrerror ";
constexpr const char *Looking =
    " __sf_memset __sf_w_memset_chk __sf_w_bzero __sf_w_explicit_bzero __sf_w_malloc __sf_w_calloc __sf_w_realloc"
    " __sf_w_reallocarray __sf_w_aligned_alloc __sf_w_memalign __sf_w_posix_memalign __sf_w_free __sf_w_snprintf"
    " __sf_w_sprintf __sf_w_vsnprintf __sf_w_vsprintf __sf_w_snprintf_chk __sf_w_sprintf_chk __sf_w_vsnprintf_chk"
    " __sf_w_strtok __sf_w_strtok_r __sf_w_strsep __sf_w_inet_ntop __sf_w_timegm __sf_w_mktime __sf_w_bsearch __sf_w_time"
    " __sf_w_clock_gettime __sf_w_gettimeofday __sf_w_getrandom __sf_w_getrusage __sf_w_read __sf_w_recv __sf_w_lseek"
    " __sf_w_pread __sf_w_fstat __sf_w_getcwd __sf_w_writev __sf_w_fwrite __sf_w_fputc __sf_w_putchar __sf_w_printf __sf_w_fprintf"
    " __sf_w_dprintf __sf_w_vprintf __sf_w_vfprintf __sf_w___printf_chk __sf_w___fprintf_chk __sf_w_fflush"
    " __sf_w_close __sf_w_exit __sf_w_frexp __sf_w_frexpf __sf_w_modf __sf_w_modff __sf_w_syslog __sf_w___syslog_chk __sf_w_vsyslog"
    " __sf_w_epoll_ctl __sf_w_setsockopt __sf_w_fcntl __sf_w_accept __sf_w_accept4 __sf_w_fsync __sf_w_fdatasync"
    " __sf_w_getnameinfo __sf_w_gethostname __sf_w_poll __sf_w_uname ";

bool isIn(StringRef List, StringRef Name) { return List.contains((" " + Name + " ").str()); }

const char *readsOf(StringRef Name) {
  for (const Reads &R : Table)
    if (isIn((" " + Twine(R.Names) + " ").str(), Name))
      return R.What;
  return nullptr;
}

class Loads {
public:
  Loads(Module &M, const Config &C, Report &R) : M(M), C(C), R(R), Ctx(M.getContext()), Layout(M.getDataLayout()) {
    Type *I64 = Type::getInt64Ty(Ctx), *Void = Type::getVoidTy(Ctx);
    auto *Pointer = PointerType::getUnqual(Ctx);
    // Registers as in runtime/store.S.
    Slow = InlineAsm::get(FunctionType::get(Void, {I64, I64, I64}, false), "call __sf_load",
                          "{r10},{r11},{rax},~{rcx},~{rdx},~{r8},~{r9},~{memory},~{flags},~{dirflag},~{fpsr}", true);
    Sum = InlineAsm::get(FunctionType::get(I64, {I64}, false), "", "=r,0", false);
    Bytes = M.getOrInsertFunction("__sf_reads", Void, Pointer, I64);
    String = M.getOrInsertFunction("__sf_reads_string", Void, Pointer, I64);
    Search = M.getOrInsertFunction("__sf_reads_search", Void, Pointer, Type::getInt32Ty(Ctx), I64);
  }

  void treat(Function &Clone) {
    Id = originalId(Clone);
    // What is entered stays so until the handler ends: an access that always comes first speaks for later ones.
    DominatorTree Order(Clone);
    DenseMap<Value *, SmallVector<std::pair<Instruction *, uint64_t>, 2>> Entered;
    SmallVector<LoadInst *, 64> Words;
    SmallVector<Instruction *, 64> Others;
    for (BasicBlock *Block : depthFirst(Clone))
      for (Instruction &I : *Block) {
        Value *Pointer = nullptr;
        uint64_t Size = 0;
        if (auto *L = dyn_cast<LoadInst>(&I); L && wanted(*L)) {
          Pointer = L->getPointerOperand();
          Size = Layout.getTypeStoreSize(L->getType()).getKnownMinValue();
        } else if (auto *S = dyn_cast<StoreInst>(&I); S && !S->isAtomic()) {
          Pointer = S->getPointerOperand();
          Size = Layout.getTypeStoreSize(S->getValueOperand()->getType()).getKnownMinValue();
        } else if (isa<CallBase>(I) && !isa<DbgInfoIntrinsic>(I)) {
          Others.push_back(&I);
        }
        if (!Pointer)
          continue;
        auto &Before = Entered[Pointer];
        bool Known = any_of(Before, [&](const auto &E) { return E.second >= Size && Order.dominates(E.first, &I); });
        if (!Known)
          Before.push_back({&I, Size});
        if (auto *L = dyn_cast<LoadInst>(&I); L && !Known)
          Words.push_back(L);
      }
    for (LoadInst *L : Words)
      load(*L);
    for (Instruction *I : Others)
      call(*cast<CallBase>(I));
  }

private:
  Module &M;
  const Config &C;
  Report &R;
  LLVMContext &Ctx;
  const DataLayout &Layout;
  InlineAsm *Slow, *Sum;
  FunctionCallee Bytes, String, Search;
  std::string Id;

  static SmallVector<BasicBlock *, 32> depthFirst(Function &F) {
    SmallVector<BasicBlock *, 32> All, Next{&F.getEntryBlock()};
    SmallPtrSet<BasicBlock *, 32> Seen{&F.getEntryBlock()};
    while (!Next.empty()) {
      BasicBlock *B = Next.pop_back_val();
      All.push_back(B);
      for (BasicBlock *To : successors(B))
        if (Seen.insert(To).second)
          Next.push_back(To);
    }
    return All;
  }

  // Memory that no run changes and that was there before the program began.
  static bool isConstant(const Value *Pointer) {
    SmallVector<const Value *, 4> Objects;
    getUnderlyingObjects(Pointer, Objects, nullptr, 0);
    return !Objects.empty() && all_of(Objects, [](const Value *O) {
      auto *G = dyn_cast<GlobalVariable>(O);
      return G && G->isConstant() && !G->isThreadLocal();
    });
  }

  static bool free(const Value *Pointer) { return isScratch(Pointer) || isConstant(Pointer); }

  static bool wanted(const LoadInst &L) { return !L.isVolatile() && !L.isAtomic() && !free(L.getPointerOperand()); }

  void load(LoadInst &L) {
    TypeSize Size = Layout.getTypeStoreSize(L.getType());
    if (Size.isScalable() || L.getPointerAddressSpace() != 0) {
      refuse(L, R, Id, "a load of a size that the compiler does not know, or relative to a segment register");
      return;
    }
    uint64_t N = Size.getFixedValue();
    Value *Pointer = L.getPointerOperand();
    if ((N == 1 || N == 2 || N == 4 || N == 8) && L.getAlign().value() >= N)
      word(L, Pointer, N);
    else if ((N == 16 || N == 32) && L.getAlign().value() >= 8)
      for (uint64_t At = 0; At != N; At += 8)
        word(L, IRBuilder<>(&L).CreateConstInBoundsGEP1_64(Type::getInt8Ty(Ctx), Pointer, At), 8);
    else
      range(L, Pointer, ConstantInt::get(Type::getInt64Ty(Ctx), N));
  }

  void word(LoadInst &L, Value *Pointer, uint64_t N) {
    IRBuilder<> B(&L);
    Type *I64 = B.getInt64Ty();
    Value *Word = B.CreatePtrToInt(Pointer, I64);
    // As for stores: an address that is not a multiple of the size keeps low bits that no tag has.
    if (N != 8)
      Word = B.CreateAnd(Word, B.getInt64(~(8 - N)));
    Value *Base = B.CreateThreadLocalAddress(M.getGlobalVariable("__sf_tls"));
    auto field = [&](uint64_t Offset) {
      return B.CreateAlignedLoad(I64, B.CreateConstInBoundsGEP1_64(B.getInt8Ty(), Base, Offset), Align(8));
    };
    Value *Expected = B.CreateOr(B.CreateShl(Word, SF_WORD_SHIFT), field(SF_TLS_EPOCH_KEY));
    Value *Slot = B.CreateCall(Sum, {B.CreateAdd(B.CreateAnd(Word, field(SF_TLS_INDEX_MASK)), field(SF_TLS_TABLE))});
    Value *Tag = B.CreateAlignedLoad(I64, B.CreateIntToPtr(Slot, B.getPtrTy()), Align(8), /*isVolatile=*/true);
    cast<Instruction>(Tag)->setMetadata(LookedMetadata, MDNode::get(Ctx, {})); // not the program's
    Value *Missing = B.CreateICmpUGT(B.CreateXor(Tag, Expected), B.getInt64(Either));
    Instruction *Then = SplitBlockAndInsertIfThen(Missing, &L, false, MDBuilder(Ctx).createUnlikelyBranchWeights());
    B.SetInsertPoint(Then);
    B.SetCurrentDebugLocation(L.getDebugLoc());
    B.CreateCall(Slow, {Word, Expected, Slot});
  }

  void range(Instruction &Before, Value *Pointer, Value *Length) {
    if (free(Pointer))
      return;
    IRBuilder<> B(&Before);
    B.CreateCall(Bytes, {Pointer, B.CreateZExtOrTrunc(Length, B.getInt64Ty())});
  }

  void call(CallBase &Call) {
    for (unsigned I = 0; I != Call.arg_size(); ++I)
      if (Type *Copied = Call.getParamByValType(I))
        range(Call, Call.getArgOperand(I), ConstantInt::get(Type::getInt64Ty(Ctx), Layout.getTypeAllocSize(Copied).getFixedValue()));
    if (auto *Copy = dyn_cast<MemTransferInst>(&Call)) {
      range(Call, Copy->getSource(), Copy->getLength());
      return;
    }
    if (auto *II = dyn_cast<IntrinsicInst>(&Call)) {
      switch (II->getIntrinsicID()) {
      case Intrinsic::masked_load:
      case Intrinsic::masked_gather:
      case Intrinsic::masked_expandload:
      case Intrinsic::vp_load:
      case Intrinsic::vp_gather:
      case Intrinsic::load_relative:
      case Intrinsic::experimental_vp_strided_load:
        refuse(Call, R, Id, "a load under a mask, which --validate=async cannot keep");
        return;
      default:
        return;
      }
    }
    auto *Callee = dyn_cast<Function>(Call.getCalledOperand()->stripPointerCasts());
    if (!Callee)
      return;
    StringRef Name = Callee->getName();
    if (const char *What = readsOf(Name)) {
      SmallVector<StringRef, 4> Items;
      StringRef(What).split(Items, ' ');
      for (StringRef Item : Items)
        reads(Call, Item);
      return;
    }
    bool IsPure = C.treatmentOf(Name).How == Class::Pure, IsOurs = Name.starts_with("__sf_w_");
    bool TakesPointer = any_of(Call.args(), [](const Use &U) { return U->getType()->isPointerTy(); });
    if ((IsPure && TakesPointer && !isIn(NoReads, Name)) || (IsOurs && !isIn(Looking, Name)))
      refuse(Call, R, Id, ("a call of " + Name + ", which may read memory that --validate=async does not keep").str());
  }

  void reads(CallBase &Call, StringRef Item) {
    SmallVector<StringRef, 3> Parts;
    Item.split(Parts, ':');
    auto argument = [&](StringRef Number) -> Value * {
      unsigned I = 0;
      Number.getAsInteger(10, I);
      return I < Call.arg_size() ? Call.getArgOperand(I) : nullptr;
    };
    IRBuilder<> B(&Call);
    Value *Pointer = argument(Parts[0]);
    Value *Length = Parts.size() > 2 ? argument(Parts[2]) : nullptr;
    if (!Pointer || !Pointer->getType()->isPointerTy() || (Parts.size() > 2 && !Length)) {
      refuse(Call, R, Id, "a library function with other arguments than its own");
      return;
    }
    if (free(Pointer))
      return;
    if (Parts[1] == "s") {
      B.CreateCall(String, {Pointer, Length ? B.CreateZExtOrTrunc(Length, B.getInt64Ty()) : B.getInt64(~0ULL)});
    } else if (Parts[1] == "m") {
      B.CreateCall(Search,
                   {Pointer, B.CreateZExtOrTrunc(Call.getArgOperand(1), B.getInt32Ty()), B.CreateZExtOrTrunc(Length, B.getInt64Ty())});
    } else if (Parts[1].consume_front("#")) {
      unsigned N = 0;
      Parts[1].getAsInteger(10, N);
      range(Call, Pointer, B.getInt64(N));
    } else {
      Value *N = argument(Parts[1]);
      if (N)
        range(Call, Pointer, N);
      else
        refuse(Call, R, Id, "a library function with other arguments than its own");
    }
  }
};

} // namespace

void treatReads(Module &M, const Config &C, const Clones &Made, Report &R) {
  if (!C.Async)
    return;
  R.line({"Y", "async"});
  if (Made.empty())
    return;
  if (!M.getGlobalVariable("__sf_tls"))
    (new GlobalVariable(M, ArrayType::get(Type::getInt64Ty(M.getContext()), 4), false, GlobalValue::ExternalLinkage, nullptr, "__sf_tls",
                        nullptr, GlobalValue::InitialExecTLSModel))
        ->setAlignment(Align(8));
  Loads Treatment(M, C, R);
  for (auto &[Original, Clone] : Made)
    Treatment.treat(*Clone);
}

} // namespace steadfast
