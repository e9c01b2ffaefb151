// State at rest: objects with a copy (dup), objects with checksums (crc).
//
//     pipeline start   prepareState    tagged variables get their section, tagged functions allocate protected memory
//     clones           stateInClones   each load and store goes to the run's own copy; cells are looked at first
//     everything else  stateOutside    each load is checked, each store is done to both, or renews checksums
//
// A clone asks at its entry how far the copy of this run lies away (0 in the first run) and adds that to every address
// that has a copy. What the address is computed from, the run has loaded from its own copy as well; so a pointer that is
// wrong in one copy leads one run astray, and the runs differ. Logging goes by the object's address (Home), which is the
// same in both.
//
// Invariants
//  1. No load or store of a clone reaches memory that may have a copy without the addition, none outside without the
//     check; only what provably lies elsewhere (frames, constants, untagged variables of the module) is left alone.
//  2. Modules with and without this do not link into one program that has protected state (__sf_state_1, coverage).
//
// Not covered: what C++ libraries keep compiled and is not in Containers; thread-local variables, and variables without initialiser that several modules define (common): refused.

#include "../runtime/layout.h"
#include "place.h"
#include "state.h"

#include "llvm/Analysis/ValueTracking.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/MDBuilder.h"
#include "llvm/Support/ErrorHandling.h"
#include "llvm/Transforms/Utils/BasicBlockUtils.h"
#include "llvm/Transforms/Utils/ModuleUtils.h"

using namespace llvm;

namespace steadfast {

namespace {

// Of sf_tls.delta, which is 1 << SF_EPOCH_SHIFT in the second run.
constexpr unsigned CopyShift = SF_COPY_SHIFT - SF_EPOCH_SHIFT;
constexpr StringLiteral WasConstant = "steadfast-constant";
constexpr StringLiteral DupSection = "sf_dup", CrcSection = "sf_crc";

// clang-format off: tables

// __sf_s_dup_ or __sf_s_crc_ stands before the second.
const std::pair<StringLiteral, StringLiteral> Allocators[] = {
    {"malloc", "malloc"}, {"calloc", "calloc"}, {"realloc", "realloc"}, {"aligned_alloc", "aligned_alloc"},
    {"posix_memalign", "posix_memalign"}, {"strdup", "strdup"},
    {"_Znwm", "new"}, {"_Znam", "new"}, {"_ZnwmRKSt9nothrow_t", "new_nothrow"}, {"_ZnamRKSt9nothrow_t", "new_nothrow"},
    {"_ZnwmSt11align_val_t", "new_aligned"}, {"_ZnamSt11align_val_t", "new_aligned"},
    {"_ZnwmSt11align_val_tRKSt9nothrow_t", "aligned_nothrow"}, {"_ZnamSt11align_val_tRKSt9nothrow_t", "aligned_nothrow"},
};

// What libstdc++ keeps compiled and follows or writes the nodes of containers, and what stands for it
// (include/steadfast/containers.h).
const std::pair<StringLiteral, StringLiteral> Containers[] = {
    {"_ZSt18_Rb_tree_incrementPSt18_Rb_tree_node_base", "sf_tree_next"},
    {"_ZSt18_Rb_tree_incrementPKSt18_Rb_tree_node_base", "sf_tree_next"},
    {"_ZSt18_Rb_tree_decrementPSt18_Rb_tree_node_base", "sf_tree_previous"},
    {"_ZSt18_Rb_tree_decrementPKSt18_Rb_tree_node_base", "sf_tree_previous"},
    {"_ZSt29_Rb_tree_insert_and_rebalancebPSt18_Rb_tree_node_baseS0_RS_", "sf_tree_insert"},
    {"_ZSt28_Rb_tree_rebalance_for_erasePSt18_Rb_tree_node_baseRS_", "sf_tree_erase"},
    {"_ZNSt8__detail15_List_node_base7_M_hookEPS0_", "sf_list_hook"},
    {"_ZNSt8__detail15_List_node_base9_M_unhookEv", "sf_list_unhook"},
    {"_ZNSt8__detail15_List_node_base11_M_transferEPS0_S1_", "sf_list_transfer"},
    {"_ZNSt8__detail15_List_node_base10_M_reverseEv", "sf_list_reverse"},
    {"_ZNSt8__detail15_List_node_base4swapERS0_S1_", "sf_list_swap"},
};

// What the C library writes into memory it is given, or sends away; outside handlers __sf_s_ stands before the name.
const std::pair<StringLiteral, StringLiteral> Outside[] = {
    {"memcpy", "memcpy"}, {"memmove", "memmove"}, {"memset", "memset"}, {"mempcpy", "mempcpy"},
    {"__memcpy_chk", "memcpy_chk"}, {"__memmove_chk", "memmove_chk"}, {"__memset_chk", "memset_chk"},
    {"strcpy", "strcpy"}, {"stpcpy", "stpcpy"}, {"__strcpy_chk", "strcpy_chk"}, {"strncpy", "strncpy"},
    {"__strncpy_chk", "strncpy_chk"}, {"strcat", "strcat"}, {"__strcat_chk", "strcat_chk"}, {"strncat", "strncat"},
    {"__strncat_chk", "strncat_chk"},
    {"snprintf", "snprintf"}, {"sprintf", "sprintf"}, {"vsnprintf", "vsnprintf"},
    {"__snprintf_chk", "snprintf_chk"}, {"__sprintf_chk", "sprintf_chk"}, {"__vsnprintf_chk", "vsnprintf_chk"},
    {"read", "read"}, {"pread", "pread"}, {"pread64", "pread"}, {"recv", "recv"}, {"recvfrom", "recvfrom"},
    {"strtok_r", "strtok_r"}, {"__strtok_r", "strtok_r"}, {"fread", "fread"}, {"fgets", "fgets"}, {"readv", "readv"}, {"recvmsg", "recvmsg"},
    {"preadv", "preadv"}, {"preadv64", "preadv"}, {"accept", "accept"}, {"accept4", "accept4"}, {"inet_pton", "inet_pton"},
    {"getsockname", "getsockname"}, {"getpeername", "getpeername"},
    {"write", "write"}, {"pwrite", "pwrite"}, {"pwrite64", "pwrite"}, {"send", "send"}, {"sendto", "sendto"},
    {"writev", "writev"}, {"pwritev", "pwritev"}, {"pwritev64", "pwritev"}, {"sendmsg", "sendmsg"}, {"fwrite", "fwrite"},
    {"free", "free"}, {"cfree", "free"}, {"realloc", "realloc"}, {"reallocarray", "reallocarray"},
    {"malloc_usable_size", "usable"}, {"__sf_provenance_move", "provenance_move"}, {"__sf_provenance_realloc", "provenance_realloc"},
    {"_ZdlPv", "delete"}, {"_ZdaPv", "delete_array"}, {"_ZdlPvm", "delete_sized"}, {"_ZdaPvm", "delete_array_sized"},
    {"_ZdlPvSt11align_val_t", "delete_aligned"}, {"_ZdaPvSt11align_val_t", "delete_array_aligned"},
    {"_ZdlPvmSt11align_val_t", "delete_sized_aligned"}, {"_ZdaPvmSt11align_val_t", "delete_array_sized_aligned"},
    {"_ZdlPvRKSt9nothrow_t", "delete_nothrow"}, {"_ZdaPvRKSt9nothrow_t", "delete_array_nothrow"},
    {"_ZNKSt8__detail20_Prime_rehash_policy14_M_need_rehashEmmm", "need_rehash"},
    {"_ZNKSt8__detail20_Prime_rehash_policy11_M_next_bktEm", "next_bucket"},
};

// Of the C library's functions that the runtime stands in for in handlers, those that only read. The others would write
// memory in ways that are not mirrored outside: with protected memory they are refused, at run time.
const char *const Readers[] = {"printf", "fprintf", "dprintf", "vprintf", "vfprintf", "__printf_chk", "__fprintf_chk", "__dprintf_chk",
                               "__vprintf_chk", "__vfprintf_chk", "syslog", "vsyslog", "__syslog_chk", "puts", "fputs",
                               "fputs_unlocked", "fwrite_unlocked", "perror", "strdup", "strndup", "__strdup", "__strndup",
                               "bsearch", "putc", "fputc", "putchar", "close", "exit", "_exit", "fflush",
                               "malloc", "calloc", "aligned_alloc", "memalign"};

// What such functions write through which argument, outside handlers: at most so many bytes, or (below 0) as many as argument -N - 1
// says. What else they are given they read, or give back to the program; argument 9: all of it.
struct Writes {
  StringLiteral Name;
  unsigned Argument;
  int Bytes;
};
constexpr int Refused = 0x7fffffff;    // so many as the library likes, or for as long
constexpr int RefusedOn = Refused - 1; // this argument, and those behind it
const Writes WrittenBy[] = {
    {"time", 0, 8}, {"clock_gettime", 1, 16}, {"gettimeofday", 0, 16}, {"gettimeofday", 1, 8}, {"getrandom", 0, -2}, {"rand_r", 0, 4},
    {"localtime_r", 1, 56}, {"gmtime_r", 1, 56}, {"mktime", 0, 56}, {"timegm", 0, 56}, {"strftime", 0, -2}, {"strptime", 2, 56},
    {"ctime_r", 1, 26}, {"asctime_r", 1, 26},
    {"strtol", 1, 8}, {"strtoul", 1, 8}, {"strtoll", 1, 8}, {"strtoull", 1, 8}, {"strtoimax", 1, 8}, {"strtoumax", 1, 8},
    {"strtod", 1, 8}, {"strtof", 1, 8}, {"strtold", 1, 8}, {"__isoc23_strtol", 1, 8}, {"__isoc23_strtoul", 1, 8},
    {"__isoc23_strtoll", 1, 8}, {"__isoc23_strtoull", 1, 8}, {"__isoc23_strtoimax", 1, 8}, {"__isoc23_strtoumax", 1, 8},
    {"inet_ntop", 2, -4}, {"inet_aton", 1, 4}, {"bzero", 0, -2}, {"explicit_bzero", 0, -2}, {"__explicit_bzero_chk", 0, -2},
    {"stpncpy", 0, -3}, {"__stpncpy", 0, -3}, {"__stpncpy_chk", 0, -3}, {"memccpy", 0, -4}, {"__mempcpy", 0, -3}, {"__mempcpy_chk", 0, -3},
    {"__stpcpy_chk", 0, -3},
    {"stat", 1, 144}, {"stat64", 1, 144}, {"fstat", 1, 144}, {"fstat64", 1, 144}, {"lstat", 1, 144}, {"lstat64", 1, 144},
    {"fstatat", 2, 144}, {"fstatat64", 2, 144},
    {"frexp", 1, 4}, {"frexpf", 1, 4}, {"modf", 1, 8}, {"modff", 1, 4}, {"getrusage", 1, 144}, {"strerror_r", 1, -3},
    {"__xpg_strerror_r", 1, -3}, {"asprintf", 0, 8}, {"vasprintf", 0, 8}, {"__asprintf_chk", 0, 8}, {"__vasprintf_chk", 0, 8},
    {"__read_chk", 1, -3}, {"__pread_chk", 1, -3}, {"__pread64_chk", 1, -3}, {"__recv_chk", 1, -3},
    {"open", 9, 0}, {"open64", 9, 0}, {"openat", 9, 0}, {"openat64", 9, 0}, {"access", 9, 0}, {"unlink", 9, 0},
    {"__fgets_chk", 0, -3}, {"__fread_chk", 0, -2}, {"getcwd", 0, -2}, {"gethostname", 0, -2}, {"readlink", 1, -3},
    {"pipe", 0, 8}, {"pipe2", 0, 8}, {"socketpair", 3, 8}, {"wait", 0, 4}, {"waitpid", 1, 4}, {"nanosleep", 1, 16},
    {"getrlimit", 1, 16}, {"getrlimit64", 1, 16}, {"uname", 0, 390}, {"getaddrinfo", 3, 8}, {"sigaction", 2, 152},
    {"sigprocmask", 2, 128}, {"sigemptyset", 0, 128}, {"sigfillset", 0, 128}, {"sigaddset", 0, 128}, {"sigdelset", 0, 128},
    {"pthread_create", 0, 8}, {"pthread_join", 1, 8}, {"pthread_key_create", 0, 4}, {"pthread_setspecific", 9, 0},
    {"pthread_setname_np", 9, 0}, {"pthread_getname_np", 1, -3}, {"pthread_sigmask", 2, 128},
    {"vsprintf", 0, Refused}, {"__vsprintf_chk", 0, Refused}, {"qsort", 0, Refused}, {"qsort_r", 0, Refused},
    {"strsep", 0, Refused}, {"sscanf", 2, RefusedOn}, {"__isoc99_sscanf", 2, RefusedOn}, {"__isoc23_sscanf", 2, RefusedOn},
};

// clang-format on

enum class Kind { None, Dup, Crc, Unknown };

class State {
public:
  State(Module &M, const Config &C) : M(M), C(C), Ctx(M.getContext()), Layout(M.getDataLayout()) {
    I64 = Type::getInt64Ty(Ctx);
    Places = M.getGlobalVariable("__sf_places");
    if (!Places)
      Places = new GlobalVariable(M, ArrayType::get(I64, 4), false, GlobalValue::ExternalLinkage, nullptr, "__sf_places");
    Types = PointerType::getUnqual(Ctx);
    auto two = [&](const char *Name) { return M.getOrInsertFunction(Name, Type::getVoidTy(Ctx), Types, I64); };
    Touch = two("__sf_state_touch");
    Read = two("__sf_state_read");
    Write = two("__sf_state_write");
    Room = two("__sf_state_room");
    Renew = two("__sf_state_written");
    Keeps = two("__sf_state_keeps");
    Give = M.getOrInsertFunction("__sf_state_give", Type::getVoidTy(Ctx), Types);
    Lend = M.getOrInsertFunction("__sf_state_lend", Type::getVoidTy(Ctx), Types);
    Refuse = M.getOrInsertFunction("__sf_state_refuse", Type::getVoidTy(Ctx), Types, Types);
  }

  void clone(Function &F, Homes &Home) {
    enter(F);
    SmallVector<Instruction *, 128> Work;
    for (Instruction &I : instructions(F))
      if (isa<LoadInst>(I) || isa<StoreInst>(I) || isa<MemIntrinsic>(I) || isa<CallBase>(I))
        Work.push_back(&I);
    for (Instruction *I : Work) {
      if (auto *L = dyn_cast<LoadInst>(I)) {
        if (L->isVolatile() || L->isAtomic())
          continue; // read from the object in the first run, replayed in the second
        move(*L, L->getPointerOperand(), L->getPointerOperandIndex(), sizeOf(L->getType()), nullptr);
      } else if (auto *S = dyn_cast<StoreInst>(I)) {
        if (!S->isAtomic())
          move(*S, S->getPointerOperand(), S->getPointerOperandIndex(), sizeOf(S->getValueOperand()->getType()), &Home);
      } else if (auto *B = dyn_cast<MemIntrinsic>(I)) {
        if (auto *T = dyn_cast<MemTransferInst>(B))
          move(*T, T->getSource(), 1, lengthOf(*T), nullptr);
        move(*B, B->getDest(), 0, lengthOf(*B), &Home);
      } else {
        call(*cast<CallBase>(I));
      }
    }
  }

  void outside(Function &F) {
    enter(F);
    SmallVector<Instruction *, 128> Work;
    for (Instruction &I : instructions(F))
      Work.push_back(&I);
    for (Instruction *I : Work) {
      if (auto *L = dyn_cast<LoadInst>(I)) {
        guard(*L, L->getPointerOperand(), sizeOf(L->getType()), Read, nullptr);
      } else if (auto *S = dyn_cast<StoreInst>(I)) {
        guard(*S, S->getPointerOperand(), sizeOf(S->getValueOperand()->getType()), Write, &Renew);
      } else if (auto *R = dyn_cast<AtomicRMWInst>(I)) {
        guard(*R, R->getPointerOperand(), sizeOf(R->getValOperand()->getType()), Write, &Renew);
      } else if (auto *X = dyn_cast<AtomicCmpXchgInst>(I)) {
        guard(*X, X->getPointerOperand(), sizeOf(X->getNewValOperand()->getType()), Write, &Renew);
      } else if (auto *B = dyn_cast<MemIntrinsic>(I)) {
        if (auto *T = dyn_cast<MemTransferInst>(B))
          guard(*T, T->getSource(), lengthOf(*T), Read, nullptr);
        guard(*B, B->getDest(), lengthOf(*B), Write, &Renew);
      } else if (auto *Call = dyn_cast<CallBase>(I)) {
        outsideCall(*Call);
      }
    }
  }

private:
  Module &M;
  const Config &C;
  LLVMContext &Ctx;
  const DataLayout &Layout;
  Type *I64;
  Type *Types;
  GlobalVariable *Places;
  FunctionCallee Touch, Read, Write, Room, Renew, Keeps, Give, Lend, Refuse;
  // At the entry of the function in hand.
  Value *Shift = nullptr, *DupFrom = nullptr, *DupRoom = nullptr, *CrcFrom = nullptr, *CrcRoom = nullptr;
  Function *Current = nullptr;

  Value *sizeOf(Type *T) { return ConstantInt::get(I64, Layout.getTypeStoreSize(T).getKnownMinValue()); }
  Value *lengthOf(MemIntrinsic &B) { return IRBuilder<>(&B).CreateZExtOrTrunc(B.getLength(), I64); }

  void enter(Function &F) {
    Current = &F;
    Shift = DupFrom = DupRoom = CrcFrom = CrcRoom = nullptr;
  }

  Value *place(Value *&Slot, uint64_t Offset) {
    if (!Slot) {
      IRBuilder<> B(&*Current->getEntryBlock().getFirstInsertionPt());
      Slot = B.CreateAlignedLoad(I64, B.CreateConstInBoundsGEP1_64(B.getInt8Ty(), Places, Offset), Align(8));
    }
    return Slot;
  }

  Value *shift() {
    if (!Shift) {
      IRBuilder<> B(&*Current->getEntryBlock().getFirstInsertionPt());
      auto *Tls = cast<GlobalVariable>(M.getOrInsertGlobal("__sf_tls", ArrayType::get(I64, 4)));
      Tls->setThreadLocalMode(GlobalValue::InitialExecTLSModel);
      Value *Delta =
          B.CreateAlignedLoad(I64, B.CreateConstInBoundsGEP1_64(B.getInt8Ty(), B.CreateThreadLocalAddress(Tls), SF_TLS_DELTA), Align(8));
      Shift = B.CreateShl(Delta, CopyShift);
    }
    return Shift;
  }

  Kind kindOf(const Value *Pointer) {
    if (isScratch(Pointer))
      return Kind::None;
    SmallVector<const Value *, 4> Objects;
    getUnderlyingObjects(Pointer, Objects, nullptr, 0);
    Kind All = Kind::None;
    bool First = true;
    for (const Value *O : Objects) {
      Kind One = Kind::Unknown;
      if (auto *G = dyn_cast<GlobalVariable>(O)) {
        if (G->getSection() == DupSection || C.DupVariables.contains(G->getName()))
          One = Kind::Dup;
        else if (G->getSection() == CrcSection || C.CrcVariables.contains(G->getName()))
          One = Kind::Crc;
        else if (G->isConstant() || G->isThreadLocal() || G->hasLocalLinkage() || G->getName().starts_with("__sf_"))
          One = Kind::None;
      } else if (isa<Function>(O) || isa<ConstantPointerNull>(O) || isa<UndefValue>(O) || isa<AllocaInst>(O)) {
        One = Kind::None;
      }
      if (!First && One != All)
        return Kind::Unknown;
      All = One;
      First = false;
    }
    return First ? Kind::Unknown : All;
  }

  Value *isOf(IRBuilder<> &B, Value *Address, uint64_t Number, Value *From, Value *Room) {
    return B.CreateOr(B.CreateICmpEQ(B.CreateLShr(Address, SF_KIND_SHIFT), B.getInt64(Number)),
                      B.CreateICmpULT(B.CreateSub(Address, From), Room));
  }

  Value *isDup(IRBuilder<> &B, Value *Address) {
    return isOf(B, Address, SF_KIND_DUP, place(DupFrom, SF_PLACES_DUP_AT), place(DupRoom, SF_PLACES_DUP_LENGTH));
  }
  Value *isCrc(IRBuilder<> &B, Value *Address) {
    return isOf(B, Address, SF_KIND_CRC, place(CrcFrom, SF_PLACES_CRC_AT), place(CrcRoom, SF_PLACES_CRC_LENGTH));
  }

  Value *any(IRBuilder<> &B, Value *Pointer) {
    Value *Address = B.CreatePtrToInt(Pointer, I64);
    if (!C.Dup)
      return isCrc(B, Address);
    Value *Is = isDup(B, Address);
    return C.Crc ? B.CreateOr(Is, isCrc(B, Address)) : Is;
  }

  // The address of this run's copy.
  Value *own(IRBuilder<> &B, Value *Pointer, Kind K) {
    Value *By = shift();
    if (K == Kind::Unknown)
      By = B.CreateSelect(isDup(B, B.CreatePtrToInt(Pointer, I64)), By, B.getInt64(0));
    return B.CreateGEP(B.getInt8Ty(), Pointer, By);
  }

  // Before I: a call of What where Condition holds; rarely, it is thought.
  void when(Instruction &I, Value *Condition, FunctionCallee What, ArrayRef<Value *> Arguments) {
    Instruction *Then = SplitBlockAndInsertIfThen(Condition, &I, false, MDBuilder(Ctx).createUnlikelyBranchWeights());
    IRBuilder<> B(Then);
    B.SetCurrentDebugLocation(I.getDebugLoc());
    B.CreateCall(What, Arguments);
  }

  void touch(Instruction &I, Value *Pointer, Value *Bytes, Kind K) {
    if (!C.Crc || K == Kind::Dup)
      return;
    IRBuilder<> B(&I);
    if (K == Kind::Crc)
      B.CreateCall(Touch, {Pointer, Bytes});
    else
      when(I, isCrc(B, B.CreatePtrToInt(Pointer, I64)), Touch, {Pointer, Bytes});
  }

  void move(Instruction &I, Value *Pointer, unsigned Operand, Value *Bytes, Homes *Home) {
    if (Pointer->getType()->getPointerAddressSpace() != 0)
      return; // a store of this kind is refused
    Kind K = kindOf(Pointer);
    if (K == Kind::None)
      return;
    touch(I, Pointer, Bytes, K);
    if (!C.Dup || K == Kind::Crc)
      return;
    IRBuilder<> B(&I);
    Value *Own = own(B, Pointer, K);
    I.setOperand(Operand, Own);
    if (Home)
      (*Home)[&I] = Pointer;
  }

  // Libraries are given the run's own copy, and what they answer is an object's address again.
  void call(CallBase &Call) {
    if (isa<IntrinsicInst>(Call) || Call.isInlineAsm())
      return;
    for (unsigned A = 0; A != Call.arg_size(); ++A)
      if (Call.isByValArgument(A))
        move(Call, Call.getArgOperand(A), A, ConstantInt::get(I64, Layout.getTypeAllocSize(Call.getParamByValType(A))), nullptr);
    auto *Callee = dyn_cast<Function>(Call.getCalledOperand()->stripPointerCasts());
    if (!Callee)
      return; // through the table of clones, which has hardened code alone
    if (Callee->getName() == "malloc_usable_size") {
      Callee = cast<Function>(M.getOrInsertFunction("__sf_w_s_usable", Call.getFunctionType()).getCallee());
      Call.setCalledOperand(Callee);
    }
    StringRef Name = Callee->getName();
    bool Lock = Name.starts_with("__sf_w_pthread_") || Name.starts_with("__sf_w_cnd_") || Name.starts_with("__sf_w_mtx_");
    bool Identity = Lock || Name.starts_with("__sf_w_free") || Name.starts_with("__sf_w_delete") || Name.starts_with("__sf_w_realloc") ||
                    Name.starts_with("__sf_w_s_dup_realloc") || Name.starts_with("__sf_w_s_crc_realloc") ||
                    Name.starts_with("__sf_w_s_usable");
    for (unsigned A = 0; Lock && A != Call.arg_size(); ++A) {
      Value *P = Call.getArgOperand(A);
      if (!P->getType()->isPointerTy() || kindOf(P) == Kind::None)
        continue;
      IRBuilder<> B(&Call);
      when(Call, any(B, P), Refuse, {P, text(M, Name.drop_front(strlen("__sf_w_")))});
    }
    bool Ours = Name.starts_with("__sf_") && !Name.starts_with("__sf_w_") && !Name.starts_with("__sf_mem");
    if (Name.ends_with(CloneSuffix) || Identity || Ours)
      return;
    for (unsigned A = 0; A != Call.arg_size(); ++A) {
      Value *P = Call.getArgOperand(A);
      if (!P->getType()->isPointerTy() || Call.isByValArgument(A))
        continue;
      Kind K = kindOf(P);
      if (K == Kind::None)
        continue;
      IRBuilder<> B(&Call);
      if (C.Crc && K != Kind::Dup)
        when(Call, K == Kind::Crc ? B.getTrue() : isCrc(B, B.CreatePtrToInt(P, I64)), Give, {P});
      B.SetInsertPoint(&Call);
      if (C.Dup && K != Kind::Crc)
        Call.setArgOperand(A, own(B, P, K));
    }
    if (!C.Dup || !Call.getType()->isPointerTy() || Call.use_empty())
      return;
    Instruction *Next = behind(Call);
    if (!Next)
      return;
    IRBuilder<> B(Next);
    Value *Address = B.CreatePtrToInt(&Call, I64);
    Value *Back = B.CreateSub(Address, shift());
    Value *IsCopy = B.CreateAnd(isDup(B, Back), B.CreateICmpNE(Back, Address));
    Value *Answer = B.CreateIntToPtr(B.CreateSelect(IsCopy, Back, Address), Call.getType());
    Call.replaceUsesWithIf(Answer, [&](Use &U) { return U.getUser() != Address; });
  }

  void guard(Instruction &I, Value *Pointer, Value *Bytes, FunctionCallee Before, FunctionCallee *After) {
    if (Pointer->getType()->getPointerAddressSpace() != 0)
      return;
    Kind K = kindOf(Pointer);
    if (K == Kind::None)
      return;
    IRBuilder<> B(&I);
    B.SetCurrentDebugLocation(I.getDebugLoc());
    if (K != Kind::Unknown) {
      B.CreateCall(Before, {Pointer, Bytes});
      if (After) {
        B.SetInsertPoint(behind(I));
        B.SetCurrentDebugLocation(I.getDebugLoc());
        B.CreateCall(*After, {Pointer, Bytes});
      }
      return;
    }
    Value *Is = any(B, Pointer);
    when(I, Is, Before, {Pointer, Bytes});
    if (After)
      when(*behind(I), Is, *After, {Pointer, Bytes});
  }

  // Where I has come to its end without an exception.
  Instruction *behind(Instruction &I) {
    if (auto *Throws = dyn_cast<InvokeInst>(&I))
      return &*SplitEdge(Throws->getParent(), Throws->getNormalDest())->getFirstInsertionPt();
    return I.getNextNode();
  }

  // A library keeps what it is given, and writes there when it likes: these bytes have no copy from now on.
  void keeps(CallBase &Call, const Function &Callee) {
    auto Kept = C.Keeps.find(Callee.getName());
    if (Kept == C.Keeps.end())
      return;
    IRBuilder<> B(&Call);
    SmallVector<Value *, 8> Arguments(Call.args());
    std::string Why;
    Value *At = placeOf(B, Callee, Arguments, Kept->second.Pointer, Why);
    Value *Bytes = At ? placeOf(B, Callee, Arguments, Kept->second.Length, Why) : nullptr;
    if (!Bytes)
      stop("the policy's `keeps " + Callee.getName() + "` does not fit: " + Why);
    Value *P = B.CreateIntToPtr(At, Types);
    when(Call, any(B, P), Keeps, {P, Bytes});
  }

  void outsideCall(CallBase &Call) {
    if (isa<IntrinsicInst>(Call) || Call.isInlineAsm())
      return;
    auto *Callee = dyn_cast<Function>(Call.getCalledOperand()->stripPointerCasts());
    if (!Callee || !Callee->isDeclaration())
      return;
    StringRef Name = Callee->getName();
    if (Name.starts_with("__sf_s_"))
      return; // what prepareState has put there
    keeps(Call, *Callee);
    for (auto &[From, To] : Outside)
      if (Name == From) {
        Call.setCalledOperand(M.getOrInsertFunction(("__sf_s_" + To).str(), Call.getFunctionType()).getCallee());
        return;
      }
    Class How = C.treatmentOf(Name).How;
    bool Reads = How == Class::Pure || How == Class::Once || is_contained(Readers, Name);
    SmallVector<const Writes *, 2> Known;
    for (const Writes &W : WrittenBy)
      if (W.Name == Name && (W.Bytes > 0 || unsigned(-W.Bytes) <= Call.arg_size()))
        Known.push_back(&W);
    if (!Reads && Known.empty() && How != Class::Native && !Name.starts_with("pthread_") && !Name.starts_with("cnd_") &&
        !Name.starts_with("mtx_"))
      return;
    SmallVector<Value *, 6> Arguments(Call.args());
    for (unsigned A = 0; A != Arguments.size(); ++A) {
      Value *P = Arguments[A];
      if (!P->getType()->isPointerTy() || kindOf(P) == Kind::None)
        continue;
      auto Here = find_if(Known, [&](const Writes *W) { return W->Argument == A || (W->Bytes == RefusedOn && W->Argument < A); });
      IRBuilder<> B(&Call);
      if (Here != Known.end() && (*Here)->Bytes >= RefusedOn) {
        when(Call, any(B, P), Refuse, {P, text(M, Name)});
        continue;
      }
      if (Here != Known.end()) {
        int Bytes = (*Here)->Bytes;
        guard(Call, P, Bytes > 0 ? ConstantInt::get(I64, Bytes) : B.CreateZExtOrTrunc(Arguments[-Bytes - 1], I64), Room, &Renew);
        continue;
      }
      if (auto *G = dyn_cast<GlobalVariable>(getUnderlyingObject(P));
          G && kindOf(P) != Kind::Unknown && (Reads || !Known.empty() || G->hasAttribute(WasConstant))) {
        // All of the variable, and none of its neighbours. Constants nobody writes.
        B.CreateCall(Read, {G, ConstantInt::get(I64, Layout.getTypeAllocSize(G->getValueType()).getFixedValue())});
        continue;
      }
      Value *Is = any(B, P);
      if (Reads || !Known.empty())
        when(Call, Is, Lend, {P});
      else
        when(Call, Is, Refuse, {P, text(M, Name)});
    }
  }
};

[[noreturn]] void complain(const Twine &What, const Twine &Fix) { stop(What + "\n  fix:   " + Fix); }

} // namespace

// An atomic operation has one place: a copy, or a checksum, would not follow.
static void refuseAtomics(Module &M, const Config &C) {
  for (Function &F : M)
    for (Instruction &I : instructions(F)) {
      if (!I.isAtomic() || isa<FenceInst>(I))
        continue;
      auto *G = dyn_cast<GlobalVariable>(getUnderlyingObject(getPointerOperand(&I)   ? getPointerOperand(&I)
                                                             : isa<AtomicRMWInst>(I) ? cast<AtomicRMWInst>(I).getPointerOperand()
                                                                                     : cast<AtomicCmpXchgInst>(I).getPointerOperand()));
      if (G && (C.DupVariables.count(G->getName()) || C.CrcVariables.count(G->getName())))
        complain("variable " + G->getName() + " cannot be protected at rest: " + whereIs(I) + " changes or reads it by an atomic operation",
                 "take it out of what is protected, or guard it by a lock");
    }
}

bool prepareState(Module &M, const Config &C) {
  if (!C.Dup && !C.Crc) {
    if (!C.DupVariables.empty() || !C.CrcVariables.empty() || !C.DupMemory.empty() || !C.CrcMemory.empty())
      complain("state is to be protected at rest, and the compiler was not told so",
               "--state=dup, --state=crc or --state=dup,crc, for every file and the link");
    return false;
  }
  refuseAtomics(M, C);
  bool Changed = false;
  SmallVector<GlobalValue *, 8> Kept;
  auto section = [&](const StringSet<> &Names, StringRef Section, bool On, const char *Word) {
    for (auto &Entry : Names) {
      GlobalVariable *G = M.getGlobalVariable(Entry.getKey(), /*AllowInternal=*/true);
      if (!G)
        continue;
      if (!On)
        complain("variable " + G->getName() + " is to be protected by " + Word, Twine("add ") + Word + " to --state");
      if (G->isThreadLocal() || G->hasCommonLinkage() || G->isConstant() || G->hasSection())
        complain("variable " + G->getName() +
                     " cannot be protected at rest: it is thread-local, constant, common or in a section of its own",
                 "take it out of what is protected");
      // Where it is defined elsewhere, that module says the same (a policy is everybody's; annotations are for the
      // declaration in the header).
      Changed = true;
      G->setSection(Section);
      if (G->isDeclaration())
        continue;
      if (G->getAlign().valueOrOne() < 64)
        G->setAlignment(Align(64));
      Kept.push_back(G);
    }
  };
  section(C.DupVariables, DupSection, C.Dup, "dup");
  section(C.CrcVariables, CrcSection, C.Crc, "crc");
  // The optimiser may not take a variable apart.
  appendToCompilerUsed(M, Kept);

  // Before anything is inlined: which function asks is what counts.
  auto memory = [&](const StringSet<> &Names, const char *Word, bool On) {
    for (auto &Entry : Names) {
      Function *F = M.getFunction(Entry.getKey());
      if (!F || F->isDeclaration())
        continue;
      if (!On)
        complain("what " + F->getName() + " allocates is to be protected by " + Word, Twine("add ") + Word + " to --state");
      for (Instruction &I : instructions(*F)) {
        auto *Call = dyn_cast<CallBase>(&I);
        auto *Callee = Call ? dyn_cast<Function>(Call->getCalledOperand()->stripPointerCasts()) : nullptr;
        if (!Callee)
          continue;
        for (auto &[From, To] : Allocators)
          if (Callee->getName() == From) {
            std::string Own = ("__sf_s_" + Twine(Word) + "_" + To).str();
            Call->setCalledOperand(M.getOrInsertFunction(Own, Call->getFunctionType()).getCallee());
            Changed = true;
          }
      }
    }
  };
  memory(C.DupMemory, "dup", C.Dup);
  memory(C.CrcMemory, "crc", C.Crc);
  for (auto &[From, To] : Containers) {
    Function *Library = M.getFunction(From), *Own = M.getFunction(To);
    if (!Library || !Own || !Library->isDeclaration())
      continue;
    // What the library's promise of its own (that they write nothing), the checks in these do not keep.
    for (User *U : Library->users())
      if (auto *Call = dyn_cast<CallBase>(U))
        Call->removeFnAttr(Attribute::Memory);
    Library->replaceAllUsesWith(Own);
    Changed = true;
  }
  return Changed;
}

// Strings and tables of the module. They share the section of the variables, which is writable: what writes there by mistake
// is seen as any other difference is, and not by the kernel. Names that other modules see stay where they are, as do
// virtual tables that modules share, and type information: an exception's is the program's and the library's, in neither run.
void constantsWithCopies(Module &M, const Config &C, const Clones &Made) {
  if (!C.Dup && C.DupConstants)
    complain("constants are to have a copy", "add dup to --state");
  if (!C.Dup || !C.DupConstants)
    return;
  SmallVector<const Constant *, 64> Work;
  SmallPtrSet<const Constant *, 32> Seen;
  auto add = [&](const Value *V) {
    if (auto *K = dyn_cast<Constant>(V); K && !isa<Function>(K) && Seen.insert(K).second)
      Work.push_back(K);
  };
  for (auto &[Original, Clone] : Made) {
    Clone->addFnAttr("no-jump-tables", "true"); // the code generator's constants, which both runs would read
    for (const Instruction &I : instructions(*Clone))
      for (const Use &U : I.operands())
        add(U);
  }
  SmallVector<GlobalValue *, 16> Kept;
  while (!Work.empty()) {
    const Constant *K = Work.pop_back_val();
    auto *G = const_cast<GlobalVariable *>(dyn_cast<GlobalVariable>(K));
    if (!G) {
      for (const Use &U : K->operands())
        add(U);
      continue;
    }
    if (!G->isConstant() || !G->hasInitializer() || !G->hasLocalLinkage() || G->hasSection() || G->hasComdat() || G->isThreadLocal() ||
        G->getName().starts_with("__sf_") || G->getName().starts_with("llvm.") || G->getName().starts_with("_ZTI") ||
        G->getName().starts_with("_ZTS"))
      continue;
    add(G->getInitializer());
    G->setConstant(false); // else the two kinds of a section contradict each other
    G->setUnnamedAddr(GlobalValue::UnnamedAddr::None);
    G->setSection(DupSection);
    G->addAttribute(WasConstant);
    Kept.push_back(G);
  }
  appendToCompilerUsed(M, Kept); // stores to them may not be seen, and are not to be thought impossible
}

void stateInClones(Module &M, const Config &C, const Clones &Made, Homes &Home) {
  if (!C.Dup && !C.Crc)
    return;
  State S(M, C);
  for (auto &[Original, Clone] : Made)
    S.clone(*Clone, Home);
}

void stateOutside(Module &M, const Config &C, Report &R) {
  if (!C.Dup && !C.Crc)
    return;
  State S(M, C);
  SmallVector<Function *, 64> All;
  for (Function &F : M)
    if (!F.isDeclaration() && !F.hasAvailableExternallyLinkage() && !F.getName().ends_with(CloneSuffix) &&
        !F.getName().starts_with("__sf_") && !F.hasFnAttribute(Attribute::Naked))
      All.push_back(&F);
  for (Function *F : All) {
    splitLanes(*F, /*Loads=*/true);
    S.outside(*F);
  }

  // Objects by name, for events; and the version of the layout.
  LLVMContext &Ctx = M.getContext();
  auto *Pointer = PointerType::getUnqual(Ctx);
  auto *I64 = Type::getInt64Ty(Ctx);
  auto *Entry = StructType::get(Pointer, I64, Pointer);
  SmallVector<GlobalValue *, 8> Kept;
  SmallVector<GlobalVariable *, 8> Objects;
  for (GlobalVariable &G : M.globals())
    if (!G.isDeclaration() && !G.hasPrivateLinkage() && (G.getSection() == DupSection || G.getSection() == CrcSection))
      Objects.push_back(&G);
  for (GlobalVariable *G : Objects) {
    uint64_t Bytes = M.getDataLayout().getTypeAllocSize(G->getValueType()).getFixedValue();
    auto *Listed = new GlobalVariable(M, Entry, true, GlobalValue::PrivateLinkage,
                                      ConstantStruct::get(Entry, {G, ConstantInt::get(I64, Bytes), text(M, G->getName())}), "__sf_object");
    Listed->setSection("sf_objects");
    Listed->setAlignment(Align(8));
    Kept.push_back(Listed);
    std::string Size = std::to_string(Bytes);
    R.line({"V", G->getName(), G->getSection() == DupSection ? "dup" : "crc", Size});
  }
  auto *Abi = cast<GlobalVariable>(M.getOrInsertGlobal("__sf_state_1", Type::getInt32Ty(Ctx)));
  Kept.push_back(new GlobalVariable(M, Abi->getType(), true, GlobalValue::PrivateLinkage, Abi, "__sf_state_used"));
  appendToUsed(M, Kept);
  R.line({"K", C.Dup ? "dup" : "-", C.Crc ? "crc" : "-"});
}

} // namespace steadfast
