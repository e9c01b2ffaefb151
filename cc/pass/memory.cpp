// Stores and loads of clones.
//
// A store that may reach memory of the program is logged by words of 8 bytes, before it happens, and looked up again
// after it (Figure 4b of the paper, lines 1 and 7). The question "is this word logged in this run?" is answered inline by
// one comparison (runtime/abi.h); only a no calls the runtime. Bulk operations are logged as ranges, and so are loops (ranges.cpp). Stores of
// one block to parts of one word that together are an aligned half of it, or all, are looked up as one. A store whose bytes something before it
// has logged is not looked up (covered.cpp).
//
// Memory that dies with the frames of a run needs no log: each run begins with a fresh one. That is every alloca of the
// clone, whoever else knows its address; when it is reached through a pointer, the runtime finds out that it lies in
// the stack below the handler.
//
// Invariants
//  1. Every store, memory intrinsic and volatile or atomic load of a clone is either treated or refused.
//  2. What reads back a slot is volatile: no optimiser may assume that it still holds what was just compared.
//
// Not covered: what packs the chosen elements of a vector, or stores them by an instruction of a kind of its own: refused.

#include "../runtime/layout.h"
#include "harden.h"

#include "llvm/Analysis/ValueTracking.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InlineAsm.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/MDBuilder.h"
#include "llvm/Transforms/Utils/BasicBlockUtils.h"

using namespace llvm;

namespace steadfast {

bool isScratch(const Value *Pointer) {
  SmallVector<const Value *, 4> Objects;
  getUnderlyingObjects(Pointer, Objects, nullptr, 0);
  return !Objects.empty() && all_of(Objects, [](const Value *O) {
    if (isa<AllocaInst>(O))
      return true;
    auto *A = dyn_cast<Argument>(O);
    return A && A->hasByValAttr();
  });
}

namespace {

// Up to this many bytes are cheaper as one call around plain stores than as a call of the runtime's copy.
constexpr uint64_t InlineBytes = 64;

struct Counts {
  uint64_t Logged = 0, Stack = 0, Ignored = 0, Ranges = 0, Once = 0, Loops = 0;
};

class Memory {
public:
  Memory(Module &M, const Config &C, const Clones &Made, Report &R, const DenseMap<Instruction *, WeakTrackingVH> &Homes)
      : M(M), C(C), R(R), Homes(Homes), E(C, Made), Ctx(M.getContext()), Layout(M.getDataLayout()) {
    auto *Pointer = PointerType::getUnqual(Ctx);
    auto *I64 = Type::getInt64Ty(Ctx);
    auto *Void = Type::getVoidTy(Ctx);
    Tls = M.getGlobalVariable("__sf_tls");
    if (!Tls) {
      Tls = new GlobalVariable(M, ArrayType::get(I64, 4), false, GlobalValue::ExternalLinkage, nullptr, "__sf_tls", nullptr,
                               GlobalValue::InitialExecTLSModel); // hardened code is a program's, never a library's
      Tls->setAlignment(Align(8));
    }
    // Registers as in runtime/store.S.
    auto *Whole = FunctionType::get(Void, {I64, I64, I64}, false);
    auto *Part = FunctionType::get(Void, {I64, I64}, false);
    Slow8 =
        InlineAsm::get(Whole, "call __sf_slow8", "{r10},{r11},{rax},~{rcx},~{rdx},~{r8},~{r9},~{memory},~{flags},~{dirflag},~{fpsr}", true);
    SlowPart = InlineAsm::get(FunctionType::get(Void, {I64, I64, I64, I64}, false), "call __sf_slow_part",
                              "{r10},{r11},{rax},{r9},~{rcx},~{rdx},~{rsi},~{r8},~{memory},~{flags},~{dirflag},~{fpsr}", true);
    constexpr const char *Keeps = "{r10},{r11},~{memory},~{flags},~{dirflag},~{fpsr}"; // every general register
    Check = InlineAsm::get(Part, "call __sf_check", Keeps, true);
    Before = InlineAsm::get(Part, "call __sf_before", Keeps, true);
    Astray = InlineAsm::get(Part, "call __sf_astray", Keeps, true);
    Sum = InlineAsm::get(FunctionType::get(I64, {I64}, false), "", "=r,0", false);
    // A copy in another register, whatever is known of the value.
    Keep = InlineAsm::get(FunctionType::get(I64, {I64}, false), "", "=r,0", true);
    // Of a register behind what has used it.
    Reread = InlineAsm::get(FunctionType::get(I64, {I64}, false), "", "=r,0,~{memory}", true);
    Log = M.getOrInsertFunction("__sf_log", Void, Pointer, I64);
    Ready = M.getOrInsertFunction("__sf_ready", Void, Pointer, I64);
    Logged = M.getOrInsertFunction("__sf_logged", Void, Pointer, I64);
    Trace = M.getOrInsertFunction("__sf_trace", Void, Pointer, I64, Pointer);
  }

  void treat(Function &Clone) {
    Id = originalId(Clone);
    N = {};
    Clone.addFnAttr(Attribute::NoRedZone); // inline assembly calls from it
    growRanges(Clone, C,
               [&](StoreInst &S) { return S.isSimple() && !isScratch(S.getPointerOperand()) && !isIgnored(S.getPointerOperand()); });
    SmallVector<Instruction *, 64> Work;
    for (Instruction &I : instructions(Clone))
      if (isa<StoreInst>(I) || isa<MemIntrinsic>(I) || isa<LoadInst>(I))
        Work.push_back(&I);
    findCovered(Clone);
    if (!C.Dup && !C.Crc && !C.Trace)
      for (BasicBlock &Block : make_early_inc_range(Clone))
        neighbours(Block);
    for (Instruction *I : Work) {
      if (auto *S = dyn_cast<StoreInst>(I))
        store(*S);
      else if (auto *L = dyn_cast<LoadInst>(I))
        load(*L);
      else
        bulk(*cast<MemIntrinsic>(I));
    }
    auto number = [](uint64_t V) { return std::to_string(V); };
    std::string A = number(N.Logged), B = number(N.Stack), D = number(N.Ignored), E = number(N.Ranges), F = number(N.Once),
                G = number(N.Loops), Where = whereIs(Clone);
    R.line({"F", Id, Where, A, B, D, E, F, G});
  }

private:
  Module &M;
  const Config &C;
  Report &R;
  const DenseMap<Instruction *, WeakTrackingVH> &Homes;
  Events E;
  LLVMContext &Ctx;
  const DataLayout &Layout;
  GlobalVariable *Tls;
  InlineAsm *Slow8, *SlowPart, *Check, *Before, *Astray, *Sum, *Keep, *Reread;
  FunctionCallee Log, Ready, Logged, Trace;
  std::string Id;
  Counts N;
  // What another operation has logged for a store: its address, kept in front of it, and how far behind it the store's place lies.
  struct Covered {
    Value *Address;
    int64_t Distance;
  };
  DenseMap<StoreInst *, Covered> CoveredBy;

  void note(const Instruction &I, StringRef What) { R.once({"L", whereIs(I), What}); }

  bool isIgnored(const Value *Pointer) const {
    if (C.Ignored.empty())
      return false;
    auto *G = dyn_cast<GlobalVariable>(getUnderlyingObject(Pointer, 0));
    return G && C.Ignored.contains(G->getName());
  }

  // Whether the destination needs no log; counts and notes why.
  bool exempt(Instruction &I, const Value *Pointer) {
    if (isScratch(Pointer)) {
      ++N.Stack;
      note(I, "store to this function's own frame, not logged");
      return true;
    }
    if (isIgnored(Pointer)) {
      ++N.Ignored;
      note(I, "store to an ignored variable, not logged");
      return true;
    }
    return false;
  }

  void findCovered(Function &Clone) {
    CoveredBy.clear();
    auto Wanted = [&](const Instruction &I, const Value *Pointer) {
      return Pointer->getType()->getPointerAddressSpace() == 0 && !I.hasMetadata(RangedMetadata) && !isScratch(Pointer) &&
             !isIgnored(Pointer);
    };
    DenseMap<Instruction *, Value *> Kept;
    for (auto &[S, By] : coveredStores(Clone, C, E, Wanted)) {
      Value *&Address = Kept[By.First];
      if (!Address && !C.Sei) {
        IRBuilder<> B(By.First);
        auto *Bulk = dyn_cast<MemIntrinsic>(By.First);
        Value *To = Bulk ? Bulk->getDest() : cast<StoreInst>(By.First)->getPointerOperand();
        Address = B.CreateCall(Keep, {B.CreatePtrToInt(To, B.getInt64Ty())});
      }
      CoveredBy[S] = {Address, By.Distance};
    }
  }

  // The store takes a register of its own, from which its place lies as far as from the address that is in the log.
  void covered(StoreInst &S, const Covered &By) {
    ++N.Logged;
    note(S, "store, logged by what was written to its bytes before");
    if (C.Sei) // one that goes elsewhere is missed in its own place (V4)
      return;
    IRBuilder<> B(&S);
    auto far = [&](Value *From, int64_t By) { return By ? B.CreateConstGEP1_64(B.getInt8Ty(), From, uint64_t(By)) : From; };
    Value *Own = B.CreateCall(Sum, {B.CreatePtrToInt(far(S.getPointerOperand(), -By.Distance), B.getInt64Ty())});
    S.setOperand(StoreInst::getPointerOperandIndex(), far(B.CreateIntToPtr(Own, B.getPtrTy()), By.Distance));
    Instruction *Behind = S.getNextNode();
    B.SetInsertPoint(Behind);
    B.SetCurrentDebugLocation(S.getDebugLoc());
    uint64_t Bytes = std::min<uint64_t>(8, Layout.getTypeStoreSize(S.getValueOperand()->getType()).getFixedValue());
    rarely(B.CreateICmpNE(B.CreateCall(Reread, {Own}), By.Address), Behind, S, Astray, [&](IRBuilder<> &B) {
      return Arguments{B.CreateAdd(By.Address, B.getInt64(uint64_t(By.Distance))), B.getInt64((1ULL << Bytes) - 1)};
    });
  }

  void store(StoreInst &S) {
    if (S.isAtomic())
      return; // treatCalls has seen it
    if (auto By = CoveredBy.find(&S); By != CoveredBy.end()) {
      covered(S, By->second);
      return;
    }
    if (S.hasMetadata(SharedMetadata)) {
      ++N.Logged;
      note(S, "store, logged with its neighbours");
      return;
    }
    if (S.hasMetadata(RangedMetadata)) {
      ++N.Loops;
      note(S, "store in a loop, logged as a part of a range");
      return;
    }
    Value *Home = Homes.lookup(&S), *Pointer = Home ? Home : S.getPointerOperand();
    if (S.getPointerAddressSpace() != 0) {
      refuse(S, R, Id, "a store relative to a segment register");
      return;
    }
    if (exempt(S, Pointer))
      return;
    TypeSize Size = Layout.getTypeStoreSize(S.getValueOperand()->getType());
    if (Size.isScalable()) {
      refuse(S, R, Id, "a store of a size that the compiler does not know");
      return;
    }
    ++N.Logged;
    note(S, "store, logged");
    uint64_t Bytes = Size.getFixedValue();
    bool OneWord = (Bytes == 1 || Bytes == 2 || Bytes == 4 || Bytes == 8) && S.getAlign().value() >= Bytes;
    // The vectoriser's stores: as many words, each looked up for itself.
    bool Words = (Bytes == 16 || Bytes == 32) && S.getAlign().value() >= 8;
    Value *Own = C.Recover && !Home && (OneWord || Words) ? ownAddress(S, StoreInst::getPointerOperandIndex()) : nullptr;
    if (OneWord)
      word(S, Pointer, Bytes, Own);
    else if (Words)
      for (uint64_t At = 0; At != Bytes; At += 8) {
        IRBuilder<> B(&S);
        Value *Part = B.CreateConstInBoundsGEP1_64(Type::getInt8Ty(Ctx), Pointer, At);
        word(S, Part, 8, Own ? B.CreateAdd(Own, B.getInt64(At)) : nullptr);
      }
    else
      around(S, Pointer, ConstantInt::get(Type::getInt64Ty(Ctx), Bytes), Home ? NoOperand : StoreInst::getPointerOperandIndex());
    trace(*S.getNextNonDebugInstruction(), Pointer, Bytes, S);
  }

  void trace(Instruction &Before, Value *Pointer, uint64_t Bytes, const Instruction &At) {
    if (!C.Trace)
      return;
    IRBuilder<> B(&Before);
    B.CreateCall(Trace, {Pointer, B.getInt64(Bytes), text(M, whereIs(At))});
  }

  static constexpr unsigned NoOperand = ~0U;

  // With --recover a store takes its address from a register of its own, which is compared with what was logged. What differs before
  // the store is repaired; behind it nobody knows what lay where it went.
  Value *ownAddress(Instruction &I, unsigned Operand) {
    IRBuilder<> B(&I);
    Value *Own = B.CreateCall(Sum, {B.CreatePtrToInt(I.getOperand(Operand), B.getInt64Ty())});
    I.setOperand(Operand, B.CreateIntToPtr(Own, B.getPtrTy()));
    return Own;
  }

  void around(Instruction &I, Value *Pointer, Value *Bytes, unsigned Operand = NoOperand) {
    IRBuilder<> B(&I);
    B.CreateCall(Log, {Pointer, Bytes});
    if (C.Recover && Operand != NoOperand) {
      ownAddress(I, Operand);
      Pointer = I.getOperand(Operand);
      B.CreateCall(Ready, {Pointer, Bytes});
    }
    B.SetInsertPoint(I.getNextNode());
    B.SetCurrentDebugLocation(I.getDebugLoc());
    B.CreateCall(Logged, {Pointer, Bytes});
  }

  Value *field(IRBuilder<> &B, uint64_t Offset) {
    Value *Base = B.CreateThreadLocalAddress(Tls);
    return B.CreateAlignedLoad(B.getInt64Ty(), B.CreateConstInBoundsGEP1_64(B.getInt8Ty(), Base, Offset), Align(8),
                               /*isVolatile=*/C.Recover);
  }

  // A fault in it must not make of another tag the one that is looked for.
  Value *delta(IRBuilder<> &B) {
    Value *Delta = field(B, SF_TLS_DELTA);
    return C.Recover ? B.CreateAnd(Delta, B.getInt64(1ULL << SF_EPOCH_SHIFT)) : Delta;
  }

  // Where the table should have a word, and how.
  struct Place {
    Value *Word, *Need, *Care, *Expected, *Index, *SlotWord, *Slot;
    uint64_t Bytes;
  };

  // The run's key is there twice; who looks a second time takes the other.
  Place placeOf(IRBuilder<> &B, Value *Address, uint64_t Bytes, bool Other = false) {
    Place P = {Address, B.getInt64(uint64_t(SF_TAG_BYTES)), B.getInt64(~0ULL), nullptr, nullptr, nullptr, nullptr, Bytes};
    // The alignment is the compiler's belief, and C programs that break it work on this processor. An address that is not
    // a multiple of the store's size keeps its low bits, which no tag has: such a store always takes the long way.
    if (Bytes != 8) {
      P.Word = B.CreateAnd(Address, B.getInt64(~(8 - Bytes)));
      P.Need = B.CreateShl(B.getInt64((1ULL << Bytes) - 1), B.CreateAnd(Address, B.getInt64(7)));
      P.Care = B.CreateOr(P.Need, B.getInt64(~uint64_t(SF_TAG_BYTES)));
    }
    Value *High = B.CreateShl(P.Word, SF_WORD_SHIFT);
    P.Expected = (Bytes == 8) != Other ? B.CreateOr(High, field(B, SF_TLS_KEY_WHOLE))
                                       : B.CreateOr(B.CreateOr(High, field(B, SF_TLS_EPOCH_KEY)), B.getInt64(uint64_t(SF_TAG_BYTES)));
    P.Index = B.CreateAnd(P.Word, field(B, SF_TLS_INDEX_MASK));
    // Added up once: the slot's address is wanted in a register, not in the addressing mode of each look at it.
    P.SlotWord = B.CreateCall(Sum, {B.CreateAdd(P.Index, field(B, SF_TLS_TABLE))});
    P.Slot = B.CreateIntToPtr(P.SlotWord, B.getPtrTy());
    return P;
  }

  static Value *look(IRBuilder<> &B, const Place &P) { return B.CreateAlignedLoad(B.getInt64Ty(), P.Slot, Align(8), /*isVolatile=*/true); }

  static Value *missing(IRBuilder<> &B, const Place &P) {
    if (P.Bytes == 8)
      return B.CreateICmpNE(look(B, P), P.Expected);
    return B.CreateICmpNE(B.CreateAnd(B.CreateXor(look(B, P), P.Expected), P.Care), B.getInt64(0));
  }

  // If a condition holds, which is rare: a call.
  using Arguments = SmallVector<Value *, 2>;
  void rarely(Value *Condition, Instruction *Before, const StoreInst &S, InlineAsm *Callee, function_ref<Arguments(IRBuilder<> &)> Make) {
    MDNode *Rare = MDBuilder(Ctx).createUnlikelyBranchWeights();
    IRBuilder<> B(SplitBlockAndInsertIfThen(Condition, Before, false, Rare));
    B.SetCurrentDebugLocation(S.getDebugLoc());
    B.CreateCall(Callee, Make(B));
  }

  // Stores of one block, with nothing between them that could end the event or let another thread write, to places at fixed distances.
  struct Near {
    StoreInst *Store;
    int64_t At;
    uint64_t Bytes;
    bool Taken;
  };

  void neighbours(BasicBlock &Block) {
    MapVector<Value *, SmallVector<Near, 4>> Seen;
    SmallVector<Instruction *, 32> All;
    for (Instruction &I : Block)
      All.push_back(&I);
    for (Instruction *I : All) {
      auto *S = dyn_cast<StoreInst>(I);
      if (endsNeighbours(*I)) {
        share(Seen);
        Seen.clear();
        continue;
      }
      if (!S || S->getPointerAddressSpace() != 0 || S->hasMetadata(RangedMetadata) || CoveredBy.count(S) ||
          isScratch(S->getPointerOperand()) || isIgnored(S->getPointerOperand()))
        continue;
      TypeSize Size = Layout.getTypeStoreSize(S->getValueOperand()->getType());
      if (Size.isScalable() || Size.getFixedValue() > 8)
        continue;
      APInt Offset(Layout.getIndexTypeSizeInBits(S->getPointerOperandType()), 0);
      Value *Base = S->getPointerOperand()->stripAndAccumulateConstantOffsets(Layout, Offset, true);
      Seen[Base].push_back({S, Offset.getSExtValue(), Size.getFixedValue(), false});
    }
    share(Seen);
  }

  void share(MapVector<Value *, SmallVector<Near, 4>> &Seen) {
    for (auto &[Base, Stores] : Seen) {
      if (Stores.size() < 2)
        continue;
      const Near *Known = &Stores.front();
      for (const Near &N : Stores)
        if (N.Store->getAlign() > Known->Store->getAlign())
          Known = &N;
      // What the compiler believes of the places. Where it is wrong, the store that stands for all of them is one that is not aligned.
      int64_t Origin = Known->At;
      for (int64_t Size = std::min<int64_t>(8, int64_t(Known->Store->getAlign().value())); Size >= 2; Size /= 2)
        for (size_t First = 0; First != Stores.size(); ++First) {
          int64_t Low = Stores[First].At - ((Stores[First].At - Origin) & (Size - 1));
          SmallVector<Near *, 8> Same;
          uint64_t Covered = 0;
          for (Near &N : Stores)
            if (!N.Taken && N.At >= Low && N.At + int64_t(N.Bytes) <= Low + Size) {
              Same.push_back(&N);
              Covered |= ((1ULL << N.Bytes) - 1) << (N.At - Low);
            }
          if (Same.size() < 2 || Covered != (1ULL << Size) - 1)
            continue;
          together(Same, Low, uint64_t(Size));
        }
    }
  }

  void together(ArrayRef<Near *> Stores, int64_t Low, uint64_t Bytes) {
    StoreInst *First = Stores.front()->Store, *Last = Stores.back()->Store;
    IRBuilder<> B(First);
    B.SetCurrentDebugLocation(First->getDebugLoc());
    Value *Lowest = First->getPointerOperand();
    if (int64_t At = Stores.front()->At - Low)
      Lowest = B.CreateConstGEP1_64(B.getInt8Ty(), Lowest, uint64_t(-At));
    if (C.Sei) { // one that goes elsewhere is missed in its own place (V4)
      for (Near *N : Stores) {
        N->Store->setMetadata(SharedMetadata, MDNode::get(Ctx, {}));
        N->Taken = true;
      }
      word(*First, *Last, Lowest, Bytes);
      return;
    }
    // The register that all of them take, compared with the address that was looked up when they have happened. That is one that the
    // compiler does not know: it would make a constant anew for the long way, and look up another word than is written.
    Value *Address = B.CreateCall(Sum, {B.CreatePtrToInt(Lowest, B.getInt64Ty())});
    Value *Own = B.CreateIntToPtr(B.CreateCall(Sum, {Address}), B.getPtrTy());
    MDNode *Done = MDNode::get(Ctx, {});
    for (Near *N : Stores) {
      IRBuilder<> At(N->Store);
      int64_t Far = N->At - Low;
      N->Store->setOperand(StoreInst::getPointerOperandIndex(), Far ? At.CreateConstGEP1_64(At.getInt8Ty(), Own, uint64_t(Far)) : Own);
      N->Store->setMetadata(SharedMetadata, Done);
      N->Taken = true;
    }
    if (C.Recover) { // which looks at that register before the first as well
      word(*First, *Last, B.CreateIntToPtr(Address, B.getPtrTy()), Bytes, B.CreatePtrToInt(Own, B.getInt64Ty()));
      return;
    }
    Instruction *Behind = Last->getNextNode();
    IRBuilder<> A(Behind);
    A.SetCurrentDebugLocation(Last->getDebugLoc());
    Value *Was = A.CreateCall(Reread, {A.CreatePtrToInt(Own, A.getInt64Ty())});
    rarely(A.CreateICmpNE(Was, Address), Behind, *Last, Astray,
           [&](IRBuilder<> &B) { return Arguments{Address, B.getInt64((1ULL << Bytes) - 1)}; });
    word(*First, *Last, B.CreateIntToPtr(Address, B.getPtrTy()), Bytes);
  }

  void word(StoreInst &S, Value *Pointer, uint64_t Bytes, Value *Own = nullptr) { word(S, S, Pointer, Bytes, Own); }

  // Own: with --recover, the address that the store takes. Last: of several, in the same block.
  void word(StoreInst &S, StoreInst &Last, Value *Pointer, uint64_t Bytes, Value *Own = nullptr) {
    IRBuilder<> B(&S);
    Value *Address = B.CreatePtrToInt(Pointer, B.getInt64Ty());
    Place P = placeOf(B, Address, Bytes);
    // First writes are as frequent as later ones; that a slot is taken by another word is rare.
    MDNode *Rare = MDBuilder(Ctx).createUnlikelyBranchWeights();
    Instruction *Then;
    if (Bytes == 8) {
      // A whole word needs no mask: there is nothing beside it that the second run might add. So the first run's tag
      // becomes the second run's (R6) by a bit, set in memory and not in what was looked at: had the look gone wrong,
      // the second one finds out.
      Instruction *Hit;
      Value *Looked = B.CreateOr(look(B, P), delta(B));
      SplitBlockAndInsertIfThenElse(B.CreateICmpNE(Looked, P.Expected), &S, &Then, &Hit, Rare);
      B.SetInsertPoint(Hit);
      B.SetCurrentDebugLocation(S.getDebugLoc());
      Value *Odd = delta(B);
      B.CreateAlignedStore(B.CreateOr(look(B, P), Odd), P.Slot, Align(8), /*isVolatile=*/true);
      B.SetInsertPoint(Then);
      B.SetCurrentDebugLocation(S.getDebugLoc());
      B.CreateCall(Slow8, {P.Word, P.Expected, P.SlotWord});
    } else {
      Then = SplitBlockAndInsertIfThen(missing(B, P), &S, false, Rare);
      B.SetInsertPoint(Then);
      B.SetCurrentDebugLocation(S.getDebugLoc());
      // Here the bytes of the first run go to the slot's mask, and the tag changes as that of a whole word does: who comes here in the
      // first run, or to another tag, leaves what the second look does not take.
      Value *Tag = B.CreateXor(P.Expected, B.CreateXor(P.Need, B.getInt64(uint64_t(SF_TAG_BYTES))));
      Instruction *Same, *Other;
      SplitBlockAndInsertIfThenElse(B.CreateICmpEQ(look(B, P), B.CreateSub(Tag, delta(B))), Then, &Same, &Other);
      B.SetInsertPoint(Same);
      Value *Masks = B.CreateAdd(B.CreateAdd(field(B, SF_TLS_TABLE), field(B, SF_TLS_INDEX_MASK)), B.getInt64(8));
      Value *Mask = B.CreateIntToPtr(B.CreateAdd(Masks, B.CreateLShr(P.Index, 3)), B.getPtrTy());
      B.CreateStore(B.CreateTrunc(P.Need, B.getInt8Ty()), Mask);
      B.CreateAlignedStore(B.CreateOr(look(B, P), delta(B)), P.Slot, Align(8), /*isVolatile=*/true);
      B.SetInsertPoint(Other);
      B.SetCurrentDebugLocation(S.getDebugLoc());
      Value *Wide = B.CreateShl(B.getInt64((1ULL << 8 * Bytes) - 1), B.CreateShl(B.CreateAnd(Address, B.getInt64(7)), 3));
      B.CreateCall(SlowPart, {P.Word, Tag, P.SlotWord, Wide});
    }
    Instruction *Next = Last.getNextNode();
    if (Own) {
      B.SetInsertPoint(&S);
      B.SetCurrentDebugLocation(S.getDebugLoc());
      Place Again = placeOf(B, Own, Bytes, true);
      rarely(missing(B, Again), &S, S, Before, [&](IRBuilder<> &) { return Arguments{Own, Again.Need}; });
      B.SetInsertPoint(Next);
      B.SetCurrentDebugLocation(S.getDebugLoc());
      auto needOf = [&](IRBuilder<> &B, Value *At) -> Value * {
        return Bytes == 8 ? P.Need : B.CreateShl(B.getInt64((1ULL << Bytes) - 1), B.CreateAnd(At, B.getInt64(7)));
      };
      Value *Was = B.CreateCall(&S == &Last ? Sum : Reread, {Own}); // the store's register, whatever has been compared before
      Value *Other = B.CreateXor(B.CreateAnd(Was, B.getInt64(~(8 - Bytes))), P.Word);
      if (Bytes != 8)
        Other = B.CreateOr(Other, B.CreateXor(P.Need, needOf(B, Was)));
      rarely(B.CreateICmpNE(Other, B.getInt64(0)), Next, S, Astray, [&](IRBuilder<> &B) { return Arguments{Own, needOf(B, Own)}; });
    }
    B.SetInsertPoint(Next);
    B.SetCurrentDebugLocation(Last.getDebugLoc());
    rarely(missing(B, P), Next, Last, Check, [&](IRBuilder<> &) { return Arguments{P.Word, P.Need}; });
  }

  void bulk(MemIntrinsic &I) {
    Value *Home = Homes.lookup(&I), *To = Home ? Home : I.getDest();
    auto *Move = dyn_cast<MemTransferInst>(&I);
    if (I.getDestAddressSpace() != 0 || (Move && Move->getSourceAddressSpace() != 0)) {
      refuse(I, R, Id, "a copy relative to a segment register");
      return;
    }
    if (exempt(I, To))
      return;
    ++N.Ranges;
    note(I, "copy or fill, logged as a range");
    Value *Length = I.getLength();
    IRBuilder<> B(&I);
    if (auto *Constant = dyn_cast<ConstantInt>(Length); Constant && Constant->getZExtValue() <= InlineBytes) {
      if (Constant->isZero())
        return;
      Length = B.getInt64(Constant->getZExtValue());
      around(I, To, Length, Home ? NoOperand : 0);
      trace(*I.getNextNonDebugInstruction(), To, Constant->getZExtValue(), I);
      return;
    }
    Length = B.CreateZExtOrTrunc(Length, B.getInt64Ty());
    if (Home) {
      // Where it goes to and comes from is the run's own; only the log speaks of the object.
      around(I, To, Length);
      return;
    }
    Type *Pointer = B.getPtrTy();
    Value *From;
    const char *Name;
    if (auto *Set = dyn_cast<MemSetInst>(&I)) {
      From = B.CreateZExt(Set->getValue(), B.getInt32Ty());
      Name = "__sf_memset";
    } else {
      From = cast<MemTransferInst>(I).getSource();
      Name = isa<MemMoveInst>(I) ? "__sf_memmove" : "__sf_memcpy";
    }
    B.CreateCall(M.getOrInsertFunction(Name, Pointer, Pointer, From->getType(), B.getInt64Ty()), {To, From, Length});
    I.eraseFromParent();
  }

  // What another thread or the hardware may change between the runs is read once.
  void load(LoadInst &L) {
    if ((!L.isVolatile() && !L.isAtomic()) || L.hasMetadata(LookedMetadata))
      return;
    if (L.getPointerAddressSpace() != 0) {
      refuse(L, R, Id, "a volatile load relative to a segment register");
      return;
    }
    if (isScratch(L.getPointerOperand()))
      return;
    Type *T = L.getType();
    TypeSize Size = Layout.getTypeStoreSize(T);
    bool Fits = !Size.isScalable() && Size.getFixedValue() <= 8 && isPowerOf2_64(Size.getFixedValue()) &&
                (T->isIntegerTy() || T->isPointerTy() || T->isFloatTy() || T->isDoubleTy());
    if (!Fits) {
      refuse(L, R, Id, "a volatile or atomic load of more than 64 bits");
      return;
    }
    bool Mixed = L.hasMetadata(MixedMetadata);
    ++N.Once;
    note(L, Mixed ? "plain load of what an atomic operation changes, replayed in the second run"
                  : "volatile or racy load, replayed in the second run");
    IRBuilder<> B(&L);
    auto Once = M.getOrInsertFunction(Mixed ? "__sf_load_mixed" : "__sf_load_once", B.getInt64Ty(), B.getPtrTy(), B.getInt64Ty());
    Value *V = B.CreateCall(Once, {L.getPointerOperand(), B.getInt64(Size.getFixedValue())});
    if (T->isPointerTy()) {
      V = B.CreateIntToPtr(V, T);
    } else {
      V = B.CreateTrunc(V, B.getIntNTy(Layout.getTypeSizeInBits(T).getFixedValue()));
      V = B.CreateBitCast(V, T);
    }
    L.replaceAllUsesWith(V);
    L.eraseFromParent();
  }
};

} // namespace

void treatMemory(Module &M, const Config &C, const Clones &Made, Report &R, const DenseMap<Instruction *, WeakTrackingVH> &Homes) {
  Memory Treatment(M, C, Made, R, Homes);
  for (auto &[Original, Clone] : Made)
    Treatment.treat(*Clone);
}

} // namespace steadfast
