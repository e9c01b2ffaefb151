// A clone jumps to labels of its own. Cloning gives it those that its instructions name; a table that names them is a
// variable of the module, shared with the original, whose labels lie in other code with another frame. So a clone gets a
// copy of each such table. Where a label may have come to other memory, or to another function, nobody can tell whose it is
// when it comes back: such a goto is refused.
//
// Not covered: tables whose elements hold other pointers beside labels, which are handed on: refused as well.

#include "labels.h"

#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/Analysis/ValueTracking.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/IntrinsicInst.h"

using namespace llvm;

namespace steadfast {

namespace {

class Walk {
public:
  explicit Walk(Function &F) : F(F) {}
  Labels Found;

  // Whoever uses V, which is a label, is computed from one, or is the address of something that holds one.
  void users(Value &V) {
    for (Use &U : V.uses())
      if (Seen.insert(&U).second)
        use(U);
  }

private:
  Function &F;
  SmallPtrSet<Use *, 32> Seen;

  static AllocaInst *frame(Value *Pointer) { return dyn_cast<AllocaInst>(getUnderlyingObject(Pointer, 0)); }

  void kept(Value *Pointer) {
    if (AllocaInst *A = frame(Pointer))
      users(*A);
    else
      Found.Stay = false;
  }

  void use(Use &U) {
    User *By = U.getUser();
    if (auto *G = dyn_cast<GlobalVariable>(By)) {
      Found.Tables.push_back(G);
      Found.Stay &= G->hasLocalLinkage() && !G->isThreadLocal() && G->hasInitializer();
      users(*G);
      return;
    }
    auto *I = dyn_cast<Instruction>(By);
    if (!I) {
      if (isa<GlobalValue>(By))
        Found.Stay = false;
      else
        users(*By);
      return;
    }
    if (I->getFunction() != &F) {
      Found.Stay = false;
    } else if (auto *S = dyn_cast<StoreInst>(I)) {
      if (U.getOperandNo() == 0)
        kept(S->getPointerOperand());
      else
        Found.Stay &= frame(S->getPointerOperand()) != nullptr;
    } else if (auto *Move = dyn_cast<MemTransferInst>(I)) {
      if (U.getOperandNo() == 1)
        kept(Move->getDest());
      else
        Found.Stay &= frame(Move->getDest()) != nullptr;
    } else if (isa<LoadInst>(I) || isa<PHINode>(I) || isa<SelectInst>(I) || isa<CastInst>(I) || isa<BinaryOperator>(I) ||
               isa<GetElementPtrInst>(I) || isa<FreezeInst>(I)) {
      users(*I);
    } else if (auto *II = dyn_cast<IntrinsicInst>(I)) {
      Found.Stay &= isa<MemSetInst>(II) || II->isAssumeLikeIntrinsic();
    } else {
      Found.Stay &= isa<IndirectBrInst>(I) || isa<ICmpInst>(I);
    }
  }
};

} // namespace

Labels labelsOf(Function &F) {
  Walk All(F);
  for (BasicBlock &B : F)
    if (BlockAddress *Label = BlockAddress::lookup(&B))
      All.users(*Label);
  return All.Found;
}

} // namespace steadfast
