// Between handlers (--between=duplicate): what code outside handlers computes is computed twice.
//
//     arguments, results of calls   copied once, where they come in
//     loads                         done twice, each through its own copy of the address
//     arithmetic, addresses, casts, comparisons, selections, joins   done twice, each from its own operands
//     stores, calls, branches, returns   done once, after their operands have been compared
//
// This is the duplication of EDDI and SWIFT (Oh and others 2002; Reis and others 2005), for the code that the two runs of
// handlers do not cover: the event loop, and what carries pointers from one handler to the next.
//
// Two loads of one address may differ because another thread stores there in between. So a difference is read again
// (__sf_between_again) until both reads agree, and only addresses that differ are a fault.
//
// Invariants
//  1. No copy is made from its original: the two are told apart by an empty asm that the optimiser cannot see through, where
//     they begin, at each join, and at each comparison, so that no later pass may merge them.
//  2. Every original instruction stays, and no store, call or volatile load is done twice.
//  3. Code of handlers is left alone: it runs twice as a whole.
//
// Not covered: values that are neither integers of 8 to 64 bits nor pointers nor conditions; volatile and atomic loads, whose
// value is copied; the address within a store, or a jump, once operands have been compared; libraries.

#include "harden.h"

#include "llvm/ADT/PostOrderIterator.h"
#include "llvm/IR/InlineAsm.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/MDBuilder.h"
#include "llvm/Transforms/Utils/BasicBlockUtils.h"

using namespace llvm;

namespace steadfast {

namespace {

class Between {
public:
  explicit Between(Function &F) : F(F), M(*F.getParent()), Ctx(M.getContext()) {
    I64 = Type::getInt64Ty(Ctx);
    Pointer = PointerType::getUnqual(Ctx);
    Again = M.getOrInsertFunction("__sf_between_again", I64, Pointer, Pointer, I64, Pointer);
    Differ = M.getOrInsertFunction("__sf_between_differ", Type::getVoidTy(Ctx), Pointer, I64, I64);
  }

  unsigned run() {
    SmallVector<BasicBlock *, 32> Blocks;
    for (BasicBlock *Block : ReversePostOrderTraversal<Function *>(&F))
      Blocks.push_back(Block);
    SmallVector<Instruction *, 128> All;
    for (BasicBlock *Block : Blocks)
      for (Instruction &I : *Block)
        All.push_back(&I);
    Instruction *Entry = &*F.getEntryBlock().getFirstNonPHIOrDbgOrAlloca();
    for (Argument &A : F.args())
      if (isCopied(A.getType()) && !A.use_empty() && !A.hasSwiftErrorAttr())
        Copies[&A] = opaque(*Entry, &A);
    for (Instruction *I : All)
      copy(*I);
    for (auto [Original, Copy] : Joins)
      for (unsigned I = 0; I != Original->getNumIncomingValues(); ++I)
        Copy->addIncoming(comesIn(Original->getIncomingValue(I), *Original->getIncomingBlock(I)), Original->getIncomingBlock(I));
    for (Instruction *I : All)
      compare(*I);
    for (auto [First, Second] : Loads)
      agree(*First, *Second);
    return Compared;
  }

private:
  Function &F;
  Module &M;
  LLVMContext &Ctx;
  Type *I64, *Pointer;
  FunctionCallee Again, Differ;
  DenseMap<Value *, Value *> Copies;
  DenseMap<std::pair<Value *, BasicBlock *>, Value *> Constants;
  SmallVector<std::pair<PHINode *, PHINode *>, 16> Joins;
  SmallVector<std::pair<LoadInst *, LoadInst *>, 32> Loads;
  unsigned Compared = 0;

  static bool isCopied(Type *T) {
    if (T->isPointerTy())
      return T->getPointerAddressSpace() == 0;
    return T->isIntegerTy(8) || T->isIntegerTy(16) || T->isIntegerTy(32) || T->isIntegerTy(64);
  }
  static bool isComputed(Type *T) { return isCopied(T) || T->isIntegerTy(1); }

  Value *copyOf(Value *V) {
    auto Found = Copies.find(V);
    return Found == Copies.end() ? V : Found->second;
  }

  Value *opaque(Instruction &Before, Value *V) {
    if (V->getType()->isIntegerTy(1)) {
      IRBuilder<> B(&Before);
      Value *Byte = B.CreateZExt(V, B.getInt8Ty());
      return B.CreateTrunc(opaque(Before, Byte), B.getInt1Ty());
    }
    auto *Type = FunctionType::get(V->getType(), {V->getType()}, false);
    auto *Asm = InlineAsm::get(Type, "", "=r,0", /*hasSideEffects=*/false);
    return IRBuilder<>(&Before).CreateCall(Asm, {V});
  }

  // What a copy of a join is given there. A constant is made for it alone: joins of the same constants are one to the optimiser.
  Value *comesIn(Value *V, BasicBlock &From) {
    if (!isa<Constant>(V) || isa<UndefValue>(V))
      return copyOf(V);
    Value *&Own = Constants[{V, &From}];
    if (!Own)
      Own = opaque(*From.getTerminator(), V);
    return Own;
  }

  // Where a value that I defines may be used first; nothing if that is not one place.
  static Instruction *behind(Instruction &I) {
    if (auto *Call = dyn_cast<InvokeInst>(&I)) {
      BasicBlock *Next = Call->getNormalDest();
      return Next->getSinglePredecessor() ? &*Next->getFirstInsertionPt() : nullptr;
    }
    if (I.isTerminator())
      return nullptr;
    if (auto *Call = dyn_cast<CallInst>(&I); Call && Call->isMustTailCall())
      return nullptr;
    return isa<PHINode>(I) ? &*I.getParent()->getFirstInsertionPt() : I.getNextNode();
  }

  static bool isComputation(const Instruction &I) {
    return isa<BinaryOperator>(I) || isa<CastInst>(I) || isa<GetElementPtrInst>(I) || isa<ICmpInst>(I) || isa<SelectInst>(I);
  }

  void copy(Instruction &I) {
    if (!isComputed(I.getType()) || isa<AllocaInst>(I))
      return;
    if (auto *Join = dyn_cast<PHINode>(&I)) {
      auto *Copy = PHINode::Create(Join->getType(), Join->getNumIncomingValues(), "", Join->getIterator());
      Joins.push_back({Join, Copy});
      // Two counters that go by the same step are one counter and a distance to who makes loops cheaper (LSR).
      Copies[&I] = opaque(*I.getParent()->getFirstInsertionPt(), Copy);
      return;
    }
    if (isComputation(I)) {
      if (none_of(I.operands(), [&](Value *V) { return Copies.count(V); }))
        return;
      Instruction *Copy = I.clone();
      Copy->insertAfter(&I);
      // A variable's address is loaded into a register of its own: one that both shared would be wrong for both.
      for (Use &U : Copy->operands())
        U.set(isa<GlobalVariable>(U.get()) ? opaque(*Copy, U.get()) : copyOf(U.get()));
      Copies[&I] = Copy;
      return;
    }
    if (!isCopied(I.getType()))
      return;
    if (auto *Load = dyn_cast<LoadInst>(&I); Load && Load->isSimple() && Load->getPointerAddressSpace() == 0) {
      auto *Second = cast<LoadInst>(Load->clone());
      Second->insertAfter(Load);
      Second->setOperand(0, copyOf(Load->getPointerOperand()));
      Second->setVolatile(true); // no pass may take the first one's value for it
      Second->dropUnknownNonDebugMetadata();
      Loads.push_back({Load, Second});
      Copies[&I] = Second;
      return;
    }
    if (isa<FreezeInst>(I) || I.use_empty())
      return;
    if (Instruction *Next = behind(I))
      Copies[&I] = opaque(*Next, &I);
  }

  Value *word(IRBuilder<> &B, Value *V) {
    if (V->getType()->isPointerTy())
      return B.CreatePtrToInt(V, I64);
    return B.CreateZExt(V, I64);
  }

  void check(Instruction &At, ArrayRef<Value *> Values) {
    IRBuilder<> B(&At);
    Value *Sum = nullptr, *First = nullptr, *Second = nullptr;
    SmallPtrSet<Value *, 8> Seen;
    for (Value *V : Values) {
      auto Found = Copies.find(V);
      if (Found == Copies.end() || !Seen.insert(V).second)
        continue;
      Value *One = word(B, V), *Two = word(B, Found->second);
      Value *Difference = B.CreateXor(One, Two);
      if (!Sum) {
        Sum = Difference;
        First = One;
        Second = Two;
        continue;
      }
      // What the event shows is the first pair that differs.
      Value *Earlier = B.CreateIsNotNull(Sum);
      First = B.CreateSelect(Earlier, First, One);
      Second = B.CreateSelect(Earlier, Second, Two);
      Sum = B.CreateOr(Sum, Difference);
    }
    if (!Sum)
      return;
    ++Compared;
    // Behind the asm nobody can conclude that the two are equal from here on.
    Value *Differs = IRBuilder<>(&At).CreateIsNotNull(opaque(At, Sum));
    Instruction *Then = SplitBlockAndInsertIfThen(Differs, &At, /*Unreachable=*/true, MDBuilder(Ctx).createUnlikelyBranchWeights());
    IRBuilder<> Alarm(Then);
    Alarm.SetCurrentDebugLocation(At.getDebugLoc());
    auto *Call = Alarm.CreateCall(Differ, {text(M, whereIs(At)), First, Second});
    Call->setDoesNotReturn();
    sink(*Call, First);
    sink(*Call, Second);
  }

  // Selections that only the alarm needs are made there.
  static void sink(Instruction &Before, Value *V) {
    auto *S = dyn_cast<SelectInst>(V);
    if (!S || !S->hasOneUse())
      return;
    S->moveBefore(&Before);
    sink(*S, S->getTrueValue());
  }

  void compare(Instruction &I) {
    if (auto *Store = dyn_cast<StoreInst>(&I)) {
      check(I, {Store->getPointerOperand(), Store->getValueOperand()});
    } else if (isa<AtomicRMWInst>(I) || isa<AtomicCmpXchgInst>(I)) {
      SmallVector<Value *, 4> Operands(I.operands());
      check(I, Operands);
    } else if (auto *Call = dyn_cast<CallBase>(&I)) {
      if (isa<DbgInfoIntrinsic>(I) || (isa<IntrinsicInst>(I) && cast<IntrinsicInst>(I).isAssumeLikeIntrinsic()))
        return;
      if (Call->isInlineAsm() && Call->use_empty() && Call->arg_empty())
        return;
      SmallVector<Value *, 8> Operands(Call->args());
      if (!Call->isInlineAsm())
        Operands.push_back(Call->getCalledOperand());
      check(I, Operands);
    } else if (auto *Branch = dyn_cast<BranchInst>(&I)) {
      if (Branch->isConditional())
        check(I, {Branch->getCondition()});
    } else if (auto *Switch = dyn_cast<SwitchInst>(&I)) {
      check(I, {Switch->getCondition()});
    } else if (auto *Return = dyn_cast<ReturnInst>(&I)) {
      Value *V = Return->getReturnValue();
      if (V && !I.getParent()->getTerminatingMustTailCall())
        check(I, {V});
    }
  }

  // Both loads gave the same, or both are what reading again gives.
  void agree(LoadInst &First, LoadInst &Second) {
    Type *T = First.getType();
    Instruction *Next = Second.getNextNode();
    IRBuilder<> B(Next);
    Value *Difference = B.CreateXor(word(B, &First), word(B, &Second));
    auto *Hidden = cast<Instruction>(opaque(*Next, Difference));
    Value *Differs = B.CreateIsNotNull(Hidden);
    BasicBlock *Before = Next->getParent();
    Instruction *Then = SplitBlockAndInsertIfThen(Differs, Next, false, MDBuilder(Ctx).createUnlikelyBranchWeights());
    IRBuilder<> Slow(Then);
    Slow.SetCurrentDebugLocation(First.getDebugLoc());
    uint64_t Bytes = M.getDataLayout().getTypeStoreSize(T).getFixedValue();
    Value *Word =
        Slow.CreateCall(Again, {First.getPointerOperand(), Second.getPointerOperand(), Slow.getInt64(Bytes), text(M, whereIs(First))});
    Value *Read = T->isPointerTy() ? Slow.CreateIntToPtr(Word, T) : Slow.CreateZExtOrTrunc(Word, T);
    Value *ReadCopy = opaque(*Then, Read);
    auto join = [&](LoadInst &Load, Value *Other) {
      auto *Join = PHINode::Create(T, 2, "", Next->getParent()->begin());
      Load.replaceUsesWithIf(Join, [&](Use &U) {
        auto *User = cast<Instruction>(U.getUser());
        // A join at the head of a loop that is one block stays before the split.
        return User != Join && (isa<PHINode>(User) || User->getParent() != Before);
      });
      Join->addIncoming(&Load, Before);
      Join->addIncoming(Other, Then->getParent());
    };
    join(First, Read);
    join(Second, ReadCopy);
  }
};

} // namespace

void duplicateBetween(Module &M, const Config &C, const Clones &Made, Report &R) {
  if (!C.Between)
    return;
  SmallVector<Function *, 64> All;
  for (Function &F : M)
    if (!F.isDeclaration() && !F.hasAvailableExternallyLinkage() && !F.getName().ends_with(CloneSuffix) &&
        !F.getName().starts_with("__sf_") && !F.hasFnAttribute(Attribute::Naked) && !(Made.count(&F) && C.Handlers.count(F.getName())))
      All.push_back(&F);
  unsigned Compared = 0;
  for (Function *F : All)
    Compared += Between(*F).run();
  std::string Functions = std::to_string(All.size()), Checks = std::to_string(Compared);
  R.line({"D", Functions, Checks});
}

} // namespace steadfast
