// Plain loads of what an atomic operation changes, with `atomics-once`.
//
// Such an operation is done by the first run, and what it has left stays: a plain load that comes before it would find one value in the
// first run and another in the second. So these loads become volatile, and are kept for the second run (memory.cpp). As for `racy`, this
// happens at the pipeline's start, where each load of the source still says which variable or which field of which structure it reads.
//
// A place has a name: a variable, a field by the structure's type and the offset in it, or what a pointer that is none of both leads to.
// An argument's name is that of what callers hand over: of the callee's operations upwards, of the caller's loads downwards.
//
// An operation on what a pointer leads to may change anything of that width that pointers lead to: all loads of it are kept then, but for
// those of frames and of variables whose address nobody takes.
//
// Invariant: a load too many is only slow, so names are compared without the path, the index or the object that they are reached by.
//
// Not covered: other modules; copies of whole structures; unions and casts that read a field by another type's name; loads of more than 64
// bits, which no record holds.

#include "harden.h"

#include "llvm/ADT/SmallSet.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/Operator.h"

using namespace llvm;

namespace steadfast {

namespace {

constexpr unsigned Deepest = 6; // pointers that lead to pointers

class Names {
public:
  explicit Names(const DataLayout &Layout) : Layout(Layout) {}

  static std::string ofArgument(const Function &F, unsigned Index) { return ("argument " + F.getName() + "#" + Twine(Index)).str(); }

  // Of what lies where this pointer leads; none of what dies with the frame.
  std::string of(const Value *Pointer, unsigned Depth = 0) {
    // Not stripPointerCasts, which takes the way to a first field for none.
    while (auto *Element = dyn_cast<GEPOperator>(Pointer)) {
      APInt Offset(64, 0);
      if (auto *S = dyn_cast<StructType>(Element->getSourceElementType());
          S && S->hasName() && Element->getNumIndices() > 1 && Element->accumulateConstantOffset(Layout, Offset))
        return ("field " + S->getName() + "+" + Twine(inOne(*S, Offset))).str();
      Pointer = Element->getPointerOperand();
    }
    if (auto *G = dyn_cast<GlobalVariable>(Pointer)) {
      auto *S = dyn_cast<StructType>(G->getValueType()); // its first field has the variable's address
      return S && S->hasName() ? ("field " + S->getName() + "+0").str() : ("variable " + G->getName()).str();
    }
    if (auto *A = dyn_cast<Argument>(Pointer))
      return ofArgument(*A->getParent(), A->getArgNo());
    if (auto *L = dyn_cast<LoadInst>(Pointer); L && Depth < Deepest) {
      const Value *From = L->getPointerOperand();
      auto *Local = dyn_cast<AllocaInst>(From);
      if (const Value *Is = Local ? onlyValue(*Local) : nullptr)
        return of(Is, Depth + 1);
      std::string Name = Local ? number(Local) : of(From, Depth + 1);
      return Name.empty() ? Name : "behind " + Name;
    }
    return isa<AllocaInst>(Pointer) || isa<LoadInst>(Pointer) ? "" : number(Pointer);
  }

private:
  const DataLayout &Layout;
  DenseMap<const Value *, unsigned> Numbers;

  std::string number(const Value *V) { return "value " + std::to_string(Numbers.try_emplace(V, Numbers.size()).first->second); }

  uint64_t inOne(StructType &S, const APInt &Offset) const {
    uint64_t Size = Layout.getTypeAllocSize(&S).getFixedValue();
    return Size ? Offset.getZExtValue() % Size : 0;
  }

  // What a local of the source holds, if it is stored to once.
  static const Value *onlyValue(const AllocaInst &Local) {
    const Value *Is = nullptr;
    for (const User *U : Local.users()) {
      auto *S = dyn_cast<StoreInst>(U);
      if (isa<LoadInst>(U) || isa<DbgInfoIntrinsic>(U) || isa<LifetimeIntrinsic>(U))
        continue;
      if (!S || S->getPointerOperand() != &Local || Is)
        return nullptr;
      Is = S->getValueOperand();
    }
    return Is;
  }
};

struct Handed {
  std::string Actual, Formal;
};

bool fits(const DataLayout &Layout, Type *T) { return T->isSized() && Layout.getTypeStoreSizeInBits(T) <= 64; }

Type *changedBy(const Instruction &I) {
  if (auto *Change = dyn_cast<AtomicRMWInst>(&I))
    return Change->getValOperand()->getType();
  if (auto *Swap = dyn_cast<AtomicCmpXchgInst>(&I))
    return Swap->getNewValOperand()->getType();
  return cast<StoreInst>(I).getValueOperand()->getType();
}

// Whether a pointer may lead there: not to a variable that is only read and written by its name.
bool isReached(const Value *Pointer) {
  auto *G = dyn_cast<GlobalVariable>(Pointer->stripPointerCasts());
  if (!G)
    return true;
  return !G->hasLocalLinkage() || any_of(G->users(), [&](const User *U) {
    if (auto *S = dyn_cast<StoreInst>(U))
      return S->getValueOperand() == G;
    return !isa<LoadInst>(U) && !isa<AtomicRMWInst>(U) && !isa<AtomicCmpXchgInst>(U);
  });
}

} // namespace

bool keepMixedLoads(Module &M, const Config &C) {
  // With copies, and with a second run elsewhere, such a word has one place only.
  if (!C.AtomicsOnce || C.Dup || C.Crc || C.Async)
    return false;
  Names Name(M.getDataLayout());
  StringSet<> Mixed;
  SmallSet<uint64_t, 4> Widths;
  SmallVector<Handed, 16> Calls;
  SmallVector<std::pair<LoadInst *, std::string>, 16> Loads;
  for (Function &F : M)
    for (Instruction &I : instructions(F)) {
      if (const Value *At = atomicTarget(I)) {
        Mixed.insert(Name.of(At));
        Widths.insert(M.getDataLayout().getTypeStoreSizeInBits(changedBy(I)).getFixedValue());
      } else if (auto *L = dyn_cast<LoadInst>(&I); L && L->isSimple() && fits(M.getDataLayout(), L->getType()))
        Loads.emplace_back(L, Name.of(L->getPointerOperand()));
      auto *Call = dyn_cast<CallBase>(&I);
      Function *Callee = Call ? Call->getCalledFunction() : nullptr;
      if (Callee && !Callee->isDeclaration() && !Callee->isIntrinsic())
        for (unsigned A = 0, E = std::min<unsigned>(Call->arg_size(), Callee->arg_size()); A != E; ++A)
          if (Call->getArgOperand(A)->getType()->isPointerTy())
            Calls.push_back({Name.of(Call->getArgOperand(A)), Names::ofArgument(*Callee, A)});
    }
  Mixed.erase("");
  // First what callers hand over to operations, then what they hand over of it to loads: not back, or one function that reads for all
  // would make all of it mixed.
  for (bool Up : {true, false})
    for (bool Grew = true; Grew;) {
      Grew = false;
      for (const Handed &H : Calls) {
        const std::string &From = Up ? H.Formal : H.Actual, &To = Up ? H.Actual : H.Formal;
        Grew |= !To.empty() && Mixed.contains(From) && Mixed.insert(To).second;
      }
    }
  bool Anywhere = any_of(Mixed.keys(), [](StringRef Where) { return Where.starts_with("value ") || Where.starts_with("behind "); });
  bool Changed = false;
  for (auto &[L, Where] : Loads) {
    uint64_t Width = M.getDataLayout().getTypeStoreSizeInBits(L->getType()).getFixedValue();
    bool Perhaps = Anywhere && !Where.empty() && Widths.contains(Width) && isReached(L->getPointerOperand());
    if (!Perhaps && !Mixed.contains(Where))
      continue;
    L->setVolatile(true);
    L->setMetadata(MixedMetadata, MDNode::get(M.getContext(), {}));
    Changed = true;
  }
  return Changed;
}

} // namespace steadfast
