// Stores of loops that go from one place to the next.
//
// Where the address of a store in a loop grows by the store's own size with each round (scalar evolution), it is not looked up in the
// table of words. The loop writes one range, which the runtime opens at its first store, in pieces (runtime/ranges.c: __sf_range_next), and
// closes where the loop is left:
//
//     at the loop's beginning     next = limit = id = 0
//     before the store            if address != next or address + size > limit:  limit, id = __sf_range_next(address, next, id, size)
//     behind it                   next = address + size
//     at each of its ends         if id: __sf_range_end(next, id)
//
// So nobody has to know before the loop how far it goes, what it leaves out or where it is left, and no byte is in the log that was not
// written: what lies behind it may be another thread's. Which stores are treated so is a guess about what pays; that they go from one
// place to the next is looked at by each of them. Several stores of one block that follow each other in memory are one; several blocks of a
// round (a loop that was unrolled, with an end in each) look each for itself.
//
// Invariants
//  1. A store happens only if its bytes lie in an open piece and begin where the last one's have ended; the address that was compared is
//     in the register that the store takes.
//  2. `next` is made from that register behind the store. One that has changed on the way ends the piece elsewhere than in the other run.
//  3. Nothing in the loop lets another thread's writes come before its own: no call, no volatile, no atomic operation. What the
//     runtime has read of a piece when it was opened is therefore what was there before the store.
//
// Not covered, and logged word by word as ever: loops with calls, stores that not every round makes, gaps, descending addresses; and all
// of them with --recover, --state, --validate=async and --find-nondeterminism.

#include "harden.h"

#include "llvm/Analysis/AssumptionCache.h"
#include "llvm/Analysis/LoopInfo.h"
#include "llvm/Analysis/ScalarEvolution.h"
#include "llvm/Analysis/ScalarEvolutionExpressions.h"
#include "llvm/Analysis/TargetLibraryInfo.h"
#include "llvm/IR/Dominators.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InlineAsm.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/MDBuilder.h"
#include "llvm/TargetParser/Triple.h"
#include "llvm/Transforms/Utils/BasicBlockUtils.h"
#include "llvm/Transforms/Utils/LoopSimplify.h"
#include "llvm/Transforms/Utils/PromoteMemToReg.h"

#include <optional>

using namespace llvm;

namespace steadfast {

namespace {

// With fewer rounds, words cost less than to open and to close a piece.
constexpr unsigned RoundsWorthIt = 4;
// What one round may fill, and how many such ranges one loop has registers for.
constexpr int64_t BytesMost = 256;
constexpr unsigned RangesMost = 3;

struct Part {
  StoreInst *Store;
  int64_t At; // from the lowest address of the round
  int64_t Bytes;
};

// Stores of one block without gap and overlap, in the order of the program.
struct Site {
  SmallVector<Part, 4> Parts;
  int64_t Bytes;
};

// Stores of one round that fill what its address grows by.
struct Fill {
  SmallVector<Site, 4> Sites;
  BasicBlock *Before;
  SmallVector<BasicBlock *, 4> Ends;
};

// Whether nothing in this loop lets the bytes that it writes be another thread's when it begins.
bool isClosed(const Loop &L) {
  for (const BasicBlock *Block : L.blocks()) {
    if (isa<IndirectBrInst>(Block->getTerminator()) || isa<CallBrInst>(Block->getTerminator()))
      return false;
    for (const Instruction &I : *Block) {
      if (I.isVolatile() || I.isAtomic() || isa<FenceInst>(I))
        return false;
      auto *Call = dyn_cast<CallBase>(&I);
      if (!Call || isa<DbgInfoIntrinsic>(Call))
        continue;
      // Of the program's, and nothing to memory; treatCalls has refused what else there is.
      if (auto *Asm = dyn_cast<InlineAsm>(Call->getCalledOperand());
          Asm && Call->arg_empty() && !StringRef(Asm->getConstraintString()).contains("memory"))
        continue;
      if (!isa<IntrinsicInst>(Call) || !(Call->doesNotAccessMemory() || isa<AssumeInst>(Call)))
        return false;
    }
  }
  return true;
}

// Places that lie at fixed distances from each other, in the order of the program: filled without gap and overlap, the later blocks behind the
// earlier ones?
std::optional<SmallVector<Site, 4>> sitesOf(ArrayRef<Part> Parts, int64_t Step) {
  SmallVector<Site, 4> Sites;
  int64_t First = 0, End = 0;
  for (size_t I = 0, J; I != Parts.size(); I = J) {
    for (J = I; J != Parts.size() && Parts[J].Store->getParent() == Parts[I].Store->getParent(); ++J)
      ;
    SmallVector<Part, 4> Sorted(Parts.begin() + I, Parts.begin() + J);
    llvm::sort(Sorted, [](const Part &A, const Part &B) { return A.At < B.At; });
    int64_t Lowest = Sorted.front().At;
    if (I == 0)
      First = End = Lowest;
    for (const Part &P : Sorted) {
      if (P.At != End)
        return std::nullopt;
      End += P.Bytes;
    }
    Site One = {SmallVector<Part, 4>(Parts.begin() + I, Parts.begin() + J), End - Lowest};
    for (Part &P : One.Parts)
      P.At -= Lowest;
    Sites.push_back(std::move(One));
  }
  if (End - First != Step)
    return std::nullopt;
  return Sites;
}

class Finder {
public:
  Finder(Function &F, function_ref<bool(StoreInst &)> Wanted)
      : F(F), Wanted(Wanted), Known(Triple(F.getParent()->getTargetTriple())), Library(Known, &F), Assumptions(F), Tree(F), Loops(Tree),
        Evolution(F, Library, Assumptions, Tree, Loops) {}

  SmallVector<Fill, 4> find() {
    SmallVector<Fill, 4> Found;
    SmallVector<Loop *, 8> All(Loops.getLoopsInPreorder());
    for (Loop *L : All)
      if (L->isInnermost() && isClosed(*L))
        inLoop(*L, Found);
    return Found;
  }

private:
  Function &F;
  function_ref<bool(StoreInst &)> Wanted;
  TargetLibraryInfoImpl Known;
  TargetLibraryInfo Library;
  AssumptionCache Assumptions;
  DominatorTree Tree;
  LoopInfo Loops;
  ScalarEvolution Evolution;

  void inLoop(Loop &L, SmallVectorImpl<Fill> &Found) {
    BasicBlock *Latch = L.getLoopLatch();
    unsigned Rounds = Evolution.getSmallConstantMaxTripCount(&L);
    if (!Latch || (Rounds && Rounds < RoundsWorthIt))
      return;
    struct Row {
      SmallVector<Part, 4> Parts;
      const SCEV *First;
      int64_t Step;
    };
    SmallVector<Row, 4> Rows;
    // Those of each round, in their order.
    SmallVector<BasicBlock *, 8> Always;
    for (BasicBlock *Block = Latch; Block; Block = Block == L.getHeader() ? nullptr : Tree.getNode(Block)->getIDom()->getBlock())
      Always.push_back(Block);
    for (BasicBlock *Block : reverse(Always)) {
      for (Instruction &I : *Block) {
        auto *S = dyn_cast<StoreInst>(&I);
        if (!S || S->getPointerAddressSpace() != 0 || !Wanted(*S))
          continue;
        const DataLayout &Layout = F.getParent()->getDataLayout();
        TypeSize Bytes = Layout.getTypeStoreSize(S->getValueOperand()->getType());
        auto *Address = dyn_cast<SCEVAddRecExpr>(Evolution.getSCEV(S->getPointerOperand()));
        if (!Address || Address->getLoop() != &L || !Address->isAffine() || Bytes.isScalable())
          continue;
        auto *Step = dyn_cast<SCEVConstant>(Address->getStepRecurrence(Evolution));
        if (!Step || !Step->getAPInt().isSignedIntN(32))
          continue;
        int64_t By = Step->getAPInt().getSExtValue();
        if (By <= 0 || By > BytesMost)
          continue;
        Part P = {S, 0, int64_t(Bytes.getFixedValue())};
        bool Placed = false;
        for (size_t R = 0; R != Rows.size() && !Placed; ++R)
          if (auto *Far = Rows[R].Step == By ? dyn_cast<SCEVConstant>(Evolution.getMinusSCEV(Address, Rows[R].First)) : nullptr;
              Far && Far->getAPInt().isSignedIntN(32)) {
            P.At = Far->getAPInt().getSExtValue();
            Rows[R].Parts.push_back(P);
            Placed = true;
          }
        if (!Placed)
          Rows.push_back({{P}, Address, By});
      }
    }
    SmallVector<Fill, 4> Here;
    for (Row &R : Rows)
      if (auto Sites = sitesOf(R.Parts, R.Step); Sites && Here.size() < RangesMost)
        Here.push_back({*Sites, nullptr, {}});
    if (Here.empty())
      return;
    // A place before it, and ends that are its own.
    simplifyLoop(&L, &Tree, &Loops, &Evolution, &Assumptions, nullptr, false);
    if (!L.isLoopSimplifyForm())
      return;
    SmallVector<BasicBlock *, 4> Ends;
    L.getUniqueExitBlocks(Ends);
    for (BasicBlock *End : Ends)
      if (End->isEHPad())
        return;
    for (Fill &One : Here) {
      One.Before = L.getLoopPreheader();
      One.Ends.assign(Ends.begin(), Ends.end());
      Found.push_back(std::move(One));
    }
  }
};

class Writer {
public:
  explicit Writer(Function &F) : F(F), Ctx(F.getContext()) {
    Module &M = *F.getParent();
    auto *I64 = Type::getInt64Ty(Ctx);
    Open = M.getOrInsertFunction("__sf_range_next", StructType::get(I64, I64), I64, I64, I64, I64);
    Close = M.getOrInsertFunction("__sf_range_end", Type::getVoidTy(Ctx), I64, I64);
    auto *Pointer = PointerType::getUnqual(Ctx);
    Keep = InlineAsm::get(FunctionType::get(Pointer, {Pointer}, false), "", "=r,0", false);
    // Where the store has been: not looked at before it.
    Again = InlineAsm::get(FunctionType::get(I64, {I64}, false), "", "=r,0,~{memory}", true);
  }

  void write(const Fill &Here) {
    BasicBlock &Entry = F.getEntryBlock();
    IRBuilder<> B(&Entry, Entry.begin());
    auto *I64 = B.getInt64Ty();
    AllocaInst *Next = B.CreateAlloca(I64), *Limit = B.CreateAlloca(I64), *Id = B.CreateAlloca(I64);
    Slots.append({Next, Limit, Id});
    B.SetInsertPoint(Here.Before->getTerminator());
    for (AllocaInst *Slot : {Next, Limit, Id})
      B.CreateStore(B.getInt64(0), Slot);

    for (const Site &One : Here.Sites)
      at(One, Next, Limit, Id);

    for (BasicBlock *End : Here.Ends) {
      Instruction *At = &*End->getFirstInsertionPt();
      IRBuilder<> E(At);
      Value *Which = E.CreateLoad(I64, Id), *Reached = E.CreateLoad(I64, Next);
      IRBuilder<> Closes(SplitBlockAndInsertIfThen(E.CreateICmpNE(Which, E.getInt64(0)), At, false));
      Closes.SetCurrentDebugLocation(Here.Sites.back().Parts.back().Store->getDebugLoc());
      Closes.CreateCall(Close, {Reached, Which});
    }
  }

  void at(const Site &One, AllocaInst *Next, AllocaInst *Limit, AllocaInst *Id) {
    StoreInst *First = One.Parts.front().Store, *Last = One.Parts.back().Store;
    IRBuilder<> B(First);
    auto *I64 = B.getInt64Ty();
    B.SetCurrentDebugLocation(First->getDebugLoc());
    Value *Lowest = First->getPointerOperand();
    if (int64_t At = One.Parts.front().At)
      Lowest = B.CreateConstGEP1_64(B.getInt8Ty(), Lowest, uint64_t(-At));
    Value *Own = B.CreateCall(Keep, {Lowest});
    Value *Address = B.CreatePtrToInt(Own, I64);
    Value *Bytes = B.getInt64(uint64_t(One.Bytes));
    Value *Elsewhere = B.CreateICmpNE(Address, B.CreateLoad(I64, Next));
    Value *Beyond = B.CreateICmpUGT(B.CreateAdd(Address, Bytes), B.CreateLoad(I64, Limit));
    MDNode *Rare = MDBuilder(Ctx).createUnlikelyBranchWeights();
    IRBuilder<> Slow(SplitBlockAndInsertIfThen(B.CreateOr(Elsewhere, Beyond), First, false, Rare));
    Slow.SetCurrentDebugLocation(First->getDebugLoc());
    Value *Piece = Slow.CreateCall(Open, {Address, Slow.CreateLoad(I64, Next), Slow.CreateLoad(I64, Id), Bytes});
    Slow.CreateStore(Slow.CreateExtractValue(Piece, 0), Limit);
    Slow.CreateStore(Slow.CreateExtractValue(Piece, 1), Id);

    MDNode *Done = MDNode::get(Ctx, {});
    for (const Part &P : One.Parts) {
      IRBuilder<> At(P.Store);
      P.Store->setOperand(StoreInst::getPointerOperandIndex(), P.At ? At.CreateConstGEP1_64(At.getInt8Ty(), Own, uint64_t(P.At)) : Own);
      P.Store->setMetadata(RangedMetadata, Done);
    }
    B.SetInsertPoint(Last->getNextNode());
    B.SetCurrentDebugLocation(Last->getDebugLoc());
    B.CreateStore(B.CreateAdd(B.CreateCall(Again, {Address}), Bytes), Next);
  }

  void finish() {
    DominatorTree Tree(F);
    PromoteMemToReg(Slots, Tree);
  }

private:
  Function &F;
  LLVMContext &Ctx;
  FunctionCallee Open, Close;
  InlineAsm *Keep, *Again;
  SmallVector<AllocaInst *, 12> Slots;
};

} // namespace

void growRanges(Function &Clone, const Config &C, function_ref<bool(StoreInst &)> Wanted) {
  if (C.Recover || C.Dup || C.Crc || C.Async || C.Trace)
    return;
  SmallVector<Fill, 4> Found = Finder(Clone, Wanted).find();
  if (Found.empty())
    return;
  Writer W(Clone);
  for (const Fill &Here : Found)
    W.write(Here);
  W.finish();
}

} // namespace steadfast
